"""EASY backfilling in a given order of the queue, over rooms that hold CPUs, GPUs and memory.

The algorithm is that of `models.waits.order.schedule`, for a site that reports its pools. The capacity of a room
changes as reservations begin and end: a job starts only where it fits beside them until its planned end. The first job
that does not fit gets a reservation, and so does the first one of each other set of partitions.
"""

import heapq
from typing import NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.site.topology.layout import fit, fit_parts
from models.waits.order.room_kernels import PlacedJobs, add_job, add_to, fill_rest, fill_taken, reduce_ahead, reduce_to
from models.waits.order.schedule import GRAIN, MAX_WORK, Limits, fluid_starts, is_over
from models.waits.schedules import insert, remove

MAX_HEADS = 4
"""Maximum number of jobs with a reservation."""


class PoolTimeline(NamedTuple):
    """Capacity of the rooms over time, and the demand of each kind of job.

    Attributes:
        begins: seconds from now at which the capacity changes, (times,).
        holds: capacity from then on, (times, rooms, resources).
        demand: resources that kinds of jobs use, (kinds, rooms, resources); below 0 where they may not run.
        parts: as in `fit_parts`, (kinds, rooms).
        group: the set of partitions of each kind.
    """

    begins: Floats
    holds: Floats
    demand: Floats
    parts: Ints
    group: Ints


class Jobs(NamedTuple):
    """Jobs as columns, the running ones first.

    Attributes:
        kind: their kinds.
        cpus: CPUs that count for them: their share of the area.
        run_s, planned_s: expected and planned run times, in seconds, from now on or from their start.
        user: codes of users.
        counts: the counts that they belong to; -1: none.
    """

    kind: Ints
    cpus: Ints
    run_s: Floats
    planned_s: Floats
    user: Ints
    counts: Ints


class ReportedLimits(NamedTuple):
    """Limits that the site reports: `most` and the current usage `held`, (counts, 5), and the jobs' usage.

    `take` is the usage of each kind of job, (kinds, 5). The five columns are CPUs, GPUs, nodes, memory and jobs.
    """

    most: Floats
    held: Floats
    take: Floats


@njit(cache=True)
def occupied(places: Floats, demand: Floats, parts: Ints, kind: Ints, running: Ints) -> Floats:
    """Return the shares of running jobs in each room, (jobs, rooms).

    Their placement is not reported: jobs that fit only one room are placed there, then the others fill the rooms.
    O(jobs).

    Args:
        places: capacities to fill, (places, rooms, resources): the first one where a job fits, else the next.
        running: the running jobs, in the order of their placement.
    """
    rooms, resources = places.shape[1:]
    free, found, shares = places.copy(), np.zeros((len(running), rooms)), np.zeros(rooms)
    possible, only = np.zeros(len(demand), np.int64), np.zeros(len(demand), np.int64)
    for number in range(len(demand)):
        for room in range(rooms - 1, -1, -1):
            if demand[number, room, 0] >= 0.0:
                possible[number], only[number] = possible[number] + 1, room
    for choosy in (True, False):
        for job in running:
            number = kind[job]
            if possible[number] == 0 or (possible[number] == 1) != choosy:
                continue
            wanted, place = demand[number], 0
            while place < len(free) and not fit_parts(free[place], wanted, parts[number], shares):
                place += 1
            if place == len(free):
                place = 0
                if not fit(free[0], wanted, shares):
                    shares[only[number]] += 1.0 - shares.sum()
            for room in range(rooms):
                share = shares[room]
                if share != 0.0:
                    found[job, room] = share
                    for what in range(resources):
                        free[place, room, what] -= share * max(wanted[room, what], 0.0)
    return found


@njit(cache=True)
def schedule_rooms(
    world: PoolTimeline,
    jobs: Jobs,
    running: PlacedJobs,
    line: Ints,
    users: int,
    limits: Limits,
    declared: ReportedLimits,
    only_job: int,
    only_now: bool,
) -> tuple[Floats, bool]:
    """Simulate the schedule over rooms.

    O(queued² + queued·running) at worst, times rooms, and at most `MAX_WORK`; a pass over the queue ends where no kind
    of job fits any more.

    Args:
        running: the first of the jobs, which run.
        line: places in `jobs`, the first to start first.
        users, limits, asked, only_now: as in `schedule`.

    Returns:
        Seconds until each job of the line starts, (line,), infinity for never or not requested; and whether the
        simulation ended at `MAX_WORK` before that.
    """
    begins, holds, demand, parts = world.begins, world.holds, world.demand, world.parts
    rooms, resources = holds.shape[1:]
    first, total = len(running.shares), len(jobs.kind)
    held, runs, counted = np.zeros(users, np.int64), np.zeros(users, np.int64), declared.held.copy()
    shares_of = np.zeros((total - first, rooms))
    placed = PlacedJobs(running.shares, shares_of, jobs.kind, running.held, demand)
    planned_end = jobs.planned_s.copy()
    used = np.zeros((rooms, resources))
    ahead = np.zeros(holds.shape)  # used by jobs that still run at each of the times, by plan
    for job in range(first):
        held[jobs.user[job]] += jobs.cpus[job]
        runs[jobs.user[job]] += 1
        add_job(used, placed, job, 1.0)
        for time in range(1, len(begins)):
            if planned_end[job] > begins[time]:
                add_job(ahead[time], placed, job, 1.0)
    busy = held.sum()
    ends = [(jobs.run_s[job], job) for job in range(first)]
    heapq.heapify(ends)
    releases = np.empty(total, np.int64)
    releases[:first] = np.argsort(jobs.planned_s[:first], kind="mergesort")
    starts, waiting = np.full(len(line), np.inf), np.arange(len(line))
    pending = np.zeros(len(demand), np.int64)  # jobs of each kind that wait
    for place in range(len(line)):
        pending[jobs.kind[line[place]]] += 1
    shares, room = np.empty(rooms), np.empty((rooms, resources))
    never = _unplaceable_kinds(holds, demand, parts)
    shadows, ends_at = np.empty(MAX_HEADS), np.empty(MAX_HEADS)
    claims, extras = np.empty((MAX_HEADS, rooms, resources)), np.empty((MAX_HEADS, rooms, resources))
    groups = np.empty(MAX_HEADS, np.int64)
    now, count, run, at = 0.0, len(line), first, np.int64(0)
    work, cells, spent = 0, rooms * resources, np.zeros(1, np.int64)
    while True:
        kept, seen, heads = 0, 0, np.int64(0)
        full = never.copy()  # kinds that do not fit now
        hopeful = 0
        for kind in range(len(pending)):
            hopeful += pending[kind] > 0 and not never[kind]
        while seen < count and hopeful > 0:
            place = waiting[seen]
            seen += 1
            job = line[place]
            kind, user = jobs.kind[job], jobs.user[job]
            end, started = now + jobs.planned_s[job], False
            has_head = heads == MAX_HEADS or _has(groups, heads, world.group[kind])
            if not (full[kind] and has_head) and not _is_over(job, jobs, held, runs, limits, counted, declared):
                if not full[kind]:
                    fill_rest(room, holds[at], used)
                    full[kind] = not fit_parts(room, demand[kind], parts[kind], shares)
                    hopeful -= full[kind]
                if not full[kind]:
                    reduce_ahead(room, end, at, begins, holds, ahead)
                    for head in range(heads):
                        if shadows[head] < end:
                            reduce_to(room, extras[head])
                    started = fit_parts(room, demand[kind], parts[kind], shares)
                if not started and not has_head and not never[kind]:
                    shadow = _reserve(
                        now, at, jobs.planned_s[job], demand[kind], parts[kind], begins, holds, used, ahead, placed,
                        planned_end, releases[:run], heads, shadows, ends_at, claims, extras, spent,
                    )  # fmt: skip
                    if shadow < np.inf:
                        groups[heads] = world.group[kind]
                        heads += 1
            if not started:
                waiting[kept] = place
                kept += 1
                continue
            starts[place] = now
            if place == only_job:
                return starts, False
            for where in range(rooms):
                shares_of[job - first, where] = shares[where]
            add_job(used, placed, job, 1.0)
            for time in range(at + 1, len(begins)):
                if end > begins[time]:
                    add_job(ahead[time], placed, job, 1.0)
            for head in range(heads):
                if shadows[head] < end:
                    add_job(extras[head], placed, job, -1.0)
            held[user] += jobs.cpus[job]
            runs[user] += 1
            _count(jobs.counts[job], counted, declared.take[kind], 1.0)
            planned_end[job] = end
            heapq.heappush(ends, (now + jobs.run_s[job], job))
            insert(job, planned_end, releases, run)
            run += 1
            pending[kind] -= 1
            if pending[kind] == 0:
                hopeful -= 1
        if kept < seen:
            for rest in range(seen, count):
                waiting[kept] = waiting[rest]
                kept += 1
            count = kept
        change = begins[at + 1] if at + 1 < len(begins) else np.inf
        work += seen * cells
        if count == 0 or only_now or (len(ends) == 0 and change == np.inf):
            return starts, False
        if work + spent[0] * cells > MAX_WORK:
            rest_of = line[waiting[:count]]
            flowing = np.full(len(rest_of), np.inf)
            fluid_starts(flowing, np.arange(count), jobs.cpus[rest_of], jobs.run_s[rest_of], now, max(busy, held.sum()))
            for number in range(count):
                if not never[jobs.kind[rest_of[number]]]:
                    starts[waiting[number]] = flowing[number]
            return starts, True
        if len(ends) == 0 or ends[0][0] >= change:
            now, at, until = change, at + 1, change
        else:
            until = min(ends[0][0] * (1.0 + GRAIN), change)
        while len(ends) > 0 and ends[0][0] <= until:
            end, job = heapq.heappop(ends)
            now = max(now, end)
            remove(job, planned_end, releases, run)
            work += run
            run -= 1
            add_job(used, placed, job, -1.0)
            held[jobs.user[job]] -= jobs.cpus[job]
            runs[jobs.user[job]] -= 1
            _count(jobs.counts[job], counted, declared.take[jobs.kind[job]], -1.0)


@njit(cache=True)
def may_start(world: PoolTimeline, jobs: Jobs, running: PlacedJobs, declared: ReportedLimits) -> Flags:
    """Return the queued jobs that could start now, each alone, (queued,); users have only the declared limits."""
    first, begins = len(running.shares), world.begins
    used, room, ahead = np.zeros(world.holds.shape[1:]), np.empty(world.holds.shape[1:]), np.zeros(world.holds.shape)
    for job in range(first):
        add_job(used, running, job, 1.0)
        for time in range(1, len(begins)):
            if jobs.planned_s[job] > begins[time]:
                add_job(ahead[time], running, job, 1.0)
    found, shares = np.zeros(len(jobs.kind) - first, np.bool_), np.empty(len(used))
    for job in range(first, len(jobs.kind)):
        if not _is_over_declared(jobs.counts[job], declared.take[jobs.kind[job]], declared.held, declared.most):
            fill_rest(room, world.holds[0], used)
            reduce_ahead(room, jobs.planned_s[job], np.int64(0), begins, world.holds, ahead)
            found[job - first] = fit_parts(room, world.demand[jobs.kind[job]], world.parts[jobs.kind[job]], shares)
    return found


@njit(cache=True)
def _unplaceable_kinds(holds: Floats, demand: Floats, parts: Ints) -> Flags:
    """Return the kinds of jobs that fit at no time, even alone, (kinds,)."""
    most, shares = holds[0].copy(), np.empty(holds.shape[1])
    for time in range(1, len(holds)):
        for room in range(holds.shape[1]):
            for what in range(holds.shape[2]):
                most[room, what] = max(most[room, what], holds[time, room, what])
    never = np.empty(len(demand), np.bool_)
    for kind in range(len(demand)):
        never[kind] = not fit_parts(most, demand[kind], parts[kind], shares)
    return never


@njit(cache=True)
def _is_over(
    job: int, jobs: Jobs, held: Ints, runs: Ints, limits: Limits, counted: Floats, declared: ReportedLimits
) -> bool:
    """Return True if a limit keeps a job from starting, a learned one or a reported one."""
    user = jobs.user[job]
    if user > 0 and is_over(jobs.cpus[job], held[user], runs[user], limits):
        return True
    return bool(_is_over_declared(jobs.counts[job], declared.take[jobs.kind[job]], counted, declared.most))


@njit(cache=True)
def _is_over_declared(counts: Ints, take: Floats, counted: Floats, most: Floats) -> bool:
    """Return True if a reported limit keeps a job from starting."""
    for count in counts:
        if count >= 0:
            for what in range(len(take)):
                if counted[count, what] + take[what] > most[count, what]:
                    return True
    return False


@njit(cache=True)
def _count(counts: Ints, counted: Floats, take: Floats, sign: float) -> None:
    for count in counts:
        if count >= 0:
            for what in range(len(take)):
                counted[count, what] += sign * take[what]


@njit(cache=True)
def _has(groups: Ints, count: int, group: int) -> bool:
    """Return True if a group is one of the first `count`."""
    for number in range(count):  # noqa: SIM110 (numba knows no any() of a generator)
        if groups[number] == group:
            return True
    return False


@njit(cache=True)
def _reserve(
    now: float,
    at: int,
    planned_s: float,
    demand: Floats,
    parts: Ints,
    begins: Floats,
    holds: Floats,
    used: Floats,
    ahead: Floats,
    placed: PlacedJobs,
    planned_end: Floats,
    releases: Ints,
    heads: int,
    shadows: Floats,
    ends_at: Floats,
    claims: Floats,
    extras: Floats,
    spent: Ints,
) -> float:
    """Return the time at which a job fits by plan, infinity for never; store its claim and the rest beside it.

    Args:
        spent: counter of the ends of jobs that were processed.
        heads: number of claims before it; `extras` is free beside each of these when it begins.
    """
    in_use, done, time, shares, free = used.copy(), 0, now, np.empty(len(demand)), np.empty(demand.shape)
    while True:
        fill_rest(free, holds[at], in_use)
        for head in range(heads):
            if shadows[head] <= time < ends_at[head]:
                add_to(free, claims[head], -1.0)
        room, end = free.copy(), time + planned_s
        reduce_ahead(room, end, at, begins, holds, ahead)
        for head in range(heads):
            if time < shadows[head] < end:
                reduce_to(room, extras[head])
        if fit_parts(room, demand, parts, shares):
            break
        later = begins[at + 1] if at + 1 < len(begins) else np.inf
        if done < len(releases):
            later = min(later, planned_end[releases[done]])
        for head in range(heads):
            if ends_at[head] > time:
                later = min(later, ends_at[head])
        if later == np.inf:
            return np.inf
        time, before = max(time, later), done
        while done < len(releases) and planned_end[releases[done]] <= time:
            add_job(in_use, placed, releases[done], -1.0)
            done += 1
        spent[0] += done - before + 1
        while at + 1 < len(begins) and begins[at + 1] <= time:
            at += 1
    shadows[heads], ends_at[heads] = time, end
    fill_taken(claims[heads], demand, shares)
    fill_rest(extras[heads], free, claims[heads])
    for head in range(heads):
        if time <= shadows[head] < end:
            add_to(extras[head], claims[heads], -1.0)
    return time
