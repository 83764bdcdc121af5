"""The schedulers by name, and a workload run under one of them, and how well it fares: the figures
of the papers' tables.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import msgspec

from models.records import AnyEvent, End, Start
from models.simulation.backfill import Conservative, Easy, EasyKill
from models.simulation.estimates import Estimates
from models.simulation.multifactor import Multifactor
from models.simulation.preemptive import EasyPreemptive, Lerwf, Preemptive
from models.simulation.scheduler import Ordered, Scheduler, least_work, shortest
from models.simulation.workload import SimulatedJob

POLICIES: dict[str, Callable[..., Scheduler]] = {
    "fcfs": Ordered,
    "fcfs-fill": partial(Ordered, filling=True),
    "lewf": partial(Ordered, rank=shortest),
    "lewf-fill": partial(Ordered, rank=shortest, filling=True),
    "lwf": partial(Ordered, rank=least_work),
    "lerwf": Lerwf,
    "lerwf-fill": partial(Lerwf, filling=True),
    "easy": Easy,
    "easy-kill": EasyKill,
    "easy-preemptive": EasyPreemptive,
    "conservative": Conservative,
    "multifactor": Multifactor,
}
"""Makers of the schedulers by the name of their policy; each takes what `Scheduler` does."""

WITHOUT_RUN_TIMES = frozenset({"fcfs", "fcfs-fill"})
"""The policies that do not look at run times."""


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


SHORT_S = 10
"""Seconds that a shorter run counts as in the bounded slowdown."""


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one schedule; means are over all jobs, killed ones included.

    `utilisation` is the work that was done, processors times seconds, over what the machine could have done from the
    first submission to the last end, `total_s` (Gibbons 1997, section 6.2). The wait ends at a job's first start, the
    response time at its end; the bounded slowdown is the response time over the run time, which counts as at least
    10 s, and at least 1. `killed` and `suspended` count jobs, `suspensions` how often that was.
    """

    jobs: int
    utilisation: float
    wait_s: float
    response_s: float
    slowdown: float
    total_s: int
    killed: int
    suspended: int
    suspensions: int


def perform(
    jobs: Sequence[SimulatedJob],
    cpus: int,
    policy: str,
    estimates: Estimates,
    advance: Callable[[], None] = lambda: None,
) -> Performance:
    """Run jobs, in the order of submission, under a policy that plans with these estimates.

    Walltimes are requests only: no job is killed at its walltime, unless the policy does so. `advance` is
    called once a job. Raises KeyError for an unknown policy, and ValueError without a job or as `Scheduler.submit`
    does.
    """
    if not jobs:
        raise ValueError("no jobs")
    scheduler = POLICIES[policy](policy, cpus, jobs[0].submit, estimates, enforced=False)
    starts: dict[str, float] = {}
    ran: list[tuple[SimulatedJob, float, End]] = []
    known = {job.job: job for job in jobs}

    def take(events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Start):
                starts[event.job] = event.time
            elif isinstance(event, End):
                ran.append((known[event.job], starts.pop(event.job), event))

    for job in jobs:
        take(scheduler.submit(job))
        advance()
    take(scheduler.finish())
    suspensions = scheduler.suspensions if isinstance(scheduler, Preemptive) else Counter[str]()
    killed = [end.state == "timeout" for _, _, end in ran]
    runs = [end.time - start if cut else float(job.run) for (job, start, end), cut in zip(ran, killed, strict=True)]
    responses = [end.time - job.submit for job, _, end in ran]
    total_s = int(ran[-1][2].time - jobs[0].submit)
    work = sum(job.cpus * run for (job, _, _), run in zip(ran, runs, strict=True))
    return Performance(
        jobs=len(jobs),
        utilisation=work / (cpus * total_s) if total_s else 0.0,
        wait_s=sum(start - job.submit for job, start, _ in ran) / len(jobs),
        response_s=sum(responses) / len(jobs),
        slowdown=sum(max(r / max(run, SHORT_S), 1.0) for r, run in zip(responses, runs, strict=True)) / len(jobs),
        total_s=total_s,
        killed=sum(killed),
        suspended=len(suspensions),
        suspensions=suspensions.total(),
    )
