"""Events as tests need them: of the site "s" and of plain jobs, except for what a test says."""

from typing import Any

from models.records import Cancel, Capacity, End, Start, Submit


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
