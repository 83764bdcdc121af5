"""Select the pending jobs to estimate again after an event, and decide whether to publish the new estimate."""

from collections.abc import Callable
from itertools import islice
from math import inf, nextafter

import msgspec

from models.durations import DAY_S
from models.records import JobKey
from models.site.job import Estimate, Job, LaterEstimate, Phase
from models.site.state import SITE, SiteState
from models.timers import Timers

FIRST_S = 180.0
"""A job is estimated again after it has waited this long."""

REMAINING_SHARE = 0.4
"""The next estimate is due after this share of what is left until the expected start, within the limits below."""

MIN_INTERVAL_S, MIN_INTERVAL_SHARE = 300.0, 0.4
MAX_INTERVAL_S, MAX_INTERVAL_SHARE = 600.0, 0.8
"""The least and the greatest time until the next estimate: seconds, or a share of the age, whichever is longer."""

EARLY_SHARE = 0.5
"""When any job is due, those after this share of their interval are estimated too. An estimate of one job costs six
times as much as one more job in it."""

BOUND_SHARE, MIN_UNTIL_BOUND_S = 0.8, 120.0
"""The next estimate is due after at most this share of the time until the upper bound, or after these seconds."""

SECONDS_PER_ESTIMATE, MAX_ESTIMATES = 2.0, 64
"""Rate limit: one estimate per this many seconds of the site's time, and the maximum burst for news that affects many
jobs. It is based on time and not on events, so that a duplicate event changes nothing."""

MAX_NEWS_JOBS = 512
"""Queued jobs that are due immediately after news about the whole queue: the first ones."""

LARGE_SHARE = 0.2
"""A job that leaves the queue without a start is news for the others if it has this share of the queued work."""

MIN_MOVE_S, MIN_MOVE_RATIO = 300.0, 0.25
"""An estimate or a bound is published when it moved by both: seconds, and a share of the time until it."""

MAX_SILENCE_S = DAY_S
"""Maximum time between published records of a pending job."""

UPPER_BOUND = "0.9"


class EstimateBudget(msgspec.Struct, array_like=True, frozen=True):
    """The remaining estimates at the time `at` (Unix seconds). It is stored."""

    remaining: float = 0.0
    at: float = 0.0

    def until(self, now: float) -> float:
        """Return how many estimates are allowed `now`."""
        return min(self.remaining + max(now - self.at, 0.0) / SECONDS_PER_ESTIMATE, float(MAX_ESTIMATES))


class Reestimates:
    """The pending jobs by the due time of their next estimate (`Job.due`). O(log queued) per estimate.

    The due times are stored in the jobs, so a restored site continues with the same ones. A timer is valid while its
    job is pending and has that due time.

    Args:
        state: the live jobs of the site.
        active: whether the site's method estimates pending jobs again; otherwise there are no timers.
        touch: marks a job as changed, so that it is stored.
    """

    def __init__(self, state: SiteState, active: bool, touch: Callable[[Job], None]) -> None:
        self.budget = EstimateBudget()
        self._state, self._active, self._touch = state, active, touch
        self._timers = Timers[tuple[float, JobKey]](self._is_due)
        self._early = Timers[tuple[float, JobKey]](self._is_early)

    def _is_due(self, entry: tuple[float, JobKey]) -> bool:
        job = self._queued(entry[1])
        return job is not None and job.due == entry[0]

    def _is_early(self, entry: tuple[float, JobKey]) -> bool:
        job = self._queued(entry[1])
        return job is not None and job.due > job.early == entry[0]

    def _queued(self, key: JobKey) -> Job | None:
        job = self._state.jobs.get(key)
        return job if job is not None and job.phase is Phase.QUEUED else None

    def watch(self, job: Job, at: float | None = None, early: float | None = None) -> None:
        """Schedule the next estimate of a job, by default after its first minutes in the queue.

        Args:
            job: a pending job.
            at: when it is due, Unix seconds.
            early: from when on it may be estimated together with a job that is due, Unix seconds; by default never.
        """
        if not self._active:
            return
        key, ready = job.key, job.ready
        job.due = due = ready + FIRST_S if at is None else max(at, ready)
        job.early = due if early is None else early
        self._touch(job)
        self._timers.add((due, key))
        if job.early < due:
            self._early.add((job.early, key))

    def restore(self, budget: EstimateBudget) -> None:
        """Continue with the live jobs that were restored. O(live jobs)."""
        self.budget = budget
        queued = [job for job in self._state.in_phase(Phase.QUEUED) if job.due] if self._active else []
        self._timers.restore((job.due, job.key) for job in queued)
        self._early.restore((job.early, job.key) for job in queued if job.early < job.due)

    def news(self, now: float) -> None:
        """Estimate the first pending jobs again after a change that affects all of them."""
        for job in [*islice(self._state.in_phase(Phase.QUEUED), MAX_NEWS_JOBS)]:
            if job.due > now:
                self.watch(job, now)

    def dequeued_job(self, job: Job, now: float) -> None:
        """Estimate the pending jobs again after a large job left the queue without a start."""
        rest = self._state.totals(SITE, Phase.QUEUED)
        if job.cpus * job.planned_run_s >= LARGE_SHARE * rest.work / 1e6:
            self.news(now)

    def any_due(self, now: float) -> bool:
        """Return whether a job is due at `now` (Unix seconds); the budget may still defer it."""
        return self._timers.next_before((nextafter(now, inf),)) is not None

    def take(self, now: float) -> list[Job]:
        """Return the jobs that are due at `now` (Unix seconds), the longest overdue first, then the nearly due ones.

        The caller schedules the next estimate of each with `plan` or `watch`.
        """
        found = list[Job]()
        if not self.any_due(now):
            return found
        remaining, end = self.budget.until(now), (nextafter(now, inf),)
        for timers in (self._timers, self._early):
            while remaining >= len(found) + 1 and timers.next_before(end) is not None:
                job = self._state.jobs[timers.pop()[1]]
                job.due = 0.0  # there may be a second timer of this time
                found.append(job)
        if found:
            self.budget = EstimateBudget(remaining - len(found), max(self.budget.at, now))
        return found

    def plan(self, job: Job, estimate: Estimate | None, now: float) -> None:
        """Schedule the next estimate of a job for when it may differ from the current one."""
        age_s = max(now - job.ready, 0.0)
        least_s, most_s = (
            max(MIN_INTERVAL_S, MIN_INTERVAL_SHARE * age_s),
            max(MAX_INTERVAL_S, MAX_INTERVAL_SHARE * age_s),
        )
        wait_s = None if estimate is None else estimate.wait_s
        interval_s = most_s if wait_s is None else min(max(REMAINING_SHARE * (wait_s - age_s), least_s), most_s)
        bounds = (estimate.bounds if estimate else None) or {}
        if UPPER_BOUND in bounds:
            interval_s = min(interval_s, max(BOUND_SHARE * (bounds[UPPER_BOUND] - age_s), MIN_UNTIL_BOUND_S))
        self.watch(job, now + interval_s, now + EARLY_SHARE * interval_s)


def worth_publishing(job: Job, method: str, estimate: Estimate | None, now: float) -> LaterEstimate | None:
    """Return the new estimate of a job's whole wait if it is worth publishing, else None.

    It is worth publishing if the expected start or the upper bound moved enough since the last published estimate. It
    is also worth publishing if that bound has passed, or after a day without a record.

    >>> job = Job("1", 0, 0.0, estimates={"m": Estimate(3600.0, "")})
    >>> worth_publishing(job, "m", Estimate(3700.0, ""), 600.0) is None
    True
    >>> worth_publishing(job, "m", Estimate(7200.0, ""), 600.0).estimate.wait_s
    7200.0
    """
    if estimate is None or estimate.wait_s is None:
        return None
    last, made_at = job.estimates.get(method), job.ready
    if job.later is not None:
        last, made_at = job.later.estimate, job.later.made_at
    if last is not None and last.wait_s is not None and now - made_at < MAX_SILENCE_S:
        age_s, upper_s = now - job.ready, (last.bounds or {}).get(UPPER_BOUND)
        passed = upper_s is not None and upper_s <= age_s
        new_upper_s = (estimate.bounds or {}).get(UPPER_BOUND)
        if not passed and not _moved(last.wait_s, estimate.wait_s, age_s) and not _moved(upper_s, new_upper_s, age_s):
            return None
    return LaterEstimate.after(job.later, now, estimate)


def _moved(before_s: float | None, now_s: float | None, age_s: float) -> bool:
    """Return whether an estimate of the whole wait moved by much of what is left until it, of both the later one."""
    if before_s is None or now_s is None:
        return before_s is not now_s
    moved_s, remaining_s = abs(now_s - before_s), max(now_s, before_s) - age_s
    return moved_s >= MIN_MOVE_S and moved_s >= MIN_MOVE_RATIO * remaining_s
