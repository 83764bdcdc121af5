"""State of the site for a job: sums over the queued and the running jobs, in one pass over their columns."""

from typing import NamedTuple

import numpy as np

from models.arrays import Floats, Ints, Records
from models.kernels import njit
from models.site.job import Job
from models.site.table import HELD, NO_NAME, QUEUED, RUNNING, LiveTable

GROUPS = ("all", "smaller", "shorter", "less_work", "same_queue", "same_user", "similar", "own_similar")
"""Groups of queued jobs that are summed: those with at most the job's CPUs, planned run time, or work; those of its
queue and of its user; those within a factor of two of its CPUs and of its planned run time, and the user's own among
these."""

SUMS = ("jobs", "cpus", "work", "oldest")
"""Sums of each group: the jobs, their CPUs, their work, and the age of the oldest in seconds."""

HORIZONS_S = (600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0)
"""Times within which running jobs are due to end."""

_RUNNING = (
    *(f"freed_{by}_{round(s / 60)}min" for by in ("expected", "planned") for s in HORIZONS_S),
    "running_jobs",
    "left_expected",
    "left_planned",
    "own_running_jobs",
    "own_running_cpus",
    "queue_running_jobs",
    "queue_running_cpus",
    "queue_left_expected",
    "free",
    "fits_in_expected",
    "fits_in_planned",
    "head_cpus",
    "head_planned",
    "head_in_expected",
    "head_in_planned",
    "spare_expected",
    "spare_planned",
    "drain_all",
    "drain_less_work",
    "room",
    "head_slack_expected",
    "head_slack_planned",
    "backfills",
    "own_latest",
    "held_jobs",
    "held_cpus",
)

NAMES = (*(f"queued_{group}_{what}" for group in GROUPS for what in SUMS), *_RUNNING)
"""The features in their order: work in CPU-seconds, ages and remaining times in seconds.

`fits_in` is the time until the CPUs that the job requests are free if no other job starts, by the expected ends of the
running jobs and by the planned ones. `head` is the job that has queued for longest: `head_in` is the time until it
fits, and `spare` the number of CPUs that are free beside it then. `drain` is the time that the whole machine needs for
the work of the running and the queued jobs, or of those queued with no more work than the job. `room` is the number of
CPUs that stay free beside the job now, and `head_slack` the time between its end and the fit of the head; both are
negative if it does not fit. It `backfills` (1) if it could start now without a delay of the head. `own_latest` is the
time since the submission of the last live job of its user. Jobs with a pending reason of their own also count as
`held`, and none of them is the `head`.
"""

NEVER_S = 1e7
_NEW_QUEUE = -2  # of a job whose queue has no live job: different from that of jobs without a queue


class _JobValues(NamedTuple):
    """The job: its CPUs, planned run time and work, the codes of its user and queue, and its submission."""

    cpus: float
    planned_s: float
    work: float
    user: int
    queue: int
    now: float


class _Running(NamedTuple):
    """The running jobs, as far as the features of every job need them.

    Attributes:
        rows: their rows in the table.
        expected, planned: their remaining run times, seconds.
        by_expected, by_planned: their places in `rows` by these.
        in_use: their CPUs.
        sums: CPUs by horizon, expected and planned, then their number and work, expected and planned.
    """

    rows: Ints
    expected: Floats
    planned: Floats
    by_expected: Ints
    by_planned: Ints
    in_use: float
    sums: Floats


def live_features(job: Job, table: LiveTable, now: float, site_cpus: int, out: Floats) -> None:
    """Fill in the features of `NAMES`, zeros before, for a job that is not in the table.

    O(live jobs), for those in `seen` (`models.site.seen`).
    """
    seen, queue, cpus = table.visible_rows(), table.code("queue", job.queue), float(job.cpus)
    if queue == NO_NAME and job.queue is not None:
        queue = _NEW_QUEUE
    work, user = cpus * job.planned_run_s, table.code("user", job.user)
    about = _JobValues(cpus, job.planned_run_s, work, user, queue, float(now))
    _submitted_features(seen.rows, seen.stands_for, table.records, about, float(max(site_cpus, 1)), out)


def queued_features(rows: Ints, table: LiveTable, now: float, site_cpus: int, out: Floats) -> None:
    """Fill in the features of `NAMES`, zeros before, for the jobs in these rows of the table, (rows, NAMES and more).

    O(running jobs · log running jobs), and O(live jobs) for each row.
    """
    seen = table.visible_rows()
    _queued_features(rows, seen.rows, seen.stands_for, table.records, float(now), float(max(site_cpus, 1)), out)


@njit(cache=True)
def _submitted_features(
    live: Ints, stands_for: Floats, table: Records, job: _JobValues, site_cpus: float, out: Floats
) -> None:
    others, many = _not_running(live, stands_for, table)
    _live_features(others, many, table, _running_of(live, table, job.now), job, site_cpus, out)


@njit(cache=True)
def _queued_features(
    rows: Ints, live: Ints, stands_for: Floats, table: Records, now: float, site_cpus: float, out: Floats
) -> None:
    others, many = _not_running(live, stands_for, table)
    running = _running_of(live, table, now)
    for number in range(len(rows)):
        own = table[rows[number]]
        cpus, planned_s = float(own.cpus), own.planned_s
        user, queue = np.int64(own.user), np.int64(own.queue)  # with the codes of a job that is not in the table
        job = _JobValues(cpus, planned_s, cpus * planned_s, user, queue, now)  # type: ignore[arg-type]
        _live_features(others, many, table, running, job, site_cpus, out[number])


@njit(cache=True)
def _not_running(live: Ints, stands_for: Floats, table: Records) -> tuple[Ints, Floats]:
    """Return the rows of the live jobs that do not run, and the number that each represents."""
    rows, many, count = np.empty(len(live), np.int64), np.empty(len(live)), 0
    for number, row in enumerate(live):
        if table[row].phase != RUNNING:
            rows[count], many[count] = row, stands_for[number]
            count += 1
    return rows[:count], many[:count]


@njit(cache=True)
def _running_of(live: Ints, table: Records, now: float) -> _Running:
    rows, count, in_use = np.empty(len(live), np.int64), 0, 0.0
    for row in live:
        if table[row].phase == RUNNING:
            rows[count] = row
            count += 1
            in_use += float(table[row].cpus)
    rows = rows[:count].copy()
    expected, planned = _remaining(rows, table, now)
    by_expected, by_planned = np.argsort(expected, kind="mergesort"), np.argsort(planned, kind="mergesort")
    horizons = len(HORIZONS_S)
    sums = np.zeros(2 * horizons + 3)
    for number, row in enumerate(rows):
        size = float(table[row].cpus)
        for horizon in range(horizons):
            if expected[number] <= HORIZONS_S[horizon]:
                sums[horizon] += size
            if planned[number] <= HORIZONS_S[horizon]:
                sums[horizons + horizon] += size
        sums[2 * horizons] += 1.0
        sums[2 * horizons + 1] += size * expected[number]
        sums[2 * horizons + 2] += size * planned[number]
    return _Running(rows, expected, planned, by_expected, by_planned, in_use, sums)


@njit(cache=True)
def _live_features(
    others: Ints, many: Floats, table: Records, running: _Running, job: _JobValues, site_cpus: float, out: Floats
) -> None:
    queued = np.zeros((len(GROUPS), len(SUMS)))
    head, head_ready, latest = -1, np.inf, -NEVER_S
    after = len(GROUPS) * len(SUMS)
    held = len(NAMES) - 2
    for number, row in enumerate(others):
        other, count = table[row], many[number]
        size, own = float(other.cpus), other.user == job.user and job.user >= 0
        if own:
            latest = max(latest, other.submit)
        if other.phase == QUEUED:
            if other.barred:
                out[held] += count
                out[held + 1] += count * size
            elif other.ready < head_ready:
                head, head_ready = row, other.ready
            age, work = max(job.now - other.ready, 0.0), size * other.planned_s
            similar = _within_two(size, job.cpus) and _within_two(other.planned_s, job.planned_s)
            in_group = (
                size <= job.cpus,
                other.planned_s <= job.planned_s,
                work <= job.work,
                other.queue == job.queue,
                own,
                similar,
                similar and own,
            )
            _add(queued[0], count, size, work, age)
            for group in range(len(in_group)):
                if in_group[group]:
                    _add(queued[1 + group], count, size, work, age)
        elif other.phase == HELD:
            out[held] += count
            out[held + 1] += count * size
    for group in range(len(GROUPS)):
        for what in range(len(SUMS)):
            out[group * len(SUMS) + what] = queued[group, what]
    latest = max(latest, _running_features(out, after, running, table, job))
    free = site_cpus - running.in_use
    place = after + 2 * len(HORIZONS_S) + 8
    out[place] = free
    for by in range(2):
        remaining_s = running.expected if by == 0 else running.planned
        order = running.by_expected if by == 0 else running.by_planned
        out[place + 1 + by], _ = _fits_in(order, remaining_s, running.rows, table, free, job.cpus)
        if head >= 0:
            wanted = float(table[head].cpus)
            out[place + 5 + by], out[place + 7 + by] = _fits_in(order, remaining_s, running.rows, table, free, wanted)
        else:
            out[place + 7 + by] = free
    if head >= 0:
        out[place + 3], out[place + 4] = table[head].cpus, table[head].planned_s
    room, slack = free - job.cpus, out[place + 6] - job.planned_s
    out[place + 11], out[place + 13] = room, slack
    out[place + 12] = out[place + 5] - job.planned_s
    spare = out[place + 8] if head >= 0 else room
    out[place + 14] = 1.0 if room >= 0.0 and (head < 0 or slack >= 0.0 or spare >= job.cpus) else 0.0
    out[place + 15] = min(max(job.now - latest, 0.0), NEVER_S)
    remaining_work = out[after + 2 * len(HORIZONS_S) + 1]
    out[place + 9] = (remaining_work + queued[0, 2]) / site_cpus
    out[place + 10] = (remaining_work + queued[3, 2]) / site_cpus


@njit(cache=True)
def _add(sums: Floats, many: float, cpus: float, work: float, age: float) -> None:
    sums[0] += many
    sums[1] += many * cpus
    sums[2] += many * work
    sums[3] = max(sums[3], age)


@njit(cache=True)
def _within_two(one: float, other: float) -> bool:
    return one <= 2.0 * other and other <= 2.0 * one


@njit(cache=True)
def _remaining(running: Ints, table: Records, now: float) -> tuple[Floats, Floats]:
    """Return the expected and the planned remaining run times of the running jobs.

    A job that has exceeded its expected run time is expected to run half as long again, within its plan.
    """
    expected, planned = np.empty(len(running)), np.empty(len(running))
    for place, row in enumerate(running):
        planned_s, elapsed = table[row].planned_s, max(now - table[row].start, 0.0)
        planned[place] = max(planned_s - elapsed, 0.0)
        expected[place] = table[row].run_s - elapsed
        if expected[place] <= 0.0:
            more = 0.5 * elapsed
            expected[place] = min(more, 0.5 * planned[place]) if planned_s > 0.0 else more
    return expected, planned


@njit(cache=True)
def _running_features(out: Floats, place: int, running: _Running, table: Records, job: _JobValues) -> float:
    """Fill in the features of the running jobs; return the last submission among those of the job's user."""
    latest, sums = -NEVER_S, place + 2 * len(HORIZONS_S)
    out[place : sums + 3] = running.sums
    for number, row in enumerate(running.rows):
        size = float(table[row].cpus)
        if table[row].user == job.user and job.user >= 0:
            latest = max(latest, table[row].submit)
            out[sums + 3] += 1.0
            out[sums + 4] += size
        if table[row].queue == job.queue:
            out[sums + 5] += 1.0
            out[sums + 6] += size
            out[sums + 7] += size * running.expected[number]
    return latest


@njit(cache=True)
def _fits_in(
    order: Ints, remaining_s: Floats, running: Ints, table: Records, free: float, wanted: float
) -> tuple[float, float]:
    """Return the seconds until `wanted` CPUs are free, and the number of free CPUs beside them then."""
    if free >= wanted:
        return 0.0, free - wanted
    for place in order:
        free += float(table[running[place]].cpus)
        if free >= wanted:
            return remaining_s[place], free - wanted
    return NEVER_S, free - wanted
