"""Queues as columns, as the learnt order sees them, from rows."""

from collections.abc import Sequence

import numpy as np

from models.waits.order.aging import Aging
from models.waits.order.order_features import DecayedUsage, QueuedJobs, RunningJobs
from models.waits.order.pair_preference import NO_QUEUE
from models.waits.order.schedule import UNLIMITED, Limits
from models.waits.order.usage import HALVES

Row = tuple[int, float, float, int]
"""A job: CPUs, run time, planned run time, user."""


def queued_of(rows: Sequence[Row], age_s: Sequence[float] = ()) -> QueuedJobs:
    """Queued jobs of no account and no queue; just submitted, if no ages are given."""
    count = len(rows)
    table = np.array(rows, np.float64).reshape(-1, 4).T
    return QueuedJobs(
        cpus=table[0].astype(np.int64),
        run_s=table[1].copy(),
        planned_s=table[2].copy(),
        age_s=np.array(age_s or [0.0] * count, np.float64),
        user=table[3].astype(np.int64),
        account=np.zeros(count, np.int64),
        queue=np.full(count, NO_QUEUE),
        priority=np.full(count, np.nan),
        barred=np.zeros(count, np.bool_),
        stays_s=np.full(count, np.inf),
    )


def running_of(rows: Sequence[Row]) -> RunningJobs:
    """Running jobs of no account and no queue; their times are those that are left."""
    jobs = queued_of(rows)
    return RunningJobs(jobs.cpus, jobs.run_s, jobs.planned_s, jobs.user, jobs.account, jobs.queue, jobs.planned_s)


def limits_of(places: dict[int, float]) -> Limits:
    """Those of queues, CPUs by the places of the queues' weights; users have none."""
    queues = UNLIMITED.copy()
    queues[list(places)] = list(places.values())
    return Limits(queues=queues)


def people_of(users: int, running: RunningJobs) -> DecayedUsage:
    """Users with these codes and running jobs, who have used nothing yet."""
    held = np.bincount(running.user, running.cpus, users).astype(np.int64)
    runs = np.bincount(running.user, minlength=users).astype(np.int64)
    return DecayedUsage(np.zeros((users, len(HALVES))), np.zeros((1, len(HALVES))), held, runs)


def aging_of(
    queued: QueuedJobs, users: int, cpus: int, weights: np.ndarray | None = None, first_s: float = np.inf
) -> Aging:
    """How the order of the whole queue changes, if it does, at a site without any usage yet."""
    people = people_of(users, running_of([]))
    found = np.zeros(NO_QUEUE + 1) if weights is None else weights
    return Aging(queued, np.arange(len(queued.cpus)), people, cpus, found, False, first_s)
