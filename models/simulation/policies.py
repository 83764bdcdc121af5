"""The schedulers by name, and a workload run under one of them."""

from collections.abc import Iterable, Iterator

from models.records import AnyEvent
from models.simulation.backfill import Conservative, Easy, EasyKill
from models.simulation.multifactor import Multifactor, MultifactorSmall, MultifactorTiers
from models.simulation.preemptive import EasyPreemptive, Lerwf, LerwfFill
from models.simulation.scheduler import Fcfs, FcfsFill, Lewf, LewfFill, Lwf, Scheduler
from models.simulation.workload import SimulatedJob

POLICIES: dict[str, type[Scheduler]] = {
    "fcfs": Fcfs,
    "fcfs-fill": FcfsFill,
    "lewf": Lewf,
    "lewf-fill": LewfFill,
    "lwf": Lwf,
    "lerwf": Lerwf,
    "lerwf-fill": LerwfFill,
    "easy": Easy,
    "easy-kill": EasyKill,
    "easy-preemptive": EasyPreemptive,
    "conservative": Conservative,
    "multifactor": Multifactor,
    "multifactor-tiers": MultifactorTiers,
    "multifactor-small": MultifactorSmall,
}
"""The policies by name; a further one is a subclass of Scheduler and a line here."""


def run(jobs: Iterable[SimulatedJob], cpus: int, site: str, policy: str = "easy") -> Iterator[AnyEvent]:
    """The site's events in the order of time: its capacity at the first submission, then those of the jobs.

    `jobs` come in the order of submission. Raises KeyError for an unknown policy, and ValueError as `submit` does.
    """
    scheduler: Scheduler | None = None
    for job in jobs:
        if scheduler is None:
            scheduler = POLICIES[policy](site, cpus, job.submit)
            yield scheduler.capacity()
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()
