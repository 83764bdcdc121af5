"""Which queued jobs could have started instead of the one that did: from them the order is learnt.

They are much like it. Not among them are those that the scheduler says to wait for something of their own; at a site
without a topology neither those that a limit keeps, nor those of the same user, which go in their own order, nor those
that would take what is reserved for the head of the queue.
"""

import numpy as np
from numba import njit

from models.arrays import Flags, Floats, Ints
from models.waits.order.features import People, Queued, Running
from models.waits.order.preference import scores_of
from models.waits.order.schedule import Limits, are_full, are_over
from models.waits.schedules import reservation

MOST_OTHERS = 12
"""Jobs that the one that started is compared with, at most."""

ALIKE_CPUS, ALIKE_PLANNED = 2.0, 2.8
"""They ask for so many times its processors and planned run time at most, or it for so many times theirs. Those that
differ by more are chosen for the gaps that they fill, not for their priority."""


@njit(cache=True, nogil=True)
def could_start(
    queued: Queued,
    running: Running,
    people: People,
    site_cpus: int,
    free: int,
    started: int,
    before: Floats,
    weights: Floats,
    limits: Limits,
) -> Flags:
    """Which jobs could have started instead at a site without a topology, and are much like the one that did; O(jobs).

    They leave alone what is reserved for the head of the queue: the first in the learnt order of those that may start
    and find no room. Where the job that started goes before it, nothing is; and where that does not leave it alone, the
    order is not known well enough, and nobody is one.

    Parameters:
        started: the place among the queued jobs of the one that started.
        before: of each queued job, how many of its user's queued jobs came before it.
    """
    kept = are_over(queued, people, limits) | are_full(queued, running, limits)
    wide = np.flatnonzero(~kept & (queued.cpus > free))
    jobs = np.empty(len(wide) + 1, np.int64)
    jobs[:-1], jobs[-1] = wide, started
    scores = scores_of(queued, jobs, before[jobs], people, site_cpus, weights, limits.several < np.inf)
    start_s, extra = np.inf, np.int64(0)
    if len(wide) and scores[:-1].max() > scores[-1]:
        head = wide[np.argmax(scores[:-1])]
        releases = np.argsort(running.planned_s, kind="mergesort")
        start_s, extra = reservation(queued.cpus[head], free, 0.0, running.cpus, running.planned_s, releases)
    could: Flags = alike(queued, started)
    if queued.planned_s[started] > start_s and queued.cpus[started] > extra:
        could[:] = False
    for job in range(len(could)):
        leaves = queued.planned_s[job] <= start_s or queued.cpus[job] <= extra
        its = queued.user[job] > 0 and queued.user[job] == queued.user[started]
        could[job] = could[job] and leaves and not its and not kept[job] and queued.cpus[job] <= free
    return could


@njit(cache=True, nogil=True)
def alike(queued: Queued, started: int) -> Flags:
    """Which other jobs are much like the one that started, and wait for nothing of their own."""
    found = np.empty(len(queued.cpus), np.bool_)
    for job in range(len(found)):
        cpus = queued.cpus[job] / queued.cpus[started]
        planned = queued.planned_s[job] / max(queued.planned_s[started], 1.0)
        near = 1 / ALIKE_CPUS <= cpus <= ALIKE_CPUS and 1 / ALIKE_PLANNED <= planned <= ALIKE_PLANNED
        found[job] = near and not queued.barred[job] and job != started
    return found


@njit(cache=True, nogil=True)
def chosen(could: Flags, tasks: Ints) -> tuple[Ints, Ints]:
    """Of all tasks of the jobs that could have started, at most `MOST_OTHERS`, evenly spaced: their jobs, and of each
    how many tasks of its job come before it.
    """
    whole = 0
    for job in range(len(could)):
        whole += tasks[job] if could[job] else 0
    most = min(whole, MOST_OTHERS)
    jobs, nth = np.empty(most, np.int64), np.empty(most, np.int64)
    found = passed = 0
    for job in range(len(could)):
        many = tasks[job] if could[job] else 0
        while found < most and found * whole // most < passed + many:
            jobs[found], nth[found] = job, found * whole // most - passed
            found += 1
        passed += many
    return jobs, nth
