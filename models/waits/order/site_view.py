"""Snapshot of a site: its live jobs as columns, and the usage of their users and accounts."""

from typing import NamedTuple

import numpy as np

from models.arrays import Floats, Ints, Records, Singles
from models.kernels import njit
from models.method import SiteContext
from models.site.job import Job
from models.site.table import QUEUED, RUNNING
from models.waits.order.node_groups import NodeGroups, see_rooms, with_queued
from models.waits.order.order_features import DecayedUsage, QueuedJobs, RunningJobs, accrue
from models.waits.order.pair_preference import Preference
from models.waits.order.placement import nodes_of
from models.waits.order.usage import Usage, used_by
from models.waits.order.withdrawals import Withdrawals, leaves

MIN_REMAINING_S = 1.0
"""Minimum remaining run time of a job: until its end event it is running."""


class SiteView(NamedTuple):
    """Snapshot of the site. `rows` are those of the queued jobs in the table.

    Of a deep queue some jobs represent others too: `stands_for` is the number of each, and `whole` is set if the rows
    are the whole queue. `tasks` is the number of tasks that are still to start, more than 1 for an array. `rooms` are
    those of a site's area; None for a site without a topology.

    Codes are those of the table plus 1: 0 is no user, and the last is reserved for a user without live jobs.
    """

    now: float
    cpus: int
    rows: Ints
    queued: QueuedJobs
    running: RunningJobs
    people: DecayedUsage
    rooms: NodeGroups | None
    stands_for: Floats
    whole: bool
    tasks: Ints

    @property
    def free(self) -> int:
        """CPUs that are free."""
        return max(self.cpus - int(self.running.cpus.sum()), 0)


class UsageTotals(NamedTuple):
    """Usage of users and accounts, and the withdrawals of jobs."""

    users: Usage
    accounts: Usage
    withdrawals: Withdrawals


class Columns(NamedTuple):
    """Input of the kernels: a site with `cpus` CPUs at a moment (Unix seconds).

    Attributes:
        table: the live jobs.
        seen: the rows that are considered; each represents `stands_for` jobs.
        places: the places of queues' weights, by the table's code plus 1.
        users, accounts: slots in the tables of usage `by_users` and `by_accounts`, by the same codes.
        leavers: slots of users in the table of withdrawals.
    """

    now: float
    cpus: int
    table: Records
    seen: Ints
    stands_for: Floats
    places: Ints
    users: Ints
    by_users: Floats
    accounts: Ints
    by_accounts: Floats
    leavers: Ints
    by_leavers: Singles
    withdrawn: Floats

    @classmethod
    def of(cls, context: SiteContext, now: float, sums: UsageTotals, preference: Preference) -> "Columns":
        """Return the columns of a site as it is."""
        table, seen, (users, accounts, withdrawals) = context.state.table, context.state.table.visible_rows(), sums
        return cls(
            float(now),
            context.cpus,
            table.records,
            seen.rows,
            seen.stands_for,
            preference.places.of(table, "queue"),
            users.slots.of(table, "user"),
            users.table,
            accounts.slots.of(table, "account"),
            accounts.table,
            withdrawals.slots.of(table, "user"),
            withdrawals.users,
            withdrawals.seen,
        )


def view_of(
    context: SiteContext, now: float, sums: UsageTotals, preference: Preference, by_node: bool, as_queued: int = -1
) -> SiteView:
    """Take a snapshot of a site, O(live jobs) for those in `seen` (`models.site.seen`).

    Args:
        by_node: whether to use single nodes, where a site reports few enough.
        as_queued: the row of a running job to treat as if it still queued; -1 for none.
    """
    table, seen = context.state.table, context.state.table.visible_rows()
    columns = Columns.of(context, now, sums, preference)
    rows, stands_for, tasks, on, queued, running, people = seen_by(columns, as_queued)
    rooms = None
    if context.layout is not None:
        nodes = nodes_of(context.layout, table) if by_node else None
        rooms = see_rooms(context.layout, nodes, table, on, rows, running, queued, now)
    return SiteView(now, context.cpus, rows, queued, running, people, rooms, stands_for, seen.whole, tasks)


@njit(cache=True, nogil=True)
def seen_by(columns: Columns, as_queued: int) -> tuple[Ints, Floats, Ints, Ints, QueuedJobs, RunningJobs, DecayedUsage]:
    """Collect the queued and the running jobs as columns, with usage; O(rows).

    Returns:
        The rows of the queued jobs, the number that each represents and its tasks, the rows of the running jobs, both
        as columns, and the users' and accounts' usage and the resources that they hold.
    """
    now, table, seen, places = columns.now, columns.table, columns.seen, columns.places
    waits, on = np.empty(len(seen), np.int64), np.empty(len(seen), np.int64)
    many, tasks, waiting, running = np.empty(len(seen)), np.empty(len(seen), np.int64), 0, 0
    phase, ready, wanted = table["phase"], table["ready"], table["cpus"]
    for number in range(len(seen)):
        row = seen[number]
        if row == as_queued or (phase[row] == QUEUED and ready[row] <= now):
            if wanted[row] <= columns.cpus:
                waits[waiting], many[waiting], tasks[waiting] = row, columns.stands_for[number], table["tasks"][row]
                waiting += 1
        elif phase[row] == RUNNING:
            on[running] = row
            running += 1
    rows, many, tasks = waits[:waiting].copy(), many[:waiting].copy(), tasks[:waiting].copy()
    on = on[:running].copy()
    elapsed_s = np.empty(running)
    held_by = _running(table, on, elapsed_s, now, places)
    used = used_by(columns.users, columns.by_users, now)
    used_by_accounts = used_by(columns.accounts, columns.by_accounts, now)
    accrue(used, held_by.cpus, held_by.user, elapsed_s)
    accrue(used_by_accounts, held_by.cpus, held_by.account, elapsed_s)
    held, runs = np.zeros(len(used), np.int64), np.zeros(len(used), np.int64)
    for job in range(running):
        held[held_by.user[job]] += held_by.cpus[job]
        runs[held_by.user[job]] += 1
    people = DecayedUsage(used, used_by_accounts, held, runs)
    queued = _queued(table, rows, now, places)
    leavers = columns.by_leavers[columns.leavers]
    queued.stays_s[:] = leaves(queued.age_s, queued.user, many * tasks, columns.withdrawn, leavers)
    return rows, many, tasks, on, queued, held_by, people


@njit(cache=True, nogil=True)
def _queued(table: Records, rows: Ints, now: float, places: Ints) -> QueuedJobs:
    size = len(rows)
    cpus, user, account = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    run_s, planned_s, age_s, queue = np.empty(size), np.empty(size), np.empty(size), np.empty(size, np.int64)
    priority, barred = np.empty(size), np.empty(size, np.bool_)
    for place in range(size):
        row = rows[place]
        walltime = table[row].walltime
        cpus[place], run_s[place] = table[row].cpus, table[row].run_s
        planned_s[place] = walltime if walltime > 0.0 else run_s[place]
        age_s[place] = now - table[row].ready
        user[place], account[place] = table[row].user + 1, table[row].account + 1
        queue[place], priority[place] = places[table[row].queue + 1], table[row].priority
        barred[place] = table[row].barred
    return QueuedJobs(cpus, run_s, planned_s, age_s, user, account, queue, priority, barred, np.full(size, np.inf))


@njit(cache=True, nogil=True)
def _running(table: Records, on: Ints, elapsed_s: Floats, now: float, places: Ints) -> RunningJobs:
    size = len(on)
    cpus, user, account = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    queue = np.empty(size, np.int64)
    remaining_s, planned_s, lasts_s = np.empty(size), np.empty(size), np.empty(size)
    for place in range(size):
        row = on[place]
        walltime, run_s = table[row].walltime, table[row].run_s
        elapsed_s[place] = max(now - table[row].start, 0.0)
        if run_s <= elapsed_s[place]:
            run_s = min(2 * elapsed_s[place], walltime if walltime > 0.0 else np.inf)
        remaining_s[place] = max(run_s - elapsed_s[place], MIN_REMAINING_S)
        whole_s = walltime if walltime > 0.0 else run_s
        planned_s[place], lasts_s[place] = max(whole_s - elapsed_s[place], remaining_s[place]), whole_s
        cpus[place], queue[place] = table[row].cpus, places[table[row].queue + 1]
        user[place], account[place] = table[row].user + 1, table[row].account + 1
    return RunningJobs(cpus, remaining_s, planned_s, user, account, queue, lasts_s)


class CandidateJob(NamedTuple):
    """A job that is last in the queue, with the columns of `Queued`.

    The codes of its user and account are those of the table plus 1. A user or account without another live job has the
    last code. Their slots are rows in the tables of usage.
    """

    cpus: int
    run_s: float
    planned_s: float
    age_s: float
    user: int
    user_slot: int
    account: int
    account_slot: int
    queue: int
    priority: float
    looks: int

    @classmethod
    def of(
        cls, job: Job, context: SiteContext, now: float, sums: UsageTotals, preference: Preference
    ) -> "CandidateJob":
        """Return the columns of a job that is submitted `now` (Unix seconds) or is hypothetical."""
        table, run_s, priority = context.state.table, job.expected_run_s, job.extras.priority
        user, account = table.code("user", job.user) + 1, table.code("account", job.account) + 1
        return cls(
            job.cpus,
            float(run_s),
            float(job.walltime or run_s),
            float(now - job.ready),
            user or (0 if job.user is None else len(table.names("user")) + 1),
            sums.users.slots.slot_of(job.user),
            account or (0 if job.account is None else len(table.names("account")) + 1),
            sums.accounts.slots.slot_of(job.account),
            preference.places.slot_of(job.queue),
            np.nan if priority is None else priority,
            refusal_weight(job),
        )


MOST_LOOKS = 1000
"""Maximum weight of one array, the number of tasks that it may have in Slurm's default configuration: one event must
not outweigh all others."""


def refusal_weight(job: Job) -> int:
    """Return the weight of a refusal at a job's submission: the number of its tasks.

    An array counts as often as if its tasks were submitted one by one, since each of their starts counts too.
    """
    return min(job.tasks_remaining, MOST_LOOKS)


@njit(cache=True, nogil=True)
def with_new(
    queued: QueuedJobs, people: DecayedUsage, new: CandidateJob, by_users: Floats, by_accounts: Floats, now: float
) -> tuple[QueuedJobs, DecayedUsage]:
    """Return the queue with one more job, the last, and the usage with its user and account; O(queued)."""
    users, accounts, size = people.users, people.accounts, len(queued.cpus)
    if new.user == len(users) - 1:
        users = users.copy()
        users[new.user] = used_by(np.array([new.user_slot]), by_users, now)[0]
    if new.account == len(accounts) - 1:
        accounts = accounts.copy()
        accounts[new.account] = used_by(np.array([new.account_slot]), by_accounts, now)[0]
    whole, real = np.empty((4, size + 1), np.int64), np.empty((5, size + 1))
    barred = np.zeros(size + 1, np.bool_)
    barred[:size] = queued.barred
    cpus, user, account, queue = whole[0], whole[1], whole[2], whole[3]
    run_s, planned_s, age_s, priority, stays_s = real[0], real[1], real[2], real[3], real[4]
    cpus[:size], cpus[size] = queued.cpus, new.cpus
    run_s[:size], run_s[size] = queued.run_s, new.run_s
    planned_s[:size], planned_s[size] = queued.planned_s, new.planned_s
    age_s[:size], age_s[size] = queued.age_s, new.age_s
    user[:size], user[size] = queued.user, new.user
    account[:size], account[size] = queued.account, new.account
    queue[:size], queue[size] = queued.queue, new.queue
    priority[:size], priority[size] = queued.priority, new.priority
    stays_s[:size], stays_s[size] = queued.stays_s, np.inf
    every = QueuedJobs(cpus, run_s, planned_s, age_s, user, account, queue, priority, barred, stays_s)
    return every, DecayedUsage(users, accounts, people.held, people.runs)


def with_job(sight: SiteView, job: Job, context: SiteContext, sums: UsageTotals, preference: Preference) -> SiteView:
    """Return the site with one more queued job, the last; O(queued)."""
    new, tables = CandidateJob.of(job, context, sight.now, sums, preference), (sums.users.table, sums.accounts.table)
    queued, people = with_new(sight.queued, sight.people, new, *tables, float(sight.now))
    rooms = None if sight.rooms is None else with_queued(sight.rooms, job, queued)
    stands_for, tasks = np.append(sight.stands_for, 1.0), np.append(sight.tasks, job.tasks_remaining)
    return sight._replace(queued=queued, people=people, rooms=rooms, stands_for=stands_for, tasks=tasks)
