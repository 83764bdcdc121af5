"""queuecast for programs: ask when jobs would start, and follow the predictions.

    from queuecast import Client

    with Client() as grid:
        print(grid.rank(cpus=64, walltime="4h").ranking[0].site)

`AsyncClient` is the same for asyncio. Times are Unix seconds, durations seconds, memory bytes.
"""

from models.ranking import JobRequest, RankedSite, Ranking
from models.records import (
    JobAnswer,
    JobsAnswer,
    LiveJob,
    Notice,
    Outcome,
    Prediction,
    SiteAnswer,
    StandingEstimate,
    WaitAnswer,
)
from streams.client.blocking import Client
from streams.client.grid import AsyncClient, Refused, UnknownSite
from streams.client.questions import AnswerTimeout
from streams.errors import NotUnderstood, Unreachable, UserError
from streams.notify.signing import verify_notice
from streams.running import kafka_options
from streams.settings import KafkaSettings, Settings, load_settings
from streams.version import __version__

__all__ = [
    "AnswerTimeout",
    "AsyncClient",
    "Client",
    "JobAnswer",
    "JobRequest",
    "JobsAnswer",
    "KafkaSettings",
    "LiveJob",
    "NotUnderstood",
    "Notice",
    "Outcome",
    "Prediction",
    "RankedSite",
    "Ranking",
    "Refused",
    "Settings",
    "SiteAnswer",
    "StandingEstimate",
    "UnknownSite",
    "Unreachable",
    "UserError",
    "WaitAnswer",
    "__version__",
    "kafka_options",
    "load_settings",
    "verify_notice",
]
