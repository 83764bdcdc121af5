"""The method's work at a submission and at a start, each compiled as a whole.

Single Python calls in between would cost as much as all of it. This is for a site without a topology whose scheduler
reports no priorities to use. For other sites `ordered_queue` and `contenders` do the work in steps, by the same
kernels.
"""

from typing import NamedTuple

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.waits.order.aging import FIRST_S, Aging
from models.waits.order.contenders import chosen, could_start
from models.waits.order.inferred_limits import (
    FADING,
    ONCE,
    REFUSED,
    STARTED,
    Counts,
    count,
    count_cpus,
    count_jobs,
    count_place,
    limits_of,
)
from models.waits.order.order_features import DecayedUsage, QueuedJobs, RunningJobs, before_each, features_of
from models.waits.order.ordered_queue import MAX_SIMULATED, MAX_SIMULATED_OF_PART
from models.waits.order.pair_preference import scores_of
from models.waits.order.queue_limits import count_in, queue_limits, started_in
from models.waits.order.schedule import LENGTHS_S, Limits, are_full, are_over, held_by_long, held_in, line_of, schedule
from models.waits.order.site_view import CandidateJob, Columns, seen_by, with_new

SETTLED_S = 120.0
"""A job that has queued for this time, while no job ended, and could have started, was refused: schedulers take a
minute."""


class SimulatedStart(NamedTuple):
    """Simulated start of a job.

    Attributes:
        start_s: seconds until the job starts; infinity: never.
        place: its place in the order.
        queued, running: numbers of jobs.
        by_pieces: nothing was done: priorities decide, or the pending reason of a refused job must be looked up.
        cut_short: whether the simulation ended at `MAX_WORK`.
    """

    start_s: float
    place: int
    queued: int
    running: int
    by_pieces: bool
    cut_short: bool


class OrderState(NamedTuple):
    """Learned state of a site's order.

    Attributes:
        weights, squares: the weights and the squares of their gradients.
        counts, queue_counts: the counts from which limits are inferred.
        places: number of places, from the first, that have counts of queues.
    """

    weights: Floats
    squares: Floats
    counts: Counts
    queue_counts: Counts
    places: int


@njit(cache=True, nogil=True)
def foretell(
    columns: Columns, learnt: OrderState, new: CandidateJob, whole: bool, trusted: bool, settled: bool
) -> tuple[float, int, int, int, bool, bool]:
    """Simulate the start of a job that is last in the queue, like `OrderedQueue.ahead`.

    Where the site has `settled`, jobs that could have started and have not are counted (`inferred_limits`,
    `queue_limits`). O(queued² + queued·running) at worst.

    Args:
        whole: whether the rows are the whole queue.
        trusted: whether the scheduler's own priorities are the order, where all jobs report one.

    Returns:
        The values of `SimulatedStart`.
    """
    nowhere, now, site_cpus, user = np.int64(-1), columns.now, columns.cpus, new.user
    in_rooms, by_score = np.bool_(False), np.bool_(True)
    weights, counts, queue_counts = learnt.weights, learnt.counts, learnt.queue_counts
    _, many, tasks, on, queued, running, people = seen_by(columns, nowhere)
    size, free = len(queued.cpus), max(site_cpus - running.cpus.sum(), 0)
    if trusted and size > 0 and np.isfinite(queued.priority).all():
        return np.inf, 0, size, len(on), True, False
    alone, several, most_jobs, depth = limits_of(counts, site_cpus)
    limits = Limits(alone, several, most_jobs, queue_limits(queue_counts, learnt.places, site_cpus), depth)
    limited = limits.several < np.inf
    before = before_each(queued.user, len(people.users), many * tasks)
    scores = scores_of(queued, np.arange(size), before, people, site_cpus, weights, limited)
    order = np.argsort(-scores, kind="mergesort")
    most = MAX_SIMULATED if whole else MAX_SIMULATED_OF_PART
    work, jobs = _sums(queued, order, many)
    simulated = order[:most] if whole else _repeated(order, jobs, most)
    first_s = FIRST_S if whole else np.inf
    if settled:
        due = _due(free, queued, running, people, simulated, site_cpus, weights)
        if queued.barred[due].any():
            return np.inf, 0, size, len(on), True, False
        nothing = BlockedMask(np.zeros(size, np.bool_), np.zeros(size, np.bool_), np.zeros(size, np.bool_))
        refuse(
            due, simulated, queued, running, people, site_cpus, limits, learnt, nothing, in_rooms, by_score, new.looks
        )
    every, people = with_new(queued, people, new, columns.by_users, columns.by_accounts, now)
    earlier = 0.0
    for job in range(size):
        earlier += many[job] * tasks[job] if user and queued.user[job] == user else 0.0
    score = scores_of(every, np.array([size]), np.array([earlier]), people, site_cpus, weights, limited)[0]
    place = np.searchsorted(-scores[order], -score, side="right")
    nth, only_job = jobs[place], jobs[place]
    if nth < most:
        line = np.empty(len(simulated) + 1, np.int64)
        line[:nth], line[nth], line[nth + 1 :] = simulated[:nth], size, simulated[nth:]
    else:
        line, only_job = simulated, nowhere
    aging = Aging(every, line, people, site_cpus, weights, limited, first_s)
    starts_s, cut_short = schedule(free, running, line_of(every, line), aging, limits, only_job, np.bool_(False))
    if nth < most:
        return starts_s[nth], nth, jobs[-1], len(on), False, cut_short
    last_s, rest = 0.0, work[place] - (work[most] if whole else _work(queued, simulated))
    for job in range(len(line)):
        starts = np.isfinite(starts_s[job]) and starts_s[job] <= every.stays_s[line[job]]  # not withdrawn before
        last_s = max(last_s, starts_s[job]) if starts else last_s
    return last_s + rest / max(site_cpus - free, 1), nth, jobs[-1], len(on), False, cut_short


@njit(cache=True, nogil=True)
def _sums(queued: QueuedJobs, order: Ints, many: Floats) -> tuple[Floats, Ints]:
    """Return the work and the number of the jobs before each place in the order, and one more."""
    work, jobs, whole = np.zeros(len(order) + 1), np.zeros(len(order) + 1, np.int64), 0.0
    for place in range(len(order)):
        job = order[place]
        work[place + 1] = work[place] + queued.cpus[job] * queued.run_s[job] * many[job]
        whole += many[job]
        jobs[place + 1] = int(np.rint(whole))
    return work, jobs


@njit(cache=True, nogil=True)
def _work(queued: QueuedJobs, jobs: Ints) -> float:
    """Return the work of these jobs, in CPU-seconds."""
    return float((queued.cpus[jobs] * queued.run_s[jobs]).sum())


@njit(cache=True, nogil=True)
def _repeated(order: Ints, jobs: Ints, most: int) -> Ints:
    """Repeat each job of the order for the jobs that it represents, `most` at most; `jobs` are those before each."""
    found = np.empty(min(jobs[-1], most), np.int64)
    for place in range(len(order)):
        found[min(jobs[place], most) : min(jobs[place + 1], most)] = order[place]
    return found


@njit(cache=True, nogil=True)
def _due(
    free: int,
    queued: QueuedJobs,
    running: RunningJobs,
    people: DecayedUsage,
    simulated: Ints,
    site_cpus: int,
    weights: Floats,
) -> Ints:
    """Return the jobs that could have started a while ago without limits, as places in the queue, in their order."""
    if len(simulated) == 0 or queued.cpus.min() > free:
        return simulated[:0].copy()
    none = Limits(np.inf, np.inf, np.inf, np.full(len(weights), np.inf), np.inf)
    aging = Aging(queued, simulated, people, site_cpus, weights, none.several < np.inf, np.inf)
    nobody = np.int64(-1)
    starts_s, _ = schedule(free, running, line_of(queued, simulated), aging, none, nobody, np.bool_(True))
    due: Ints = simulated[np.isfinite(starts_s) & (queued.age_s[simulated] >= SETTLED_S)]
    return due


class BlockedMask(NamedTuple):
    """Flags of queued jobs with a pending reason of their own that is not the limit in question.

    The limits are those of their users' CPUs, of their users' jobs, and of their queues.
    """

    but_for_cpus: Flags
    but_for_jobs: Flags
    but_for_queue: Flags


@njit(cache=True, nogil=True)
def refuse(
    due: Ints,
    order: Ints,
    queued: QueuedJobs,
    running: RunningJobs,
    people: DecayedUsage,
    site_cpus: int,
    limits: Limits,
    learnt: OrderState,
    elsewhere: BlockedMask,
    in_rooms: bool,
    by_score: bool,
    looks: int,
) -> None:
    """Count the refused jobs.

    These are one of each user, one of each queue, one that is longer than each of `LENGTHS_S`, and the first of the
    `order` that no limit blocks.

    Args:
        due: jobs that could have started, as places in the queue, in their order.
        in_rooms: whether the site has a topology, and so reports its queues' limits.
        by_score: whether the order is the learned one, to which the places belong.
        looks: how many times each counts, see `refusal_weight`.
    """
    full, over = are_full(queued, running, limits), are_over(queued, people, limits)
    counts, queue_counts, in_queue = learnt.counts, learnt.queue_counts, held_in(running, len(limits.queues))
    of_cpus, of_jobs = np.zeros(len(people.users), np.bool_), np.zeros(len(people.users), np.bool_)
    queues = np.zeros(len(limits.queues), np.bool_)
    for job in due:
        user, queue, cpus = queued.user[job], queued.queue[job], queued.cpus[job]
        if user > 0 and not full[job]:
            held, runs = people.held[user], people.runs[user]
            if not of_cpus[user] and not elsewhere.but_for_cpus[job]:
                of_cpus[user] = True
                count_cpus(counts[REFUSED], held, runs, cpus, site_cpus, looks)
            if not of_jobs[user] and not elsewhere.but_for_jobs[job]:
                of_jobs[user] = True
                count_jobs(counts[REFUSED], runs, looks)
        if in_rooms or over[job]:
            continue
        if not queues[queue] and not elsewhere.but_for_queue[job]:
            queues[queue] = True
            count_in(queue_counts[queue, REFUSED], in_queue[queue], cpus, site_cpus, looks)
        for place in range(len(LENGTHS_S)):
            if not queues[place] and queued.planned_s[job] > LENGTHS_S[place]:
                queues[place] = True
                long = held_by_long(running, LENGTHS_S[place])
                count_in(queue_counts[place, REFUSED], long, cpus, site_cpus, looks)
    refused = first_due(due, order, full | over | queued.barred) if by_score and not in_rooms else 0
    if refused:
        count_place(counts[REFUSED], refused, looks)


@njit(cache=True, nogil=True)
def first_due(due: Ints, order: Ints, kept: Flags) -> int:
    """Return the place in the order, from 1, of the first due job that no limit blocks; 0 if there is none.

    Both are places in the queue, those that are `due` in the same order.
    """
    place = nth = 0
    for job in order:
        while nth < len(due) and kept[due[nth]]:
            nth += 1
        if nth == len(due):
            return 0
        place += 0 if kept[job] else 1
        if job == due[nth]:
            return place
    return 0


@njit(cache=True, nogil=True)
def place_of(its: int, scores: Floats, many: Floats, kept: Flags) -> int:
    """Return the place of a job in the order of these scores, from 1, among those that no limit blocks.

    Each represents `many` jobs, as in the simulated schedule.
    """
    place = 1.0
    for job in range(len(scores)):
        place += many[job] if scores[job] > scores[its] and not kept[job] else 0.0
    return int(place)


@njit(cache=True, nogil=True)
def see_start(
    columns: Columns, learnt: OrderState, row: int, allocated: int, named: bool, is_task: bool
) -> tuple[Ints, Ints, Floats, Ints, Ints, int, bool]:
    """Learn limits from a job that started at a site without a topology, and compare it with jobs that could have.

    Args:
        row: its row in the table, where it runs by now.
        allocated: its allocated CPUs.
        named: whether it names a queue, for which there are counts.
        is_task: whether it is a task of an array, which has a row only since its start.

    Returns:
        The values of `ComparedJobs`.
    """
    site_cpus, (weights, _, counts, queue_counts, _) = columns.cpus, learnt
    rows, many, tasks, _, queued, running, people = seen_by(columns, row)
    its, stand_for = np.searchsorted(rows, row), many * tasks
    user, queue = queued.user[its], queued.queue[its]
    counts *= np.float32(FADING)
    if user > 0:
        count(counts[STARTED], people.held[user], people.runs[user], allocated, site_cpus, ONCE)
    if named:
        held = held_in(running, len(weights))[queue]
        started_in(queue_counts[queue], held, allocated, site_cpus)
    for place in range(len(LENGTHS_S)):
        if queued.planned_s[its] > LENGTHS_S[place]:
            started_in(queue_counts[place], held_by_long(running, LENGTHS_S[place]), allocated, site_cpus)
    before = before_each(queued.user, len(people.users), stand_for)
    if is_task:
        before[its] = before_task(queued, its, stand_for)
    alone, several, most_jobs, depth = limits_of(counts, site_cpus)
    limits = Limits(alone, several, most_jobs, queue_limits(queue_counts, learnt.places, site_cpus), depth)
    scores = scores_of(queued, np.arange(len(rows)), before, people, site_cpus, weights, limits.several < np.inf)
    kept = are_full(queued, running, limits) | are_over(queued, people, limits) | queued.barred
    # The order is learned, and not well enough with few starts behind a limit: the order of submission counts too.
    place = min(place_of(its, scores, many, kept), place_of(its, queued.age_s, many, kept))
    free = max(site_cpus - running.cpus.sum(), 0)
    could = could_start(queued, running, people, site_cpus, free, its, before, weights, limits)
    others, nth = chosen(could, tasks)
    limited = limits.several < np.inf
    features, places, priorities = compared(queued, people, site_cpus, its, others, nth, before)
    return rows[others], nth, features, places, priorities, place, limited


@njit(cache=True, nogil=True)
def before_task(queued: QueuedJobs, task: int, stand_for: Floats) -> float:
    """Return the number of its user's queued jobs before the array of a task, which has a row only since its start."""
    found = 0.0
    for job in range(len(stand_for)):
        older = queued.user[job] == queued.user[task] and queued.age_s[job] > queued.age_s[task]
        found += stand_for[job] if older and queued.user[task] else 0.0
    return found


@njit(cache=True, nogil=True)
def compared(
    queued: QueuedJobs, people: DecayedUsage, site_cpus: int, its: int, others: Ints, nth: Ints, before: Floats
) -> tuple[Floats, Ints, Ints]:
    """Return the features, places and priorities of `ComparedJobs` for a job and the `others`.

    Args:
        nth: number of tasks of its array before each of the others.
    """
    jobs, ahead = np.empty(len(others) + 1, np.int64), np.empty(len(others) + 1)
    jobs[0], jobs[1:] = its, others
    ahead[0], ahead[1:] = before[its], before[others] + nth
    priorities = np.zeros(len(others), np.int64)
    for other in range(len(others)):
        own, its_priority = queued.priority[others[other]], queued.priority[its]
        priorities[other] = (1 if its_priority > own else 0) - (1 if its_priority < own else 0)
    return features_of(queued, jobs, ahead, people, site_cpus), queued.queue[jobs], priorities
