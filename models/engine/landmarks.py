"""Record the estimates in force of pending jobs at fixed ages, to score them when the waits are known."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from models.engine.outgoing import bounds_of
from models.records import JobKey
from models.site.job import Job, Phase
from models.site.state import SiteState
from models.waiting_accuracy import WAITING_AGES_S, Landmark, RecentRemaining, SavedRemaining

MIN_ENTRIES = 256
"""The heap is rebuilt when it has more than this many entries plus two per live job, as most are then invalid."""

PASSED_PER_EVENT = 1000
"""Maximum number of landmarks that are recorded at once; more are due after days without events."""

_WAITING = (Phase.QUEUED, Phase.HELD)


class Landmarks:
    """The pending jobs by the time when each reaches the next of `WAITING_AGES_S`. O(log queued) per landmark.

    Args:
        state: the live jobs of the site.
        method: the method whose estimates are scored.
        lender: the method whose bounds complete an estimate without bounds.
        touch: marks a job as changed, so that it is stored.
    """

    def __init__(self, state: SiteState, method: str, lender: str, touch: Callable[[Job], None]) -> None:
        self.recent = RecentRemaining()
        self.latest: tuple[JobKey | None, tuple[Landmark, ...]] = (None, ())
        """The last job that left the queue, and its landmarks."""
        self._state, self._method, self._lender, self._touch = state, method, lender, touch
        self._heap: list[tuple[float, JobKey, int]] = []

    def watch(self, job: Job) -> None:
        """Track a job whose wait starts or restarts."""
        if job.landmarks:
            job.landmarks = ()
            self._touch(job)
        self._push(job, 0)
        if len(self._heap) > MIN_ENTRIES + 2 * len(self._state):
            self._rebuild()

    def _push(self, job: Job, age: int) -> None:
        if age < len(WAITING_AGES_S):
            heappush(self._heap, (job.ready + WAITING_AGES_S[age], job.key, age))

    def _rebuild(self) -> None:
        self._heap = [
            (job.ready + WAITING_AGES_S[age], job.key, age)
            for phase in _WAITING
            for job in self._state.in_phase(phase)
            if _counts(job) and (age := _next(job)) < len(WAITING_AGES_S)
        ]
        heapify(self._heap)

    def restore(self, recent: SavedRemaining) -> None:
        """Continue with the live jobs that were restored. O(live jobs)."""
        self.recent.load(recent)
        self._rebuild()

    def pass_to(self, now: float) -> None:
        """Record the jobs that reached an age before `now` (Unix seconds), in the order of these times.

        Of more than `PASSED_PER_EVENT`, the rest is recorded at later events: by then their median may include jobs
        that have left since.
        """
        count = 0
        while self._heap and self._heap[0][0] < now and count < PASSED_PER_EVENT:
            at, key, age = heappop(self._heap)
            job = self._state.jobs.get(key)
            if job is None or not _counts(job) or _next(job) != age:
                continue
            if at == job.ready + WAITING_AGES_S[age]:
                self._pass(job, age, at)
                self._push(job, age + 1)
                count += 1

    def catch_up(self, job: Job, now: float) -> None:
        """Record the ages that a pending job reached before `now` (Unix seconds); call this before it changes."""
        if not _counts(job):
            return
        before = age = _next(job)
        while age < len(WAITING_AGES_S) and (at := job.ready + WAITING_AGES_S[age]) < now:
            self._pass(job, age, at)
            age += 1
        if age > before:
            self._push(job, age)

    def _pass(self, job: Job, age: int, at: float) -> None:
        job.landmarks = (*job.landmarks, self._landmark(job, age, at))
        self._touch(job)

    def _landmark(self, job: Job, age: int, at: float) -> Landmark:
        first = job.estimates.get(self._method)
        in_force = first if job.later is None else job.later.estimate
        if in_force is None or in_force.wait_s is None or job.phase is not Phase.QUEUED:
            return Landmark(age)
        first_s = in_force.wait_s if first is None or first.wait_s is None else first.wait_s
        bounds = bounds_of(job, self._method, self._lender) if job.later is None else in_force.bounds
        return Landmark(age, first_s, in_force.wait_s, self.recent.median(age, at), bounds)

    def job_dequeued(self, job: Job, at: float, wait_s: float) -> tuple[Landmark, ...]:
        """Return the landmarks of a job that leaves the queue `at` (Unix seconds); call this before it leaves."""
        self.pass_to(at)
        self.catch_up(job, at)
        self.recent.add(at, wait_s)
        noted = tuple(noted for noted in job.landmarks if WAITING_AGES_S[noted.age] < wait_s)  # the event may be late
        job.landmarks = ()
        self.latest = job.key, noted
        return noted


def _counts(job: Job) -> bool:
    """Return True if the estimates of a job are scored while it waits."""
    return job.phase in _WAITING and not job.unscored and not job.progress.old


def _next(job: Job) -> int:
    """Return the index of the age that a job reaches next."""
    return job.landmarks[-1].age + 1 if job.landmarks else 0
