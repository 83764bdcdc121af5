"""The schedulers by name, and a workload run under one of them."""

from collections import deque
from collections.abc import Iterable, Iterator

from models.records import AnyEvent
from models.simulation.backfill import Conservative, Easy, EasyKill
from models.simulation.multifactor import Multifactor, MultifactorSmall, MultifactorTiers, Priorities
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


Policy = str | Priorities
"""One of `POLICIES`, or what a multifactor scheduler goes by."""


def scheduler_of(policy: Policy, site: str, cpus: int, start_time: int = 0) -> Scheduler:
    """An idle scheduler that plans with the walltimes, unless its policy says otherwise.

    Raises KeyError for an unknown policy.
    """
    if isinstance(policy, Priorities):
        return Multifactor(site, cpus, start_time, priorities=policy)
    return POLICIES[policy](site, cpus, start_time)


def run(
    jobs: Iterable[SimulatedJob],
    cpus: int,
    site: str,
    policy: Policy = "easy",
    changes: Iterable[tuple[int, Policy]] = (),
) -> Iterator[AnyEvent]:
    """The site's events in the order of time: its capacity at the first submission, then those of the jobs.

    `jobs` come in the order of submission. From the times of the `changes` on (Unix seconds, ascending) another policy
    is followed; none of them suspends jobs. Raises KeyError for an unknown policy, and ValueError as `submit` does.
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
            yield from scheduler.take_over(before)
        yield from scheduler.submit(job)
    if scheduler is not None:
        yield from scheduler.finish()
