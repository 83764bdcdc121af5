"""When a job is given up whose end was never reported: it must not stay in the state forever."""

from collections import deque
from heapq import heapify, heappop, heappush

from models.durations import DAY_S
from models.records import JobKey
from models.site.job import Job, Phase
from models.site.state import SiteState

MAX_WALLTIMES = 3.0
"""A running job is given up after this many times its requested walltime, and a week."""

WEEK_S = 7 * DAY_S
MAX_LIVE_S = 400 * DAY_S
"""So long after its submit a job is given up that has not started, and after its start one without a walltime, or that
is suspended."""

MIN_AGREEING_EVENTS = 32
"""Events that must agree on how late it is: one with a wrong time must not give up the jobs of all others."""

MAX_STALE_ENTRIES = 1024
"""Entries that may be kept of jobs that have left or moved on, beside two for each live job."""


def due(job: Job) -> float:
    """When a job in its present phase is given up, Unix seconds; far beyond what any scheduler lets it take."""
    if job.phase is Phase.RUNNING:
        assert job.began is not None
        return job.began + (MAX_WALLTIMES * job.walltime + WEEK_S if job.walltime else MAX_LIVE_S)
    return (job.submit if job.start is None else job.start) + MAX_LIVE_S


class Expiry:
    """Watches the live jobs of a site. O(log live jobs) for a job that enters or starts.

    >>> expiry, state = Expiry(), SiteState()
    >>> job = Job(id="1", attempt=0, submit=0.0, start=0.0, walltime=60.0, phase=Phase.RUNNING)
    >>> expiry.watch(job, state.enter(job))
    >>> for _ in range(MIN_AGREEING_EVENTS):
    ...     expiry.tick(30 * DAY_S)
    >>> [job.id for job in expiry.overdue(state)]
    ['1']
    """

    def __init__(self, times: list[float] | None = None) -> None:
        self.times: deque[float] = deque(times or (), MIN_AGREEING_EVENTS)
        self._due: list[tuple[float, JobKey]] = []

    def tick(self, time: float) -> None:
        """An event says that it is `time`."""
        self.times.append(time)

    def watch(self, job: Job, key: JobKey) -> None:
        """A job has entered, started, or been altered."""
        heappush(self._due, (due(job), key))

    def watch_all(self, state: SiteState) -> None:
        """Watch every job of a state, and no other; O(live jobs)."""
        self._due = [(due(job), key) for key, job in state.jobs.items()]
        heapify(self._due)

    def overdue(self, state: SiteState) -> list[Job]:
        """The jobs to give up now, the longest overdue first."""
        if len(self._due) > 2 * len(state) + MAX_STALE_ENTRIES:
            self.watch_all(state)
        if len(self.times) < MIN_AGREEING_EVENTS:
            return []
        now = min(self.times)
        late: dict[JobKey, Job] = {}
        while self._due and self._due[0][0] <= now:
            _, key = heappop(self._due)
            job = state.jobs.get(key)
            if job is not None and due(job) <= now:  # else it has left, or started since and is watched anew
                late[key] = job
        return sorted(late.values(), key=lambda job: (due(job), job.key))
