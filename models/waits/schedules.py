"""Start times of the queued jobs by the rules of the scheduler, without future jobs.

Smith, Taylor and Foster 1999, sections 2.1.4 and 3. Each schedule is a compiled function of the live jobs, `Live`. It
returns the seconds until each queued job starts, (queued,), infinity for never or not requested. The rules are those of
`models.simulation`: at one instant first jobs end, then others start.

A job has two run times. After `run_s` it frees its CPUs; `planned_s`, never shorter, is the run time that the scheduler
uses for its plans.
"""

import heapq
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.kernels import njit

N = TypeVar("N", np.int64, np.float64)

MAX_PLAN_STEPS = 4_000_000
"""Steps of planning after which conservative backfilling plans for the last time."""


class Jobs(NamedTuple):
    """Jobs as columns, (jobs,): CPUs, and the time that they hold them, from now on or from their starts."""

    cpus: Ints
    run_s: Floats
    planned_s: Floats


class Live(NamedTuple):
    """A machine of `cpus` CPUs, the jobs that run on it, and those queued in the order of arrival."""

    cpus: int
    running: Jobs
    queued: Jobs


Schedule = Callable[[Live, bool], Floats]
"""A policy. If the `whole` schedule is not requested, it ends at the start of the last job of the queue."""


def wait_s(schedule: Schedule, live: Live, cpus: int, run_s: float, planned_s: float | None = None) -> float:
    """Return the seconds that a job would wait if it was submitted now; infinity for never. `live` does not change.

    >>> nobody = Jobs(np.array([], np.int64), np.array([]), np.array([]))
    >>> running = Jobs(np.array([4]), np.array([60.0]), np.array([600.0]))
    >>> wait_s(fcfs, Live(4, running, nobody), cpus=1, run_s=10.0)
    60.0
    """
    queued = live.queued
    planned_s = run_s if planned_s is None else max(planned_s, run_s)
    last = Jobs(_appended(queued.cpus, cpus), _appended(queued.run_s, run_s), _appended(queued.planned_s, planned_s))
    return float(schedule(Live(live.cpus, live.running, last), False)[-1])


def _appended(values: NDArray[N], value: float) -> NDArray[N]:
    """Append a value, in a fifth of the time of `np.append`."""
    longer = np.empty(len(values) + 1, values.dtype)
    longer[:-1], longer[-1] = values, value
    return longer


def fcfs(live: Live, whole: bool) -> Floats:
    """First come, first served: nothing starts before an earlier job. O(n·log n)."""
    starts: Floats = _in_order(live, np.arange(len(live.queued.cpus)), whole)
    return starts


def lwf(live: Live, whole: bool) -> Floats:
    """Least work first: nothing starts before a job of fewer CPUs times planned seconds. O(n·log n)."""
    order = np.argsort(live.queued.cpus * live.queued.planned_s, kind="stable")
    starts: Floats = _in_order(live, order, whole)
    return starts


@njit(cache=True)
def _in_order(live: Live, order: Ints, whole: bool) -> Floats:
    cpus, run_s = live.queued.cpus, live.queued.run_s
    starts = np.full(len(cpus), np.inf)
    free = live.cpus - live.running.cpus.sum()
    ends = [(live.running.run_s[job], live.running.cpus[job]) for job in range(len(live.running.cpus))]
    heapq.heapify(ends)
    now = 0.0
    for job in order:
        while free < cpus[job] and len(ends) > 0:
            now, released = heapq.heappop(ends)
            free += released
        if free < cpus[job]:
            break
        starts[job] = now
        free -= cpus[job]
        heapq.heappush(ends, (now + run_s[job], cpus[job]))
        if job == len(cpus) - 1 and not whole:
            break
    return starts


def easy(live: Live, whole: bool) -> Floats:
    """EASY backfilling: a later job starts where, by the plan, it does not delay the head of the queue. O(n²).

    The head's reservation, the "shadow time", is when enough running jobs have reached their planned ends. "extra" are
    the CPUs that it leaves free then (Lifka 1995; Mu'alem and Feitelson 2001).
    """
    starts: Floats = _easy_starts(live, whole, False)
    return starts


@njit(cache=True)
def _easy_starts(live: Live, whole: bool, to_the_end: bool) -> Floats:
    starts: Floats = _easy(live, whole, to_the_end)[0]
    return starts


class Openings(NamedTuple):
    """Free CPUs over time under EASY for a job that is submitted now, for any size.

    Attributes:
        times: seconds from now.
        free: CPUs that are free for it then.
        shadow: the planned start of the head of the queue.
        extra: free CPUs that the head does not need either.
    """

    times: Floats
    free: Ints
    shadow: Floats
    extra: Ints

    def first(self, cpus: int, planned_s: float) -> float:
        """Return the seconds until a job starts, infinity for never, as `wait_s`; O(ends) for each shape.

        The job is last in the queue, so it does not affect the others until it starts.
        """
        fits = (self.free >= cpus) & ((self.times + planned_s <= self.shadow) | (self.extra >= cpus))
        return float(self.times[fits.argmax()]) if fits.any() else np.inf


def easy_openings(live: Live) -> Openings:
    """Return the openings of a site under EASY: one schedule for any number of shapes."""
    return Openings(*_easy(live, True, True)[1:])


@njit(cache=True)
def _easy(live: Live, whole: bool, to_the_end: bool) -> tuple[Floats, Floats, Ints, Floats, Ints]:
    """The starts, and the openings up to there, or until the last job ends."""
    jobs, ends, limits, releases, running = _set_up(live)
    first, last = running, len(jobs.cpus) - 1
    starts = np.full(len(jobs.cpus), np.inf)
    times, shadows = np.empty(len(jobs.cpus) + 1), np.empty(len(jobs.cpus) + 1)
    frees, extras = np.empty(len(jobs.cpus) + 1, np.int64), np.empty(len(jobs.cpus) + 1, np.int64)
    free = live.cpus - live.running.cpus.sum()
    waiting = np.arange(first, last + 1)
    now, seen = 0.0, 0
    while True:
        kept, reserved, shadow, extra = 0, False, np.inf, 0
        for job in waiting:
            cpus = jobs.cpus[job]
            if cpus > free and not reserved:
                reserved = True
                shadow, extra = reservation(cpus, free, now, jobs.cpus, limits, releases[:running])
            late = now + jobs.planned_s[job] > shadow
            if cpus > free or (late and cpus > extra):
                waiting[kept] = job
                kept += 1
                continue
            if late:
                extra -= cpus
            starts[job] = now
            running = _begin(job, now, jobs, ends, limits, releases, running)
            free -= cpus
        waiting = waiting[:kept]
        times[seen], frees[seen], shadows[seen], extras[seen] = now, free, shadow, extra
        seen += 1
        done = kept == 0 or (waiting[kept - 1] != last and not whole)
        if len(ends) == 0 or (done and not to_the_end):
            return starts[first:], times[:seen], frees[:seen], shadows[:seen], extras[:seen]
        now, running, released = _next_ends(jobs, ends, limits, releases, running)
        free += released


@njit(cache=True)
def conservative(live: Live, whole: bool) -> Floats:
    """Conservative backfilling: a later job starts where, by the plan, it delays no earlier one.

    Whenever a job ends, CPUs are reserved again for each job at the earliest time, in the order of arrival (Smith,
    Taylor and Foster 1999, section 2.1.4). If all jobs run as planned, this changes nothing, and one plan, O(n²), is
    enough. Otherwise planning repeats up to `MAX_PLAN_STEPS` steps; jobs that still queue then are planned once more,
    by their run times.
    """
    jobs, ends, limits, releases, running = _set_up(live)
    first, last = running, len(jobs.cpus) - 1
    starts = np.full(len(jobs.cpus), np.inf)
    free = live.cpus - live.running.cpus.sum()
    waiting = np.arange(first, last + 1)
    now = 0.0
    steps = MAX_PLAN_STEPS
    for job in range(len(jobs.cpus)):
        if jobs.run_s[job] < jobs.planned_s[job]:
            steps = 0
    while steps < MAX_PLAN_STEPS:
        wanted, held = _select(jobs, waiting), _select(Jobs(jobs.cpus, limits, limits), releases[:running])
        earliest, whole_plan = np.zeros(len(waiting)), steps >= MAX_PLAN_STEPS
        planned, taken = plan(now, free, held.run_s, held.cpus, wanted.cpus, wanted.planned_s, earliest, whole_plan)
        steps += taken
        kept = 0
        for place in range(len(waiting)):
            job = waiting[place]
            if planned[place] > now:
                waiting[kept] = job
                kept += 1
                continue
            starts[job] = now
            running = _begin(job, now, jobs, ends, limits, releases, running)
            free -= jobs.cpus[job]
        waiting = waiting[:kept]
        if len(ends) == 0 or kept == 0 or (waiting[kept - 1] != last and not whole):
            return starts[first:]
        now, running, released = _next_ends(jobs, ends, limits, releases, running)
        free += released
    times, released = np.empty(running), np.empty(running, np.int64)
    for place in range(running):
        times[place], job = heapq.heappop(ends)
        released[place] = jobs.cpus[job]
    wanted = _select(jobs, waiting)
    whole_plan = steps >= MAX_PLAN_STEPS
    planned, _ = plan(now, free, times, released, wanted.cpus, wanted.run_s, np.zeros(len(waiting)), whole_plan)
    for place in range(len(waiting)):
        starts[waiting[place]] = planned[place]
    return starts[first:]


@njit(cache=True)
def _select(jobs: Jobs, places: Ints) -> Jobs:
    """Select these jobs."""
    cpus, run_s, planned_s = np.empty(len(places), np.int64), np.empty(len(places)), np.empty(len(places))
    for place in range(len(places)):
        job = places[place]
        cpus[place], run_s[place], planned_s[place] = jobs.cpus[job], jobs.run_s[job], jobs.planned_s[job]
    return Jobs(cpus, run_s, planned_s)


@njit(cache=True)
def _joined(one: Jobs, other: Jobs) -> Jobs:
    """Concatenate these jobs and those."""
    first, total = len(one.cpus), len(one.cpus) + len(other.cpus)
    cpus, run_s, planned_s = np.empty(total, np.int64), np.empty(total), np.empty(total)
    for job in range(first):
        cpus[job], run_s[job], planned_s[job] = one.cpus[job], one.run_s[job], one.planned_s[job]
    for job in range(first, total):
        place = job - first
        cpus[job], run_s[job], planned_s[job] = other.cpus[place], other.run_s[place], other.planned_s[place]
    return Jobs(cpus, run_s, planned_s)


@njit(cache=True)
def _set_up(live: Live) -> tuple[Jobs, list[tuple[float, int]], Floats, Ints, int]:
    """Return all jobs, the running ones first; a heap of these by their ends; their limits; and these in order of
    limits.

    A limit is the planned end. The last value is the number of running jobs.
    """
    running, jobs = live.running, _joined(live.running, live.queued)
    ends = [(running.run_s[job], job) for job in range(len(running.cpus))]
    heapq.heapify(ends)
    releases = np.empty(len(jobs.cpus), np.int64)
    releases[: len(ends)] = np.argsort(running.planned_s, kind="mergesort")
    return jobs, ends, jobs.planned_s.copy(), releases, len(ends)


@njit(cache=True)
def _begin(
    job: int, now: float, jobs: Jobs, ends: list[tuple[float, int]], limits: Floats, releases: Ints, running: int
) -> int:
    """Start a job now; return the number of running jobs."""
    limits[job] = now + jobs.planned_s[job]
    heapq.heappush(ends, (now + jobs.run_s[job], job))
    insert(job, limits, releases, running)
    return running + 1


@njit(cache=True)
def _next_ends(
    jobs: Jobs, ends: list[tuple[float, int]], limits: Floats, releases: Ints, running: int
) -> tuple[float, int, int]:
    """Advance to the next time at which jobs end; return it, the number still running, and the released CPUs."""
    now, released = ends[0][0], 0
    while len(ends) > 0 and ends[0][0] == now:
        job = heapq.heappop(ends)[1]
        remove(job, limits, releases, running)
        running -= 1
        released += jobs.cpus[job]
    return now, running, released


@njit(cache=True)
def insert(job: int, limits: Floats, releases: Ints, count: int) -> None:
    """Insert a job into the running ones, `releases[:count]`, which are in the order of their limits."""
    place = count
    while place > 0 and limits[releases[place - 1]] > limits[job]:
        releases[place] = releases[place - 1]
        place -= 1
    releases[place] = job


@njit(cache=True)
def remove(job: int, limits: Floats, releases: Ints, count: int) -> None:
    """Remove a job from `releases[:count]`."""
    place = 0
    while releases[place] != job:
        place += 1
    for later in range(place + 1, count):
        releases[later - 1] = releases[later]


@njit(cache=True)
def reservation(wanted: int, free: int, now: float, cpus: Ints, limits: Floats, releases: Ints) -> tuple[float, int]:
    """Return the time when the plan has `wanted` CPUs free, infinity for never, and the extra free CPUs then."""
    time = now
    for job in releases:
        if free >= wanted and limits[job] > time:
            break
        free += cpus[job]
        time = limits[job]
    return (time, free - wanted) if free >= wanted else (np.inf, 0)


@njit(cache=True)
def plan(
    now: float, free: int, times: Floats, released: Ints, cpus: Ints, seconds: Floats, earliest: Floats, whole: bool
) -> tuple[Floats, int]:
    """Return the earliest start of each job, (jobs,), beside those before it, and the number of steps.

    At `times`, ascending, running jobs release CPUs. A job starts at its `earliest` or later: `now`, or one of these
    times. Unless the `whole` plan is requested, it is complete only for starts at `now`.
    """
    jobs = len(cpus)
    starts = np.full(jobs, np.inf)
    least = cpus.copy()  # of this job and those after it
    for job in range(jobs - 2, -1, -1):
        least[job] = min(least[job], least[job + 1])
    # frees[k] CPUs are free from begins[k] until begins[k + 1], for k < size.
    begins, frees = np.empty(1 + len(times) + jobs), np.empty(1 + len(times) + jobs, np.int64)
    begins[0], frees[0], size, steps = now, free, 1, jobs + len(times)
    for time, more in zip(times, released):  # noqa: B905 (numba knows no strict)
        if time > begins[size - 1]:
            begins[size], frees[size] = time, frees[size - 1]
            size += 1
        frees[size - 1] += more
    for job in range(jobs):
        if not whole and frees[0] < least[job]:
            break
        if frees[size - 1] < cpus[job]:
            continue
        start = end = 0  # it holds its CPUs from begins[start] until some time in [begins[end - 1], begins[end]]
        while end < size and (end == start or begins[end] < begins[start] + seconds[job]):
            if frees[end] < cpus[job] or begins[end] < earliest[job]:
                start = end + 1
            end += 1
        steps += end
        starts[job] = begins[start]
        until = begins[start] + seconds[job]
        if end == size or begins[end] > until:
            for k in range(size, end, -1):
                begins[k], frees[k] = begins[k - 1], frees[k - 1]
            begins[end], frees[end] = until, frees[end - 1]
            steps += size - end
            size += 1
        for k in range(start, end):
            frees[k] -= cpus[job]
    return starts, steps
