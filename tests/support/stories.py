"""Stories of one job: events from a line of words, and what they lead to."""

from collections.abc import Sequence
from typing import Any

import msgspec

from models.engine.engine import Engine
from models.engine.outgoing import Anomaly, Record
from models.engine.saved_state import read_saved
from models.engine.settings import EngineSettings
from models.records import (
    AnyEvent,
    End,
    Outcome,
    Prediction,
    Start,
    Submit,
)
from models.site.job import Phase
from models.site.state import SiteState

SETTINGS = EngineSettings(method="median", shadows=("zero",), runtimes="closest", bounds="", history=50)
KINDS = {kind.kind: kind for kind in AnyEvent.__args__}


def event(text: str, **fields: Any) -> AnyEvent:
    """The event that "start@150" or, of the next attempt, "start'@150" means, of job 1."""
    kind, _, time = text.partition("@")
    attempt = kind.count("'")
    if kind.rstrip("'") == "expected_start":
        fields = {"by": "slurm", "expected": float(time) + 60.0} | fields
    return KINDS[kind.rstrip("'")](site="s", job="1", time=float(time), attempt=attempt, **fields)  # type: ignore[no-any-return]


def story(text: str) -> list[AnyEvent]:
    """The events that a line of words means."""
    return [event(word) for word in text.split()]


def new_engine() -> Engine:
    return Engine("s", SETTINGS)


def applied(engine: Engine, events: Sequence[AnyEvent]) -> list[Record]:
    return [record for event in events for record in engine.apply(event)]


def anomalies(records: list[Record]) -> list[Anomaly]:
    return [record for record in records if isinstance(record, Anomaly)]


def outcomes(records: list[Record]) -> list[Outcome]:
    return [record for record in records if isinstance(record, Outcome)]


def predictions(records: list[Record]) -> list[Prediction]:
    return [record for record in records if isinstance(record, Prediction)]


def live(engine: Engine) -> dict[int, Phase]:
    """The phase of each live attempt at job 1."""
    return {attempt: job.phase for (_, attempt), job in engine.context.state.jobs.items()}


def assert_sound(engine: Engine) -> None:
    """The totals are those of the jobs that are there."""
    recount = SiteState()
    for job in engine.context.state.jobs.values():
        recount.enter(job)
    assert engine.context.state._totals == recount._totals


QUEUED, HELD, RUNNING, SUSPENDED = Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.SUSPENDED
ENDED = Phase.ENDED_BEFORE_START


def contents(engine: Engine) -> dict[str, Any]:
    """All of a state but what every event is counted in or may end, and which rows are to be deleted."""
    saved, _ = engine.checkpoint()
    assert read_saved(saved).site == "s"
    found: dict[str, Any] = msgspec.msgpack.decode(saved)
    del found["events"], found["anomalies"], found["histories"]["forgotten"], found["scores"]["weeks"]
    del found["live"]["times"], found["live"]["clock"]
    return found


def other_jobs(count: int, time: float = 400.0) -> list[AnyEvent]:
    """Jobs that come and go."""
    jobs: list[dict[str, Any]] = [{"site": "s", "job": f"other{number}", "time": time} for number in range(count)]
    return [kind(**job) for job in jobs for kind in (Submit, Start, End)]
