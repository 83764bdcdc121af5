"""Events and records as tests need them: of the site "s" and of plain jobs, except for the fields that a test sets."""

from collections.abc import Iterable
from typing import Any

from models.records import AnyEvent, Cancel, Capacity, End, Outcome, Prediction, Start, Submit
from streams.bulk.site_history import marked
from streams.sources.publisher import OutgoingEvent


def submit(job: str, time: float = 0.0, site: str = "s", **fields: Any) -> Submit:
    """A job is submitted."""
    return Submit(site=site, time=time, job=job, **fields)


def start(job: str, time: float = 0.0, site: str = "s", **fields: Any) -> Start:
    """It starts."""
    return Start(site=site, time=time, job=job, **fields)


def end(job: str, time: float = 0.0, site: str = "s", **fields: Any) -> End:
    """It ends."""
    return End(site=site, time=time, job=job, **fields)


def cancel(job: str, time: float = 0.0, site: str = "s", **fields: Any) -> Cancel:
    """It is cancelled while queued."""
    return Cancel(site=site, time=time, job=job, **fields)


def capacity(cpus: int, time: float = 0.0, site: str = "s", **fields: Any) -> Capacity:
    """The site has so many CPUs now."""
    return Capacity(site=site, time=time, cpus=cpus, **fields)


def prediction(job: str = "1", wait_s: float | None = 60.0, made_at: float = 0.0, **fields: Any) -> Prediction:
    """A job is predicted to wait so long."""
    defaults = {"site": "s", "attempt": 0, "method": "blend", "reason": "", "predicted_run_s": None}
    waits = {"predicted_wait_s": wait_s, "predicted_start": None if wait_s is None else made_at + wait_s}
    return Prediction(job=job, made_at=made_at, **defaults | waits | fields)


def outcome(job: str, wait_s: float, predicted_s: float | None = 60.0, made_at: float = 0.0, **fields: Any) -> Outcome:
    """It has waited so long."""
    defaults = {"site": "s", "attempt": 0, "predicted_run_s": None, "method": "blend", "observed_at": made_at + wait_s}
    error_s = (predicted_s or 0.0) - wait_s
    waits = {"predicted_wait_s": predicted_s, "actual_wait_s": wait_s, "error_s": error_s}
    return Outcome(job=job, made_at=made_at, **defaults | waits | fields)


def as_history(events: Iterable[AnyEvent], predicted: int = 6000) -> list[AnyEvent]:
    """Events as those of a site's history, of which the last so many jobs are predicted."""
    return [step.event for step in marked(map(OutgoingEvent, events), predicted) if step.event is not None]
