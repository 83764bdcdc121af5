"""Events as tests need them: of the site "s" and of plain jobs, except for what a test says."""

from collections.abc import Iterable
from typing import Any

from models.records import AnyEvent, Cancel, Capacity, End, Start, Submit
from streams.bulk.history import marked
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
    """The site has so many processors now."""
    return Capacity(site=site, time=time, cpus=cpus, **fields)


def as_history(events: Iterable[AnyEvent], predicted: int = 6000) -> list[AnyEvent]:
    """Events as those of a site's history, of which the last so many jobs are predicted."""
    return [step.event for step in marked(map(OutgoingEvent, events), predicted) if step.event is not None]
