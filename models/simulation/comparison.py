"""Performance of a scheduler on a workload: the figures of the papers' tables."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import fsum

import msgspec

from models.records import AnyEvent, End, Start
from models.simulation.assumed_run_times import Estimates
from models.simulation.policies import POLICIES
from models.simulation.preemptive import Preemptive
from models.simulation.workload import SimulatedJob

SHORT_S = 10  # seconds that a shorter run counts as in the bounded slowdown


class Performance(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one schedule; means are over all jobs, killed ones included.

    `utilisation` is the work done, CPUs times seconds, divided by the machine's capacity from the first submission to
    the last end, `total_s` (Gibbons 1997, section 6.2). The wait ends at a job's first start, the response time at its
    end. The bounded slowdown is the response time over the run time, which counts as at least 10 s, and at least 1.
    `killed` and `suspended` count jobs, `suspensions` counts the suspensions.
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

    Walltimes are requests only: no job is killed at its walltime, unless the policy does so. `advance` is called once a
    job.

    Raises:
        KeyError: the policy does not exist.
        ValueError: there is no job, or as in `Scheduler.submit`.
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
    work = fsum(job.cpus * run for (job, _, _), run in zip(ran, runs, strict=True))
    return Performance(
        jobs=len(jobs),
        utilisation=work / (cpus * total_s) if total_s else 0.0,
        wait_s=fsum(start - job.submit for job, start, _ in ran) / len(jobs),
        response_s=fsum(responses) / len(jobs),
        slowdown=fsum(max(r / max(run, SHORT_S), 1.0) for r, run in zip(responses, runs, strict=True)) / len(jobs),
        total_s=total_s,
        killed=sum(killed),
        suspended=len(suspensions),
        suspensions=suspensions.total(),
    )
