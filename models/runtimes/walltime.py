"""The requested walltime as an estimate of the run time."""

from models.method import NO_MEMORY, RunMethod
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory


def within(run_s: float, walltime: float | None, elapsed_s: float = 0.0) -> float:
    """Limit a run time to the walltime, and to at least the elapsed run time."""
    return max(min(run_s, walltime) if walltime else run_s, elapsed_s, 0.0)


class Walltime(RunMethod):
    """The requested walltime: what schedulers plan with, and what every other method must beat.

    >>> Walltime().predict(Job(id="1", attempt=0, submit=0.0, walltime=3600.0), RunHistory()).run_s
    3600.0
    """

    name = "walltime"
    memory = NO_MEMORY

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the walltime or the elapsed run time, whichever is longer; None if no walltime was requested."""
        if not job.limit_s or job.limit_s < 0:
            return RunEstimate(None, "no walltime requested")
        return RunEstimate(within(job.limit_s, job.limit_s, elapsed_s), "requested walltime")
