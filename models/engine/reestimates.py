"""Which jobs that still queue are to be estimated anew, and whether the new estimate is worth telling."""

from collections.abc import Iterator
from heapq import heappop, heappush

from models.records import JobKey
from models.site.job import Estimate, Job, LaterEstimate, Phase
from models.site.state import SiteState

FIRST_LOOK_S = 600.0
"""A job is looked at again after it has waited so long, then each time that it has waited twice as long."""

MAX_LOOKS_PER_EVENT = 4
"""Jobs that are looked at after one event; the others have their turn after the next ones."""

MIN_ENTRIES = 256
"""Up to so many entries, and two a live job, are kept before those that no longer count are sought out."""

MIN_MOVE_S, MIN_MOVE_RATIO = 300.0, 0.25
"""An expected start has moved enough to be told where it did by both: seconds, and a share of the time left till it."""


class Reestimates:
    """The jobs that queue, by when they are to be looked at again. O(log queued) a look.

    A job's next look follows from the job alone, `due`, so nothing of this is stored. An entry counts while its job is
    queued and due at that time; the others are dropped when they come up, or when they are too many.

    Parameters:
        state: the site's live jobs.
        active: whether the site's method estimates queued jobs anew; without it nothing is kept.
    """

    def __init__(self, state: SiteState, active: bool) -> None:
        self._state = state
        self._active = active
        self._due: list[tuple[float, JobKey]] = []

    def watch(self, job: Job) -> None:
        """Look at a job when it is due: it has come, was released, or is eligible at another time."""
        if self._active:
            heappush(self._due, (due(job), job.key))
            if len(self._due) > MIN_ENTRIES + 2 * len(self._state):
                self.watch_all()

    def watch_all(self) -> None:
        """Look at all queued jobs when they are due; O(live jobs)."""
        if self._active:
            self._due = []
            for job in self._state.in_phase(Phase.QUEUED):  # one by one: `heapify` would stop all other threads
                heappush(self._due, (due(job), job.key))

    def any_due(self, now: float) -> bool:
        """Whether `take` may give a job at `now` (Unix seconds); O(1)."""
        return bool(self._due) and self._due[0][0] <= now

    def take(self, now: float) -> Iterator[Job]:
        """The jobs whose turn it is at `now` (Unix seconds), those first that have been due for longest."""
        state, taken = self._state, 0
        while taken < MAX_LOOKS_PER_EVENT and self.any_due(now):
            time, key = heappop(self._due)
            job = state.jobs.get(key)
            if job is not None and job.phase is Phase.QUEUED and due(job) == time:
                while due(job) <= now:
                    job.looks += 1
                self.watch(job)
                taken += 1
                yield job


def due(job: Job) -> float:
    """When a queued job is to be looked at again, Unix seconds.

    >>> due(Job("1", 0, 1000.0)), due(Job("1", 0, 1000.0, looks=2))
    (1600.0, 3400.0)
    """
    return job.ready + FIRST_LOOK_S * 2.0 ** min(job.looks, 30)


def worth_telling(job: Job, method: str, estimate: Estimate | None, now: float) -> LaterEstimate | None:
    """The new estimate of a job's whole wait, where it is worth telling; None where it is not.

    It is where the start that is expected has moved enough from the one that was told last, or none was.

    >>> job = Job("1", 0, 0.0, estimates={"m": Estimate(3600.0, "")})
    >>> worth_telling(job, "m", Estimate(3700.0, ""), 600.0) is None
    True
    >>> worth_telling(job, "m", Estimate(7200.0, ""), 600.0).estimate.wait_s
    7200.0
    """
    if estimate is None or estimate.wait_s is None:
        return None
    last = job.estimates.get(method) if job.later is None else job.later.estimate
    if last is not None and last.wait_s is not None:
        moved_s = abs(estimate.wait_s - last.wait_s)
        left_s = max(estimate.wait_s, last.wait_s) - (now - job.ready)
        if moved_s < MIN_MOVE_S or moved_s < MIN_MOVE_RATIO * left_s:
            return None
    return LaterEstimate(now, estimate)
