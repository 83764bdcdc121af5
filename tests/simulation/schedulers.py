"""Simulated schedulers of tests: forks, further policies, and changes of policy."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial

import numpy as np

from models.records import AnyEvent
from models.simulation import POLICIES, Estimates, Scheduler, SimulatedJob
from models.simulation.workload import DAY
from tests.simulation.multifactor import Multifactor, Priorities

TIERS = Priorities(
    age=1.0,
    fairshare=1.0,
    half_life_s=2 * DAY,
    size=0.0,
    tiers=(("short", 1.5), ("batch", 0.5)),
    cap=0.6,
    limits=(("long", 0.6),),
)
"""Queues of different priority, short jobs first, with limits on long queues."""

SMALL_FIRST = Priorities(
    age=2.0, fairshare=1.0, half_life_s=3 * DAY, share=0.1, size=-1.0, small=1.5, cap=0.5, plans="predicted"
)
"""Small and short jobs first, large ones last; planned with the run times of the user's last jobs."""

SCHEDULERS: dict[str, Callable[..., Scheduler]] = {
    **POLICIES,
    "multifactor": Multifactor,
    "multifactor-tiers": partial(Multifactor, priorities=TIERS),
    "multifactor-small": partial(Multifactor, priorities=SMALL_FIRST),
}

Policy = str | Priorities
"""One of `SCHEDULERS`, or the priorities of a multifactor scheduler."""


def scheduler_of(policy: Policy, site: str, cpus: int, start_time: int = 0) -> Scheduler:
    """Return an idle scheduler; it plans with the walltimes unless its policy differs."""
    if isinstance(policy, Priorities):
        return Multifactor(site, cpus, start_time, priorities=policy)
    return SCHEDULERS[policy](site, cpus, start_time)


def run_changing(
    jobs: Iterable[SimulatedJob],
    cpus: int,
    site: str,
    policy: Policy = "easy",
    changes: Iterable[tuple[int, Policy]] = (),
) -> Iterator[AnyEvent]:
    """Run jobs like `models.simulation.run`, with changes of policy.

    Args:
        changes: times (Unix seconds, ascending) with their new policies, which suspend no jobs.
    """
    scheduler: Scheduler | None = None
    to_come = deque(changes)
    for job in jobs:
        if scheduler is None:
            scheduler = scheduler_of(policy, site, cpus, job.submit)
            yield scheduler.capacity()
        while to_come and to_come[0][0] <= job.submit:
            time, policy = to_come.popleft()
            yield from scheduler.advance(time)
            before, scheduler = scheduler, scheduler_of(policy, site, cpus, time)
            yield from _take_over(scheduler, before)
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()


def _take_over(scheduler: Scheduler, other: Scheduler) -> list[AnyEvent]:
    """Take over the jobs of another scheduler without its learned state; return the resulting starts."""
    scheduler._withdrawals = other._withdrawals
    for running in sorted(other.running.values(), key=lambda running: running.since):
        scheduler.now = running.since
        scheduler._enter(running.job)
        if scheduler.plans:
            scheduler.planned[running.job.job] = scheduler.estimates.of(running.job, other.now - running.since)
        scheduler._run(running.job, done=0)
    scheduler.now = other.now
    for job in other.queue.values():
        scheduler._enter(job)
    scheduler._dispatch()
    return scheduler._take_events()


class Settled(Estimates):
    """The present state of other estimates, without learning."""

    def __init__(self, estimates: Estimates) -> None:
        super().__init__()
        self._estimates = estimates

    def of(self, job: SimulatedJob, elapsed: int = 0) -> int:
        return self._estimates.of(job, elapsed)

    def learn(self, job: SimulatedJob, run: int) -> None:
        """Do nothing."""


def fork(scheduler: Scheduler, lasts: Estimates | None = None) -> Scheduler:
    """Return an independent copy, which plans with the present estimates and does not learn.

    Args:
        lasts: run times of its jobs; by default the true ones.
    """
    other = copy(scheduler)
    for name, value in vars(scheduler).items():
        if isinstance(value, dict | list | np.ndarray) or name == "reservation":
            setattr(other, name, copy(value))
    other.estimates = Settled(scheduler.estimates)
    other._alarms = []
    if lasts is not None:
        other._seconds = lasts.of
    for name, running in scheduler.running.items():
        other.running[name] = copied = copy(running)
        if lasts is not None:
            before = running.since - running.done
            copied.end = before + lasts.of(running.job, scheduler.now - before)
        other._watch(copied)
    return other


def start_of(scheduler: Scheduler, job: str, before: int) -> int | None:
    """Move the clock until this job starts; return the time, or None if it does not start before `before`."""
    while job in scheduler.queue:
        time = scheduler._next_time()
        if time is None or time >= before:
            return None
        scheduler._step(time)
    return scheduler.now
