"""Detect blocked jobs: their predicted start has passed, although there is room for them.

The events do not contain the cause: a limit that the site does not report, or a priority. While such a job is pending,
answers predict no start for it. Nor do they predict a start within minutes for other jobs of the same user in the same
queue. An overdue job without room is not blocked, but answers do not predict that it starts immediately.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from models.durations import AT_ONCE_S, duration
from models.engine.asking.pending import plainly
from models.engine.declared import obstacle
from models.engine.engine import Engine
from models.engine.outgoing import bounds_of
from models.method import SiteContext
from models.site.job import Job, Phase
from models.site.state import SITE
from models.site.table import QUEUED
from models.site.topology import request_of
from models.waits.order.placement import Vacancy

OVERDUE_S = 600.0  # a job is overdue at the earliest this many seconds after its predicted start
PROMISE_S = 600.0  # starts within this many seconds need a check for blocked jobs

UNKNOWN = "held back by a limit or a priority"
"""Why a job does not start although there is room, if its scheduler gives no reason."""

OVERDUE = "it should have started long ago, and the resources that it requests are not free yet"
"""Why no start is predicted for an overdue job without room, whose estimate would always be now."""

_Group = tuple[str | None, str | None, str | None]


class _BlockedGroup(NamedTuple):
    """The blocked jobs of a group: their approximate number, the time since when, and the first reason."""

    jobs: float
    since: float
    reason: str


class BlockedBy:
    """The blocked jobs of a site at `now` (Unix seconds), among the visible jobs (`models.site.seen`).

    O(live jobs), most of it for overdue jobs that are not larger than the free CPUs.
    """

    def __init__(self, engine: Engine, now: float) -> None:
        self._engine, self._now = engine, now
        self._vacant: dict[int, Vacancy] = {}
        self._groups: dict[_Group, _BlockedGroup] = {}
        state = engine.context.state
        for job, jobs in _overdue(engine.context, now):
            since = self._overdue_since(job)
            if since is not None and self._has_room(job):
                first = self._groups.get(group_of(job), _BlockedGroup(0.0, since, pending_reason(job)))
                self._groups[group_of(job)] = _BlockedGroup(first.jobs + jobs, min(first.since, since), first.reason)
        if self._groups:
            for job in state.in_phase(Phase.RUNNING):
                group = group_of(job)
                if group in self._groups and (job.start or 0.0) > self._groups[group].since:
                    del self._groups[group]  # one of them has started since, so they may no longer be blocked

    def of(self, job: Job, expected_start: float | None) -> str | None:
        """Explain why no start is predicted for a pending job; None if one may be.

        Args:
            expected_start: the expected start without this check, Unix seconds.
        """
        blocked = obstacle(job, self._engine.context, self._engine.settings.max_down_fraction)
        if blocked is not None:
            return blocked
        if self._overdue_since(job) is not None:
            if self._has_room(job):
                return pending_reason(job)
            if expected_start is not None and expected_start <= self._now + AT_ONCE_S:
                return OVERDUE
        if expected_start is None or expected_start > self._now + PROMISE_S:
            return None
        return self.blocked_reason(job)

    def _overdue_since(self, job: Job) -> float | None:
        """Return since when the predicted start of a job is overdue; None if it is not."""
        since = broken_at(self._engine, job)
        return since if since is not None and since <= self._now else None

    def _has_room(self, job: Job) -> bool:
        """Return whether the requested resources of a job are free in its area and no reservation is ahead of it."""
        seen, there = self._engine.context.of(job)
        free = there.cpus - there.state.totals(SITE, Phase.RUNNING).cpus
        if free < seen.cpus or there.earliest(seen, self._now) > self._now:
            return False
        if there.layout is None:
            return True
        number = there.layout.area.number
        if number not in self._vacant:
            self._vacant[number] = Vacancy(there.layout, there.state.table, self._now)
        return self._vacant[number].has_room(request_of(seen))

    def blocked_reason(self, job: Job) -> str | None:
        """Explain why no start within minutes is predicted for a job: others of its user in its queue are blocked."""
        found = self._groups.get(group_of(job))
        if found is None or (job.user is None and job.account is None):
            return None
        jobs = "1 other job" if found.jobs == 1 else f"{found.jobs:.0f} other jobs"
        whose = f"of {job.user}" if job.user is not None else f"of the account {job.account}"
        where = f" in {job.queue}" if job.queue is not None else ""
        since = duration(max(self._now - found.since, 0.0))
        are = "is" if found.jobs == 1 else "are"
        return f"{jobs} {whose}{where} {are} {UNKNOWN}, for {since}, although there is room"


def group_of(job: Job) -> _Group:
    """Return the key of jobs that the same limit would block: user, account and queue."""
    return job.user, job.account, job.queue


def pending_reason(job: Job) -> str:
    """Return why a job is blocked: the scheduler's pending reason, if known."""
    reason = "" if job.extras.pending_reason is None else plainly(job.extras.pending_reason)
    return reason or UNKNOWN


def broken_at(engine: Engine, job: Job) -> float | None:
    """Return the time after which the predicted start of a job is overdue; None if none was predicted.

    It is the greatest of the bounds at submission, and at least ten minutes after the predicted start.
    """
    method = engine.settings.method
    first = job.estimates.get(method)
    if first is None or first.wait_s is None or job.depends or job.unscored:
        return None
    bounds: Mapping[str, float] = bounds_of(job, method, engine.settings.bounds) or {}
    return job.ready + max(first.wait_s + OVERDUE_S, *bounds.values(), OVERDUE_S)


def _overdue(context: SiteContext, now: float) -> Iterator[tuple[Job, float]]:
    """Yield pending jobs that may be blocked, each with the number of jobs that it represents.

    They have waited long enough, and enough CPUs are free.
    """
    for view in context.views():
        table, free = view.state.table, view.cpus - view.state.totals(SITE, Phase.RUNNING).cpus
        columns, (rows, stands_for, _) = table.columns(), table.visible_rows()
        fits = (columns.phase[rows] == QUEUED) & (columns.cpus[rows] <= free)
        fits &= columns.ready[rows] + OVERDUE_S <= now
        for row, jobs in zip(rows[fits].tolist(), stands_for[fits].tolist(), strict=True):
            key = table.keys[row]
            if key is not None:
                yield context.state.jobs[key], jobs
