"""How well a workload fares under a scheduler: the figures of the papers' tables."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from models.records import AnyEvent, End, Start
from models.simulation.estimates import Estimates
from models.simulation.policies import POLICIES
from models.simulation.preemptive import Preemptive
from models.simulation.workload import SimulatedJob

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
    tally = _Tally(jobs)
    for job in jobs:
        tally.add(scheduler.submit(job))
        advance()
    tally.add(scheduler.finish())
    return tally.performance(cpus, scheduler.suspensions if isinstance(scheduler, Preemptive) else Counter())


class _Tally:
    """Sums over the jobs that have ended."""

    def __init__(self, jobs: Sequence[SimulatedJob]) -> None:
        self._jobs = {job.job: job for job in jobs}
        self._begin = jobs[0].submit
        self._starts: dict[str, float] = {}
        self._end = self._wait = self._response = self._slowdown = self._work = 0.0
        self._killed = 0

    def add(self, events: Iterable[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Start):
                self._starts[event.job] = event.time
            elif isinstance(event, End):
                self._add_job(self._jobs[event.job], self._starts.pop(event.job), event)

    def _add_job(self, job: SimulatedJob, start: float, end: End) -> None:
        killed = end.state == "timeout"
        run = end.time - start if killed else float(job.run)
        response = end.time - job.submit
        self._killed += killed
        self._wait += start - job.submit
        self._response += response
        self._slowdown += max(response / max(run, SHORT_S), 1.0)
        self._work += job.cpus * run
        self._end = end.time

    def performance(self, cpus: int, suspensions: Counter[str]) -> Performance:
        count, total_s = len(self._jobs), int(self._end - self._begin)
        return Performance(
            jobs=count,
            utilisation=self._work / (cpus * total_s) if total_s else 0.0,
            wait_s=self._wait / count,
            response_s=self._response / count,
            slowdown=self._slowdown / count,
            total_s=total_s,
            killed=self._killed,
            suspended=len(suspensions),
            suspensions=suspensions.total(),
        )
