"""The queues of a site, by the names in its submit events."""

import msgspec

from models.durations import WEEK_S
from models.site.job import Job, Phase
from models.site.state import SiteState

MAX_QUEUES = 256  # maximum number of tracked queues; the least recently used one is removed first


class QueueSeen(msgspec.Struct, array_like=True):
    """A queue: the number of jobs submitted to it, and the time of the last one (Unix seconds)."""

    jobs: int = 0
    last: float = 0.0


class Queues:
    """The queues of a site, the most recently used last.

    >>> queues = Queues()
    >>> queues.see(Job(id="1", attempt=0, submit=10.0, queue="batch"))
    >>> queues.open(SiteState(), now=20.0, most=8)
    ['batch']
    """

    def __init__(self) -> None:
        self.seen: dict[str, QueueSeen] = {}  # the stored state

    def see(self, job: Job) -> None:
        """Count a submitted job."""
        if job.queue is None:
            return
        seen = self.seen.pop(job.queue, None) or QueueSeen()
        seen.jobs, seen.last = seen.jobs + 1, max(job.submit, seen.last)
        self.seen[job.queue] = seen
        if len(self.seen) > MAX_QUEUES:
            del self.seen[next(iter(self.seen))]

    def open(self, state: SiteState, now: float, most: int) -> list[str]:
        """Return the queues with live jobs or a submission in the week before `now`, at most the `most` busiest."""
        found = [
            name
            for name, seen in self.seen.items()
            if seen.last >= now - WEEK_S or any(state.totals(("queue", name), phase).count for phase in Phase)
        ]
        return sorted(sorted(found, key=lambda name: (-self.seen[name].jobs, name))[:most])
