"""Queued jobs that could have started instead of the one that did: training data for the order.

They are similar to it. Jobs that have a pending reason of their own are excluded. At a site without a topology, three
more kinds are excluded: jobs that a limit blocks, jobs of the same user, and jobs that would take CPUs that are
reserved for the head of the queue. Jobs of one user start in an order of their own.
"""

import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.waits.order.order_features import DecayedUsage, QueuedJobs, RunningJobs
from models.waits.order.pair_preference import scores_of
from models.waits.order.schedule import Limits, are_full, are_over
from models.waits.schedules import reservation

MOST_OTHERS = 12
"""Maximum number of jobs that the one that started is compared with."""

ALIKE_CPUS, ALIKE_PLANNED = 2.0, 2.8
"""Maximum ratio of requested CPUs, and of planned run times, between similar jobs, in either direction. Jobs that
differ by more are chosen for the gaps that they fill, not for their priority."""


@njit(cache=True, nogil=True)
def could_start(
    queued: QueuedJobs,
    running: RunningJobs,
    people: DecayedUsage,
    site_cpus: int,
    free: int,
    started: int,
    before: Floats,
    weights: Floats,
    limits: Limits,
) -> Flags:
    """Return the similar jobs that could have started instead, at a site without a topology; O(jobs).

    They do not use CPUs that are reserved for the head of the queue: the first job in the learned order that may start
    but does not fit. Where the job that started goes before the head, there is no reservation. Where it uses the
    reserved CPUs itself, the order is not learned well enough, and no job qualifies.

    Args:
        started: the place, among the queued jobs, of the one that started.
        before: for each queued job, the number of its user's queued jobs that were submitted before it.
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
def alike(queued: QueuedJobs, started: int) -> Flags:
    """Return the other jobs that are similar to the one that started and have no pending reason of their own."""
    found = np.empty(len(queued.cpus), np.bool_)
    for job in range(len(found)):
        cpus = queued.cpus[job] / queued.cpus[started]
        planned = queued.planned_s[job] / max(queued.planned_s[started], 1.0)
        near = 1 / ALIKE_CPUS <= cpus <= ALIKE_CPUS and 1 / ALIKE_PLANNED <= planned <= ALIKE_PLANNED
        found[job] = near and not queued.barred[job] and job != started
    return found


@njit(cache=True, nogil=True)
def chosen(could: Flags, tasks: Ints) -> tuple[Ints, Ints]:
    """Choose at most `MOST_OTHERS`, evenly spaced, of all tasks of the jobs that could have started.

    Returns:
        Their jobs, and for each the number of tasks of its job before it.
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
