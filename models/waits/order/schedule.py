"""EASY backfilling in an order of the queue that may change with time, with limits on users and queues.

The rules are those of `models.waits.schedules.easy`, but a job whose user or queue would exceed a limit is passed over:
it neither starts nor gets a reservation. A scheduler may consider only the first of the other jobs.
"""

import heapq
from typing import Final, NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.waits.order.aging import GROWTH, Aging, UsageSinceSort, add_use, reordered, usage_after
from models.waits.order.order_features import DecayedUsage, QueuedJobs, RunningJobs
from models.waits.order.pair_preference import NO_QUEUE
from models.waits.schedules import insert, remove, reservation

GRAIN = 0.02
"""Jobs that end within this share of the time until then end together. A few hundred passes over the queue are then
enough for a week, for a queue of any length, and no start is later by more than that."""


MAX_WORK: Final = 20_000_000
"""Maximum number of moves of entries of one simulation. It ends before that if up to some 5,000 jobs run. Beyond it,
the jobs that still queue start as their work flows through the site."""


class QueueColumns(NamedTuple):
    """Queued jobs as columns, the first to start first; times are in seconds.

    Attributes:
        cpus: CPUs.
        run_s, planned_s: expected and planned run times.
        user, account: codes.
        queue: places of their queues' weights.
        stays_s: time until each is withdrawn.
        arrives_s: time until each arrives; 0 for the present jobs.
    """

    cpus: Ints
    run_s: Floats
    planned_s: Floats
    user: Ints
    account: Ints
    queue: Ints
    stays_s: Floats
    arrives_s: Floats


LENGTHS_S: Floats = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 24.0]) * 3600.0
"""Planned run times, one of which may be the limit of short jobs; their places are the first ones, which no queue
uses."""

UNLIMITED: Floats = np.full(NO_QUEUE + 1, np.inf)
"""No queue has a limit."""


class Limits(NamedTuple):
    """Limits on running jobs; infinity for no limit.

    Attributes:
        alone: CPUs of a user's only running job.
        several: CPUs of a user's running jobs, if there are several.
        jobs: number of a user's running jobs.
        queues: CPUs that the jobs of a queue may hold together, by the place of its weight, (places,). At the places of
            `LENGTHS_S` it is the limit of jobs planned for longer, where a part of the machine is reserved for short
            ones. One job of a queue, or one long job, may run alone, of any size.
        depth: number of jobs not blocked by these limits that the scheduler considers at each time.
    """

    alone: float = np.inf
    several: float = np.inf
    jobs: float = np.inf
    queues: Floats = UNLIMITED
    depth: float = np.inf


@njit(cache=True, nogil=True)
def line_of(queued: QueuedJobs, places: Ints) -> QueueColumns:
    """The jobs at these places of the queue, all of them present."""
    return QueueColumns(
        queued.cpus[places],
        queued.run_s[places],
        queued.planned_s[places],
        queued.user[places],
        queued.account[places],
        queued.queue[places],
        queued.stays_s[places],
        np.zeros(len(places)),
    )


@njit(cache=True)
def schedule(
    free: int, running: RunningJobs, line: QueueColumns, aging: Aging, limits: Limits, only_job: int, only_now: bool
) -> tuple[Floats, bool]:
    """Simulate the schedule.

    O(queued² + queued·running) at worst, and at most `MAX_WORK`; a pass over the queue ends where no later job can
    start.

    Args:
        free: CPUs that are free now.
        aging: the changes of the order. Codes of users are those of its `people`; 0 is no user, and has no limit.
        only_job: the place of the job up to whose start the schedule is simulated; -1 for all.
        only_now: whether only the jobs that start now are requested.

    Returns:
        Seconds until each queued job starts, (queued,), infinity for never or not requested; and whether the simulation
        ended at `MAX_WORK` before that.
    """
    first, total, users = len(running.cpus), len(line.cpus), len(aging.people.users)
    held, runs, site_cpus = np.zeros(users, np.int64), np.zeros(users, np.int64), free + running.cpus.sum()
    cpus, user = np.concatenate((running.cpus, line.cpus)), np.concatenate((running.user, line.user))
    account = np.concatenate((running.account, line.account))
    limit_s = np.concatenate((running.planned_s, line.planned_s))  # the planned run time; the planned end once it runs
    queue, in_queue = np.concatenate((running.queue, line.queue)), held_in(running, len(limits.queues))
    most_long, long_s = long_job_limit(limits.queues)
    long, in_long = np.concatenate((running.whole_s, line.planned_s)) > long_s, held_by_long(running, long_s)
    for job in range(first):
        held[user[job]] += cpus[job]
        runs[user[job]] += 1
    ends = [(running.remaining_s[job], job) for job in range(first)]
    heapq.heapify(ends)
    releases = np.empty(first + total, np.int64)
    releases[:first] = np.argsort(running.planned_s, kind="mergesort")
    starts, rank = np.full(total, np.inf), np.arange(total)
    waiting, later = np.flatnonzero(line.arrives_s <= 0.0), _by_arrival(line.arrives_s)
    fewest, shortest = np.empty(total, np.int64), np.empty(total)
    _least(line, waiting, fewest, shortest)
    now, count, run, arrived = 0.0, len(waiting), first, 0
    people, use = aging.people, UsageSinceSort(np.zeros(users), np.zeros(len(aging.people.accounts)))
    ordered, reorder_s, every, work = 0.0, aging.first_s, limits.depth == np.inf, 0
    while True:
        kept, place, looked, head, shadow, extra = 0, 0, 0, -1, -1.0, 0
        while place < count and looked < limits.depth and free >= fewest[waiting[place]]:
            job = waiting[place]
            if shadow >= 0.0 and extra < fewest[job] and now + shortest[job] > shadow:
                break
            place += 1
            wanted = line.cpus[job]
            if head >= 0 and every:  # then a limit makes no difference
                late = now + line.planned_s[job] > shadow >= 0.0
                if wanted > free or (late and wanted > extra):
                    waiting[kept] = job
                    kept += 1
                    continue
            its, gone = line.user[job], now > line.stays_s[job]
            fits = wanted <= free
            full = is_full(wanted, in_queue[line.queue[job]], limits.queues[line.queue[job]])
            full = full or (long[first + job] and is_full(wanted, in_long, most_long))
            if full or (its > 0 and is_over(wanted, held[its], runs[its], limits)):
                fits = False
            else:
                looked += 0 if gone else 1
                if gone:
                    fits = fits and (head < 0)
                elif not fits and head < 0:
                    head = job
                elif fits and head >= 0:
                    if shadow < 0.0:
                        shadow, extra = reservation(line.cpus[head], free, now, cpus, limit_s, releases[:run])
                    late = now + line.planned_s[job] > shadow
                    fits = not late or wanted <= extra
                    extra -= wanted if fits and late else 0
            if not fits:
                waiting[kept] = job
                kept += 1
                continue
            starts[job] = now
            if job == only_job:
                return starts, False
            if gone:
                continue
            free -= wanted
            held[its] += wanted
            runs[its] += 1
            in_queue[line.queue[job]] += wanted
            in_long += wanted if long[first + job] else 0
            add_use(use, its, line.account[job], -wanted * (now - ordered))
            limit_s[first + job] = now + line.planned_s[job]
            heapq.heappush(ends, (now + line.run_s[job], first + job))
            insert(first + job, limit_s, releases, run)
            run += 1
        count -= place - kept
        for passed in range(1, kept + 1 if place > kept else 1):  # next to those that were not considered
            waiting[place - passed] = waiting[kept - passed]
        waiting = waiting[place - kept :]
        work += place
        if count == 0 or len(ends) == 0 or only_now:
            return starts, False
        if work > MAX_WORK:
            fluid_starts(starts, waiting[:count], line.cpus, line.run_s, now, site_cpus)
            return starts, True
        comes = line.arrives_s[later[arrived]] if arrived < len(later) else np.inf
        until, ended = min(ends[0][0], comes) * (1.0 + GRAIN), False
        while len(ends) > 0 or comes < np.inf:
            end = ends[0][0] if len(ends) > 0 else np.inf
            if min(end, comes) > until or (comes <= end and ended):  # what has become free is not for later jobs
                break
            if comes <= end and comes < np.inf:
                waiting, count, now = _with_arrival(waiting[:count], later[arrived], rank), count + 1, comes
                _least(line, waiting, fewest, shortest)
                arrived, work = arrived + 1, work + count
                comes = line.arrives_s[later[arrived]] if arrived < len(later) else np.inf
                continue
            (now, job), ended = heapq.heappop(ends), True
            remove(job, limit_s, releases, run)
            work += run
            run -= 1
            free += cpus[job]
            held[user[job]] -= cpus[job]
            runs[user[job]] -= 1
            in_queue[queue[job]] -= cpus[job]
            in_long -= cpus[job] if long[job] else 0
            add_use(use, user[job], account[job], cpus[job] * (now - ordered))
        if now >= reorder_s:
            for job in releases[:run]:
                add_use(use, user[job], account[job], cpus[job] * (now - ordered))
            people = usage_after(people, use, now - ordered, held, runs)
            ordered_jobs = reordered(aging, np.concatenate((waiting[:count], later[arrived:])), now, people)
            _rank(ordered_jobs, rank)
            waiting[:count] = ordered_jobs[line.arrives_s[ordered_jobs] <= now]
            _least(line, waiting[:count], fewest, shortest)
            ordered, reorder_s = now, now * GROWTH


@njit(cache=True)
def _by_arrival(arrives_s: Floats) -> Ints:
    """Return the places of the jobs that are still to arrive, the next one first."""
    later = np.flatnonzero(arrives_s > 0.0)
    return later[np.argsort(arrives_s[later], kind="mergesort")]


@njit(cache=True)
def _with_arrival(waiting: Ints, job: int, rank: Ints) -> Ints:
    """Return the waiting jobs with one more, before the first one with a higher rank."""
    found, place = np.empty(len(waiting) + 1, np.int64), 0
    while place < len(waiting) and rank[waiting[place]] < rank[job]:
        place += 1
    found[:place], found[place], found[place + 1 :] = waiting[:place], job, waiting[place:]
    return found


@njit(cache=True)
def _rank(jobs: Ints, rank: Ints) -> None:
    """Set the rank of each job to its place."""
    for place in range(len(jobs)):
        rank[jobs[place]] = place


@njit(cache=True)
def fluid_starts(starts: Floats, waiting: Ints, cpus: Ints, run_s: Floats, now: float, site_cpus: int) -> None:
    """Set the starts of waiting jobs as if their work used all CPUs, one job after the other."""
    ahead = 0.0
    for job in waiting:
        starts[job] = now + ahead / max(site_cpus, 1)
        ahead += cpus[job] * run_s[job]


@njit(cache=True)
def is_over(wanted: int, held: int, runs: int, limits: Limits) -> bool:
    """Return True if a limit keeps a user with this usage from another job of `wanted` CPUs."""
    return held + wanted > (limits.several if runs > 0 else limits.alone) or runs + 1 > limits.jobs


@njit(cache=True)
def is_full(wanted: int, held: int, most: float) -> bool:
    """Return True if a queue (or the long jobs) that holds `held` CPUs may not have another job of `wanted` CPUs."""
    return held > 0 and held + wanted > most


@njit(cache=True)
def held_in(running: RunningJobs, places: int) -> Ints:
    """Return the CPUs that the running jobs of each queue hold, by the place of its weight, (places,)."""
    found = np.zeros(places, np.int64)
    for job in range(len(running.cpus)):
        found[running.queue[job]] += running.cpus[job]
    return found


@njit(cache=True, nogil=True)
def long_job_limit(queues: Floats) -> tuple[float, float]:
    """Return the CPUs that long jobs may hold, and the planned run time above which they are long; infinity for no
    limit.

    Where longer jobs seem to have the same limit, that is because they are among these. Where the longer ones have a
    lower limit, that one counts: slightly shorter jobs seem limited because most of them are among the longer ones.
    """
    found = 0
    while found < len(LENGTHS_S) and queues[found] == np.inf:
        found += 1
    if found == len(LENGTHS_S):
        return np.inf, np.inf
    while found + 1 < len(LENGTHS_S) and queues[found + 1] < queues[found]:
        found += 1
    return queues[found], LENGTHS_S[found]


@njit(cache=True, nogil=True)
def held_by_long(running: RunningJobs, long_s: float) -> int:
    """Return the CPUs of the running jobs that were planned for longer than this."""
    held = 0
    for job in range(len(running.cpus)):
        held += running.cpus[job] if running.whole_s[job] > long_s else 0
    return held


@njit(cache=True)
def are_over(queued: QueuedJobs, people: DecayedUsage, limits: Limits) -> Flags:
    """Return for each queued job whether a limit of its user blocks it now; jobs without a user have no limit."""
    found = np.empty(len(queued.cpus), np.bool_)
    for job in range(len(found)):
        its = queued.user[job]
        found[job] = its > 0 and is_over(queued.cpus[job], people.held[its], people.runs[its], limits)
    return found


@njit(cache=True)
def are_full(queued: QueuedJobs, running: RunningJobs, limits: Limits) -> Flags:
    """Return for each queued job whether a limit of its queue, or that of long jobs, blocks it now."""
    found, in_queue = np.empty(len(queued.cpus), np.bool_), held_in(running, len(limits.queues))
    most_long, long_s = long_job_limit(limits.queues)
    in_long = held_by_long(running, long_s)
    for job in range(len(found)):
        place = queued.queue[job]
        long = queued.planned_s[job] > long_s and is_full(queued.cpus[job], in_long, most_long)
        found[job] = long or is_full(queued.cpus[job], in_queue[place], limits.queues[place])
    return found


@njit(cache=True)
def _least(line: QueueColumns, waiting: Ints, fewest: Ints, shortest: Floats) -> None:
    """Set the minimum CPUs and run time of each waiting job and those behind it; they stay valid as jobs start."""
    cpus, planned_s = np.iinfo(np.int64).max, np.inf
    for job in waiting[::-1]:
        cpus, planned_s = min(cpus, line.cpus[job]), min(planned_s, line.planned_s[job])
        fewest[job], shortest[job] = cpus, planned_s
