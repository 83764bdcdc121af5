"""A router with copies of the schedulers, to measure the value of exact policies."""

from collections.abc import Iterable, Mapping, Sequence

from models.method_registry import DEFAULT_RUN, run_method_named
from models.records import AnyEvent, End, Start
from models.simulation.assumed_run_times import Estimates, PredictedRunTimes
from models.simulation.scheduler import NEVER, Scheduler
from models.simulation.workload import SimulatedJob
from models.site.job import Job
from tests.simulation.schedulers import fork, start_of


class Oracle:
    """Choose the site with the earliest start, found by running copies of the schedulers.

    A copy has the full state of a scheduler (queue, running jobs, fairshare, reservations) and its policy with all
    parameters. It gets no later jobs. So the oracle is not an optimum: it is greedy, and later jobs may overtake the
    job.

    Parameters:
        jobs: all jobs of the grid, as a router does not get their run times.
        knows_run_times: True to use the true run times in the copies. Else, queuecast predicts them from the ended jobs
            of the site, and only the policies are exact.
    """

    def __init__(self, jobs: Iterable[SimulatedJob], knows_run_times: bool = True) -> None:
        self._jobs = {job.job: job for job in jobs}
        self._knows_run_times = knows_run_times
        self._schedulers: Mapping[str, Scheduler] = {}
        self._lasts: dict[str, Estimates] = {}
        self._began: dict[str, float] = {}

    def watch(self, schedulers: Mapping[str, Scheduler]) -> None:
        """Set the schedulers by site; they are only read."""
        self._schedulers = schedulers
        if not self._knows_run_times:
            self._lasts = {name: PredictedRunTimes(run_method_named(DEFAULT_RUN)) for name in schedulers}

    def observe(self, events: Sequence[AnyEvent]) -> None:
        """Learn the run times of ended jobs if they are to be predicted."""
        if self._knows_run_times:
            return
        for event in events:
            if isinstance(event, Start):
                self._began[event.job] = event.time
            elif isinstance(event, End):
                run_s = int(event.time - self._began.pop(event.job))
                self._lasts[event.site].learn(self._jobs[event.job], run_s)

    def choose(self, job: Job, sites: Sequence[str]) -> str:
        """Return the site with the earliest start."""
        chosen, first = sites[0], NEVER
        for site in sites:
            start = self.start_of(job.id, site, first)
            if start is not None:
                chosen, first = site, start
        return chosen

    def start_of(self, job: str, site: str, before: int = NEVER) -> int | None:
        """Return the start of a job submitted to a site now, or None if it is not before `before`."""
        copied = fork(self._schedulers[site], self._lasts.get(site))
        copied.submit(self._jobs[job])
        return start_of(copied, job, before)
