"""A multifactor scheduler with tiers and limits of queues, and a bonus for small jobs."""

from collections import Counter
from math import inf
from typing import Literal

from models.method_registry import run_method_named
from models.simulation import Estimates, PredictedRunTimes, SimulatedJob, multifactor

LEARNT_BY = "last-two"
"""Run-time method of plans that do not use the walltimes."""


class Priorities(multifactor.Priorities, frozen=True, kw_only=True):
    """Further terms of the priority, and limits of queues.

    A job gets `small` points if it requests at most the share `small_cpus` of the machine and its planned run time is
    at most `small_s`; `tiers` has points by queue. `limits` has limits by queue, but one job of a queue may always run.
    Planned run times, `plans`, are the walltimes or those of the user's last jobs.
    """

    small: float = 0.0
    small_cpus: float = 0.05
    small_s: float = 3600.0
    tiers: tuple[tuple[str, float], ...] = ()
    limits: tuple[tuple[str, float], ...] = ()
    plans: Literal["walltime", "predicted"] = "walltime"


class Multifactor(multifactor.Multifactor):
    """The scheduler with these priorities."""

    def __init__(
        self,
        site: str,
        cpus: int,
        start_time: int = 0,
        estimates: Estimates | None = None,
        enforced: bool = True,
        priorities: Priorities = Priorities(cap=0.4),  # noqa: B008
    ) -> None:
        if estimates is None and priorities.plans == "predicted":
            estimates = PredictedRunTimes(run_method_named(LEARNT_BY))
        super().__init__(site, cpus, start_time, estimates, enforced, priorities=priorities)
        self.more = priorities
        self._in_queue = Counter[str | None]()  # CPUs of running jobs by queue
        self._tiers = dict(priorities.tiers)
        self._limits = {queue: share * cpus for queue, share in priorities.limits}

    def _forbidden(self, job: SimulatedJob) -> bool:
        its = self._in_queue[job.queue]
        limit = inf if job.queue is None else self._limits.get(job.queue, inf)
        return super()._forbidden(job) or (its > 0 and its + job.cpus > limit)

    def _plan(self, job: SimulatedJob) -> None:
        super()._plan(job)
        small = job.cpus <= self.more.small_cpus * self.cpus and self.planned[job.job] <= self.more.small_s
        tier = self._tiers.get(job.queue, 0.0) if job.queue is not None else 0.0
        self._fixed[job.job] = self._fixed[job.job] + self.more.small * small + tier

    def _hold(self, job: SimulatedJob, cpus: int) -> None:
        super()._hold(job, cpus)
        self._in_queue[job.queue] += cpus
