"""A site as the method sees it at a moment: its live jobs as columns, and what their users and accounts have used."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.method import SiteContext
from models.site.state import UNKNOWN_RUN_S, Job
from models.site.table import QUEUED, RUNNING, Columns
from models.waits.order.features import People, Queued, Running, accrue
from models.waits.order.preference import Preference
from models.waits.order.rooms import Rooms, see_rooms, with_queued
from models.waits.order.usage import HALF_LIVES_S, Usage

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_REMAINING_S = 1.0
"""The least time that a job runs on: until its end event it is running."""


class Sight(NamedTuple):
    """The site at a moment. `rows` are those of the queued jobs in the table.

    `rooms` are those of a site's area; a site without a topology has none.

    Codes are those of the table plus 1: 0 is nobody, and the last is kept for one who has no live job.
    """

    now: float
    cpus: int
    rows: Ints
    queued: Queued
    running: Running
    people: People
    rooms: Rooms | None = None

    @property
    def free(self) -> int:
        """Processors that are free."""
        return max(self.cpus - int(self.running.cpus.sum()), 0)


class Sums(NamedTuple):
    """What users and accounts have used."""

    users: Usage
    accounts: Usage


def look(context: SiteContext, now: float, sums: Sums, preference: Preference, as_queued: int = -1) -> Sight:
    """See a site; O(live jobs), 50 µs and more.

    Parameters:
        as_queued: the row of a running job that is seen as if it still queued; -1 for none.
    """
    table = context.state.table
    columns = table.columns()
    waits = (columns.phase == QUEUED) & (columns.ready <= now)
    runs = columns.phase == RUNNING
    if as_queued >= 0:
        waits[as_queued], runs[as_queued] = True, False
    waits &= columns.cpus <= context.cpus
    rows, on = np.flatnonzero(waits), np.flatnonzero(runs)
    queued = _queued(columns, rows, now, preference.places([*table.names("queue"), None]))
    elapsed_s = np.maximum(now - columns.start[on], 0.0)
    running = _running(columns, on, elapsed_s)
    users, accounts = (
        _used(usage, table.names(kind), now) for usage, kind in zip(sums, ("user", "account"), strict=True)
    )
    people = People(users, accounts, *_held(running, len(users)))
    accrue(people.users, running.cpus, running.user, elapsed_s)
    accrue(people.accounts, running.cpus, running.account, elapsed_s)
    rooms = None
    if context.layout is not None:
        rooms = see_rooms(context.layout, table, on, rows, running, queued, now)
    return Sight(now, context.cpus, rows, queued, running, people, rooms)


def _queued(columns: Columns, rows: Ints, now: float, places: Ints) -> Queued:
    run_s, walltime = columns.run_s[rows], columns.walltime[rows]
    return Queued(
        columns.cpus[rows],
        run_s,
        np.where(walltime > 0.0, walltime, run_s),
        now - columns.ready[rows],
        columns.user[rows].astype(np.int64) + 1,
        columns.account[rows].astype(np.int64) + 1,
        places[columns.queue[rows]],
    )


def _running(columns: Columns, on: Ints, elapsed_s: Floats) -> Running:
    run_s, walltime = columns.run_s[on], columns.walltime[on]
    limit_s = np.where(walltime > 0.0, walltime, np.inf)
    run_s = np.where(run_s > elapsed_s, run_s, np.minimum(2 * elapsed_s, limit_s))
    left_s = np.maximum(run_s - elapsed_s, MIN_REMAINING_S)
    planned_s = np.maximum(np.where(walltime > 0.0, walltime, run_s) - elapsed_s, left_s)
    user, account = columns.user[on].astype(np.int64) + 1, columns.account[on].astype(np.int64) + 1
    return Running(columns.cpus[on], left_s, planned_s, user, account)


def _used(usage: Usage, names: Sequence[str], now: float) -> Floats:
    used = np.zeros((len(names) + 2, len(HALF_LIVES_S)))
    used[1:-1] = usage.of(names, now)
    return used


def _held(running: Running, users: int) -> tuple[Ints, Ints]:
    held = np.bincount(running.user, running.cpus, users).astype(np.int64)
    return held, np.bincount(running.user, minlength=users)


def with_job(sight: Sight, job: Job, context: SiteContext, sums: Sums, preference: Preference) -> Sight:
    """The site with one more queued job, which came last; O(queued)."""
    table, people, now = context.state.table, sight.people, sight.now
    user, account = table.code("user", job.user) + 1, table.code("account", job.account) + 1
    if user == 0 and job.user is not None:
        user = len(people.users) - 1
        people = people._replace(users=people.users.copy())
        people.users[user] = sums.users.of([job.user], now)[0]
    if account == 0 and job.account is not None:
        account = len(people.accounts) - 1
        people = people._replace(accounts=people.accounts.copy())
        people.accounts[account] = sums.accounts.of([job.account], now)[0]
    run_s = (job.walltime or UNKNOWN_RUN_S) if job.run_s is None else job.run_s
    run_s = min(run_s, job.walltime) if job.walltime else run_s
    row = (job.cpus, run_s, job.walltime or run_s, now - job.ready, user, account, preference.places([job.queue])[0])
    queued = Queued(*(np.append(column, value) for column, value in zip(sight.queued, row, strict=True)))
    rooms = None if sight.rooms is None else with_queued(sight.rooms, job, queued)
    return sight._replace(queued=queued, people=people, rooms=rooms)
