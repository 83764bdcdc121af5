"""Which jobs that still queue are to be estimated again, and whether the new estimate is worth telling."""

from collections.abc import Iterator
from heapq import heappop, heappush

from models.records import JobKey
from models.site.job import Estimate, Job, LaterEstimate, Phase
from models.site.state import SiteState

FIRST_LOOK_S = 600.0
"""A job is looked at again after it has waited so long, then each time that it has waited twice as long."""

MAX_LOOKS_PER_EVENT = 2  # jobs that are looked at after one event; the others have their turn after the next ones

MAX_TAKEN_PER_EVENT = 64
"""Looks that are taken after one event: where more are due of one job, all but its last are passed over; 0.2 ms."""

MIN_ENTRIES = 256
"""Up to so many entries, and two a live job, are kept before those that no longer count are sought out."""

MIN_MOVE_S, MIN_MOVE_RATIO = 300.0, 0.25
"""An expected start has moved enough to be told where it did by both: seconds, and a share of the time left till it."""

Due = tuple[float, JobKey]  # when a job is to be looked at again (Unix seconds), and which


class Reestimates:
    """The jobs that queue, by when they are to be looked at again. O(log queued) a look.

    They are looked at in the order of these times, and `passed` is the last time that was taken. A job's next one
    follows from that and from when the job was ready, so nothing is stored with the job: a look that tells nothing
    changes no state but `passed`. An entry counts while its job queues and it is the job's next one; the others are
    dropped when they come up, or when they are too many.

    Parameters:
        state: the site's live jobs.
        active: whether the site's method estimates queued jobs again; without it nothing is kept.
    """

    def __init__(self, state: SiteState, active: bool) -> None:
        self.passed: Due = 0.0, ("", -1)  # before those of all jobs; it is stored
        self._state = state
        self._active = active
        self._due: list[Due] = []

    def watch(self, job: Job) -> None:
        """Look at a job when it is due: it has come, was released, or is eligible at another time."""
        if self._active:
            heappush(self._due, next_due(job, self.passed))
            if len(self._due) > MIN_ENTRIES + 2 * len(self._state):
                self.watch_all()

    def watch_all(self) -> None:
        """Look at all queued jobs when they are due; O(live jobs)."""
        if self._active:
            self._due = []
            for job in self._state.in_phase(Phase.QUEUED):  # one by one: `heapify` would stop all other threads
                heappush(self._due, next_due(job, self.passed))

    def restore(self, passed: Due) -> None:
        """Go on from the last look that was taken."""
        self.passed = passed
        self.watch_all()

    def any_due(self, now: float) -> bool:
        """Whether `take` may give a job at `now` (Unix seconds); O(1)."""
        return bool(self._due) and self._due[0][0] <= now

    def take(self, now: float) -> Iterator[Job]:
        """The jobs whose turn it is at `now` (Unix seconds), those first that have been due for longest.

        Of the looks at one job that are due only the last counts.
        """
        looked = taken = 0
        while self.any_due(now):
            if looked >= MAX_LOOKS_PER_EVENT or taken >= MAX_TAKEN_PER_EVENT:
                return
            due = heappop(self._due)
            job = self._state.jobs.get(due[1])
            if job is None or job.phase is not Phase.QUEUED or due != next_due(job, self.passed):
                continue  # it takes no share of what may be taken: who was read back does not have it
            self.passed, taken = due, taken + 1
            following = next_due(job, due)
            heappush(self._due, following)
            if following[0] > now:
                looked += 1
                yield job


def next_due(job: Job, passed: Due) -> Due:
    """The first look at a queued job after those that were taken.

    >>> next_due(Job("1", 0, 1000.0), (0.0, ("", 0))), next_due(Job("1", 0, 1000.0), (1600.0, ("1", 0)))
    ((1600.0, ('1', 0)), (2200.0, ('1', 0)))
    """
    after_s, key, ready = FIRST_LOOK_S, job.key, job.ready
    while (due := (ready + after_s, key)) <= passed:
        after_s *= 2.0
    return due


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
    return LaterEstimate.after(job.later, now, estimate)
