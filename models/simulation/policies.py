"""The schedulers by name, and a workload run under one of them."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from models.records import AnyEvent
from models.simulation.backfill import Conservative, Easy, EasyKill
from models.simulation.multifactor import Multifactor
from models.simulation.preemptive import EasyPreemptive, Lerwf
from models.simulation.scheduler import OrderedScheduler, Scheduler, least_work, shortest
from models.simulation.workload import SimulatedJob

POLICIES: dict[str, Callable[..., Scheduler]] = {
    "fcfs": OrderedScheduler,
    "fcfs-fill": partial(OrderedScheduler, filling=True),
    "lewf": partial(OrderedScheduler, rank=shortest),
    "lewf-fill": partial(OrderedScheduler, rank=shortest, filling=True),
    "lwf": partial(OrderedScheduler, rank=least_work),
    "lerwf": Lerwf,
    "lerwf-fill": partial(Lerwf, filling=True),
    "easy": Easy,
    "easy-kill": EasyKill,
    "easy-preemptive": EasyPreemptive,
    "conservative": Conservative,
    "multifactor": Multifactor,
}
"""Makers of the schedulers by the name of their policy; each takes what `Scheduler` does."""

WITHOUT_RUN_TIMES = frozenset({"fcfs", "fcfs-fill"})  # the policies that do not use run times


def run(jobs: Iterable[SimulatedJob], cpus: int, site: str, policy: str = "easy") -> Iterator[AnyEvent]:
    """Yield the site's events in the order of time: its capacity at the first submission, then those of the jobs.

    `jobs` must be in the order of submission.

    Raises:
        KeyError: the policy does not exist.
        ValueError: as in `submit`.
    """
    scheduler: Scheduler | None = None
    for job in jobs:
        if scheduler is None:
            scheduler = POLICIES[policy](site, cpus, job.submit)
            yield scheduler.capacity()
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()
