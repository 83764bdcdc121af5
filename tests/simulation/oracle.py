"""A router that has the sites' own schedulers: what knowing their policies is worth."""

from collections.abc import Iterable, Mapping, Sequence

from models.method_registry import DEFAULT_RUN, run_method_named
from models.records import AnyEvent, End, Start
from models.simulation.assumed_run_times import Estimates, PredictedRunTimes
from models.simulation.scheduler import NEVER, Scheduler
from models.simulation.workload import SimulatedJob
from models.site.job import Job
from tests.simulation.schedulers import fork, start_of


class Oracle:
    """To the site where the job starts first, by copies of the sites' schedulers that run until it does.

    It knows everything but the future: each scheduler's state (queue, running jobs, fairshare, reservations), its
    policy with all parameters, and the jobs there. Of the jobs that come later, at a site or in the grid, it knows
    nothing, and none comes in its copies. So it is not the best that there could be: it is greedy, and what comes later
    may overtake the job.

    Parameters:
        jobs: all of the grid, since a router is not shown how long a job will run.
        told: whether the copies' jobs run as long as they truly will. Else they run as long as queuecast predicts from
            those that have ended at the site: the oracle then knows the policies alone.
    """

    def __init__(self, jobs: Iterable[SimulatedJob], knows_run_times: bool = True) -> None:
        self._jobs = {job.job: job for job in jobs}
        self._knows_run_times = knows_run_times
        self._schedulers: Mapping[str, Scheduler] = {}
        self._lasts: dict[str, Estimates] = {}
        self._began: dict[str, float] = {}

    def watch(self, schedulers: Mapping[str, Scheduler]) -> None:
        """Be given the sites' schedulers, by name; they are only read."""
        self._schedulers = schedulers
        if not self._knows_run_times:
            self._lasts = {name: PredictedRunTimes(run_method_named(DEFAULT_RUN)) for name in schedulers}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Learn how long jobs ran, where that is to be predicted."""
        if self._knows_run_times:
            return
        for event in events:
            if isinstance(event, Start):
                self._began[event.job] = event.time
            elif isinstance(event, End):
                run_s = int(event.time - self._began.pop(event.job))
                self._lasts[event.site].learn(self._jobs[event.job], run_s)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """The one where it starts first."""
        chosen, first = sites[0], NEVER
        for site in sites:
            start = self.start_of(job.id, site, first)
            if start is not None:
                chosen, first = site, start
        return chosen

    def start_of(self, job: str, site: str, before: int = NEVER) -> int | None:
        """When a job that is submitted to a site now starts; None where that is not `before` then."""
        copied = fork(self._schedulers[site], self._lasts.get(site))
        copied.submit(self._jobs[job])
        return start_of(copied, job, before)
