"""Resource state of one site: pending and running jobs, and the sums that the features need.

Sums are integers (microseconds, CPUs), so they are exact after any number of events: adding and subtracting does not
round. An event costs O(1), independent of the length of the queue.
"""

from collections.abc import Hashable, Iterator
from math import nan
from typing import Protocol

import msgspec
import numpy as np

from models.records import JobKey
from models.site.job import STARTED, Job, Phase
from models.site.pending_reasons import is_own
from models.site.table import DEAD, HELD, QUEUED, RUNNING, LiveTable, Names, Values

MICRO = 1_000_000


def micros(seconds: float) -> int:
    """Convert seconds to whole microseconds, the unit of every sum here."""
    return round(seconds * MICRO)


class Totals(msgspec.Struct, gc=False):
    """Exact sums over some jobs.

    Attributes:
        count: number of jobs, with an array row counted as one.
        cpus: their CPUs.
        planned_run_us: their planned run times in microseconds.
        work: the sum of CPUs times planned run time.
        since: the sum of the times when they entered, in microseconds.
        tasks: number of jobs, with each array task counted.
    """

    count: int = 0
    cpus: int = 0
    planned_run_us: int = 0
    work: int = 0
    since: int = 0
    tasks: int = 0

    def add(self, cpus: int, planned_run_us: int, since: int, sign: int = 1, tasks: int = 1) -> None:
        """Add (`sign` 1) or remove (-1) a job; `planned_run_us` and `since` in microseconds."""
        self.count += sign
        self.cpus += sign * cpus
        self.planned_run_us += sign * planned_run_us
        self.work += sign * cpus * planned_run_us
        self.since += sign * since
        self.tasks += sign * tasks

    def elapsed_s(self, now: float) -> float:
        """Return the sum of the times from entry to `now`, seconds; never negative."""
        return max(self.count * micros(now) - self.since, 0) / MICRO


Scope = tuple[str, str]  # scope of totals: ("user", name), ("group", name), ("queue", name), or the whole site
SITE: Scope = ("site", "")


class Follower(Protocol):
    """Interface of an object that is updated with the live jobs of a site."""

    def enter(self, job: Job) -> None:
        """Add a job."""

    def leave(self, job: Job) -> None:
        """Remove a job."""

    def change(self, job: Job) -> None:
        """Update a job whose phase or request has changed."""


class SiteState:
    """The live jobs of one site and their totals by scope and phase.

    >>> state = SiteState()
    >>> _ = state.enter(Job(id="1", attempt=0, submit=10.0, user="ada", cpus=4, planned_run_s=60.0))
    >>> state.totals(SITE, Phase.QUEUED)
    Totals(count=1, cpus=4, planned_run_us=60000000, work=240000000, since=10000000, tasks=1)
    """

    def __init__(self) -> None:
        self.jobs: dict[JobKey, Job] = {}
        self.table = LiveTable()  # the same jobs as columns, in the same order
        self.follower: Follower | None = None  # updated with the jobs here
        self._totals: dict[tuple[Scope, Phase], Totals] = {}
        self._later_attempts: dict[str, set[int]] = {}  # attempts other than 0, by job id
        self._tasks: dict[str, int] = {}  # number of running tasks of each array

    def __len__(self) -> int:
        return len(self.jobs)

    def totals(self, scope: Scope, phase: Phase) -> Totals:
        """Return the totals of a scope's jobs in a phase; zeros without jobs."""
        return self._totals.get((scope, phase)) or Totals()

    def in_phase(self, phase: Phase) -> Iterator[Job]:
        """Return the jobs in a phase, in the order of their arrival. O(live jobs)."""
        code, keys = _PHASE_CODES.get(phase), self.table.keys
        if code is None:
            return (job for job in self.jobs.values() if job.phase is phase)
        rows = np.flatnonzero(self.table.columns().phase == code)
        return (self.jobs[key] for key in map(keys.__getitem__, rows) if key is not None)

    def attempts_of(self, name: str) -> list[Job]:
        """Return the live jobs with this id, by attempt; there is rarely more than one."""
        keys = ((name, attempt) for attempt in (0, *sorted(self._later_attempts.get(name, ()))))
        return [self.jobs[key] for key in keys if key in self.jobs]

    def running_tasks(self, array: str) -> int:
        """Return the number of running tasks of an array."""
        return self._tasks.get(array, 0)

    def latest_of(self, user: str, most: int) -> list[Job]:
        """Return the last `most` submitted live jobs of a user, in that order. O(live jobs)."""
        columns, keys = self.table.columns(), self.table.keys
        rows = np.flatnonzero((columns.phase != DEAD) & (columns.user == self.table.code("user", user)))
        suspended = self.totals(("user", user), Phase.SUSPENDED).count
        found = [job for job in self.in_phase(Phase.SUSPENDED) if job.user == user] if suspended else []
        for row in rows[np.argsort(columns.submit[rows], kind="stable")][-most:].tolist():
            key = keys[row]
            assert key is not None
            found.append(self.jobs[key])
        return sorted(found, key=lambda job: job.submit)[-most:]

    def first_queued(self, most: int) -> list[Job]:
        """Return the first pending jobs among the visible ones (`models.site.seen`)."""
        rows, keys = self.table.visible_rows().rows, self.table.keys
        queued = rows[self.table.columns().phase[rows] == QUEUED][:most].tolist()
        return [self.jobs[key] for key in map(keys.__getitem__, queued) if key is not None]

    def enter(self, job: Job, request: Hashable = None, before: JobKey | None = None) -> JobKey:
        """Add a job in its phase and return its key; callers that keep the key should share this object to save memory.

        Args:
            request: the request of the job, where it matters (see `LiveTable`).
            before: the job that is next in the order of arrival, O(live jobs); None: the new one is the last.
        """
        key = job.key
        self.jobs[key] = job
        if job.attempt:
            self._later_attempts.setdefault(job.id, set()).add(job.attempt)
        self._count(job, 1)
        self.table.enter(key, self._values(job), _names(job, request))
        if before is not None:
            for later in self.table.move_last(before):
                self.jobs[later] = self.jobs.pop(later)
        if self.follower is not None:
            self.follower.enter(job)
        return key

    def leave(self, job: Job) -> None:
        """Remove a job."""
        self._count(job, -1)
        self.table.leave(job.key)
        del self.jobs[job.key]
        if job.attempt:
            attempts = self._later_attempts[job.id]
            attempts.discard(job.attempt)
            if not attempts:
                del self._later_attempts[job.id]
        if self.follower is not None:
            self.follower.leave(job)

    def move(self, job: Job, phase: Phase, at: float | None = None) -> None:
        """Change a job's phase; `at` is its start if it starts to run."""
        self._count(job, -1)
        job.phase = phase
        if phase is Phase.RUNNING:
            job.start = at
        self._count(job, 1)
        self.table.change(job.key, self._values(job))
        if self.follower is not None:
            self.follower.change(job)

    def alter(self, job: Job, **changes: object) -> None:
        """Change a job's request and update the totals."""
        self._count(job, -1)
        for name, value in changes.items():
            setattr(job, name, value)
        self._count(job, 1)
        self.table.change(job.key, self._values(job), _names(job))
        if self.follower is not None:
            self.follower.change(job)

    def replace(self, job: Job, request: Hashable = None) -> None:
        """Replace the job with the same key."""
        before = self.jobs[job.key]
        self._count(before, -1)
        self.jobs[job.key] = job
        self._count(job, 1)
        self.table.change(job.key, self._values(job), _names(job, request))

    def _count(self, job: Job, sign: int) -> None:
        phase = job.phase
        since = job.shifted_start if phase in STARTED else job.submit
        assert since is not None
        tasks = job.tasks_remaining
        counted = job.counted_cpus * tasks, micros(job.planned_run_s), micros(since), sign, tasks
        for scope in _scopes(job):
            key = (scope, phase)
            totals = self._totals.get(key)
            if totals is None:
                totals = self._totals[key] = Totals()
            totals.add(*counted)
            if totals.count == 0:
                del self._totals[key]  # so that old names do not accumulate
        if job.extras.array is not None and phase is Phase.RUNNING:
            self._count_task(job.extras.array, sign)

    def _count_task(self, array: str, sign: int) -> None:
        """Count a task of an array that starts or stops running, which may change whether others can start."""
        self._tasks[array] = self._tasks.get(array, 0) + sign
        if not self._tasks[array]:
            del self._tasks[array]
        row = self.jobs.get((array, 0))
        if row is not None and row.phase is Phase.QUEUED and row.extras.array_limit:
            self.table.change(row.key, self._values(row))

    def _values(self, job: Job) -> Values:
        submit, eligible, walltime, phase = job.submit, job.eligible, job.walltime or 0.0, job.phase
        run_s = job.expected_run_s
        cpus, start = job.cpus, 0.0
        if phase is Phase.RUNNING:
            cpus, start = job.counted_cpus, job.shifted_start or 0.0
        ready = submit if eligible is None or eligible < submit else eligible
        code, priority_or_none = _PHASE_CODES.get(phase, DEAD), job.extras.priority
        priority = nan if priority_or_none is None else priority_or_none
        barred = code == QUEUED and self._is_barred(job)
        return (
            cpus,
            submit,
            ready,
            start,
            walltime,
            job.planned_run_s,
            run_s,
            priority,
            code,
            barred,
            job.tasks_remaining,
        )

    def _is_barred(self, job: Job) -> bool:
        """Return whether a pending job waits for something of its own, by its pending reason or its array's limit."""
        reason, most = job.extras.pending_reason, job.extras.array_limit
        if reason is not None and is_own(reason):
            return True
        if job.attempt or not most:  # later attempts of tasks are separate jobs
            return False
        return self.running_tasks(job.id) >= most


_PHASE_CODES = {Phase.QUEUED: QUEUED, Phase.HELD: HELD, Phase.RUNNING: RUNNING}
"""Phases in the table. A job in another phase is neither pending nor has CPUs, so its row is dead."""


def _names(job: Job, request: Hashable = None) -> Names:
    return job.user, job.queue, job.account, request


def _scopes(job: Job) -> list[Scope]:
    scopes = [SITE]
    if job.user is not None:
        scopes.append(("user", job.user))
    if job.group is not None:
        scopes.append(("group", job.group))
    if job.queue is not None:
        scopes.append(("queue", job.queue))
    return scopes
