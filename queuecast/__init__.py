"""Python client of queuecast: query when jobs would start, and follow the predictions.

    from queuecast import Client

    with Client() as grid:
        print(grid.rank(cpus=64, walltime="4h").ranking[0].site)

`AsyncClient` is the same for asyncio. `HttpClient` queries an HTTP service, for programs without access to Kafka. Times
are Unix seconds, durations seconds, memory bytes.
"""

from models.ranking import JobRequest, RankedSite, Ranking
from models.records import (
    GridEstimate,
    JobAnswer,
    JobsAnswer,
    LiveJob,
    Notice,
    Outcome,
    Prediction,
    SiteAnswer,
    WaitAnswer,
)
from streams.client.blocking import Client
from streams.client.estimates import WithdrawnEstimate
from streams.client.grid import AsyncClient
from streams.client.http import HttpClient
from streams.client.pending_questions import (
    AnswerTimeout,
    NotFound,
    QuestionRejected,
    UnknownJob,
    UnknownSite,
    WorkerOverloaded,
)
from streams.errors import InvalidInput, Unreachable, UserError
from streams.notify.signing import verify_notice
from streams.running import kafka_options
from streams.settings import KafkaSettings, Settings, load_settings
from streams.version import __version__

__all__ = [
    "AnswerTimeout",
    "AsyncClient",
    "Client",
    "GridEstimate",
    "HttpClient",
    "InvalidInput",
    "JobAnswer",
    "JobRequest",
    "JobsAnswer",
    "KafkaSettings",
    "LiveJob",
    "NotFound",
    "Notice",
    "Outcome",
    "Prediction",
    "QuestionRejected",
    "RankedSite",
    "Ranking",
    "Settings",
    "SiteAnswer",
    "UnknownJob",
    "UnknownSite",
    "Unreachable",
    "UserError",
    "WaitAnswer",
    "WithdrawnEstimate",
    "WorkerOverloaded",
    "__version__",
    "kafka_options",
    "load_settings",
    "verify_notice",
]
