"""Expiry of jobs whose end was never reported."""

from collections import deque
from collections.abc import Iterable
from math import inf, nextafter

from models.durations import DAY_S, WEEK_S
from models.records import JobKey
from models.site.job import Job, Phase
from models.site.state import SiteState
from models.timers import Timers

MAX_WALLTIMES = 3.0  # a running job expires after this multiple of its walltime, plus a week
MAX_LIVE_S = 400 * DAY_S
"""Seconds from the submit until a job that has not started expires, and from the start for a job that is suspended or
has no walltime."""

MAX_ENDED_S = DAY_S  # seconds from the end until a job without a start event expires

MIN_AGREEING_EVENTS = 32
"""Number of events that must agree on the time, so that one wrong time does not expire all jobs."""


def due(job: Job) -> float:
    """Return when a job expires in its present phase, Unix seconds; this is far beyond any scheduler's limits."""
    if job.phase is Phase.RUNNING:
        assert job.shifted_start is not None
        return job.shifted_start + (MAX_WALLTIMES * job.limit_s + WEEK_S if job.limit_s else MAX_LIVE_S)
    if job.end is not None:
        return job.end + MAX_ENDED_S
    return (job.submit if job.start is None else job.start) + MAX_LIVE_S


class Expiry:
    """Tracks when live jobs of a site expire. O(log live jobs) for a job that enters, starts, or is altered.

    >>> state = SiteState()
    >>> expiry = Expiry(state)
    >>> job = Job(id="1", attempt=0, submit=0.0, start=0.0, walltime=60.0, phase=Phase.RUNNING)
    >>> expiry.watch(job, state.enter(job))
    >>> for _ in range(MIN_AGREEING_EVENTS):
    ...     expiry.tick(30 * DAY_S)
    >>> [job.id for job in expiry.overdue()]
    ['1']

    Args:
        state: the live jobs of the site.
        times: the times of the latest events, Unix seconds.
    """

    def __init__(self, state: SiteState, times: Iterable[float] = ()) -> None:
        self.times: deque[float] = deque(times, MIN_AGREEING_EVENTS)
        self._state = state
        self._timers = Timers[tuple[float, JobKey]](self._is_valid)

    def _is_valid(self, entry: tuple[float, JobKey]) -> bool:
        job = self._state.jobs.get(entry[1])
        return job is not None and due(job) == entry[0]

    def tick(self, time: float) -> None:
        """Record the time of an event."""
        self.times.append(time)

    def watch(self, job: Job, key: JobKey) -> None:
        """Track a job that has entered, started, or been altered."""
        self._timers.add((due(job), key))

    def overdue(self) -> list[Job]:
        """Return the expired jobs, the longest overdue first, and track them no longer."""
        if len(self.times) < MIN_AGREEING_EVENTS:
            return []
        end = (nextafter(min(self.times), inf),)
        expired: dict[JobKey, Job] = {}
        while (entry := self._timers.next_before(end)) is not None:
            expired[entry[1]] = self._state.jobs[entry[1]]
            self._timers.pop()
        return list(expired.values())
