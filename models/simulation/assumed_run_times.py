"""Run times that a scheduler assumes for its jobs: requested, true, or predicted from jobs that have ended."""

import math

from models.method import RunMethod
from models.simulation.workload import SimulatedJob
from models.site.job import Job
from models.site.runs import RunHistory

DEFAULT_RUN_S = 3600.0
"""Seconds: the estimate of a job without a walltime and without a prediction, before any job has ended."""


class Estimates:
    """Estimates by the requested walltimes, and what all others fall back on.

    A job without an estimate is taken to run for its walltime, or where it has none for the mean of those that have
    ended, or before any has for an hour. A job that has outlived its estimate is taken to run for as long again as it
    has already, but no longer than to its walltime while that is still to come.
    """

    learns = False  # whether an estimate of a job may change when another job ends

    def __init__(self) -> None:
        self._ended = 0
        self._run_s = 0

    def of(self, job: SimulatedJob, elapsed: int = 0) -> int:
        """Whole seconds that the job runs in all, at least 1, and more than the `elapsed` that it has run."""
        expected = self._expect(job, elapsed)
        if expected is None:
            expected = job.walltime or (self._run_s / self._ended if self._ended else DEFAULT_RUN_S)
        estimate = max(math.ceil(expected), 1)
        if estimate > elapsed:
            return estimate
        return job.walltime if job.walltime and elapsed < job.walltime < 2 * elapsed else 2 * elapsed

    def learn(self, job: SimulatedJob, run: int) -> None:
        """Take in that the job has ended after `run` seconds."""
        self._ended += 1
        self._run_s += run

    def _expect(self, job: SimulatedJob, elapsed: int) -> float | None:
        return None


class Actual(Estimates):
    """The true run times: the most that knowing them could give."""

    def _expect(self, job: SimulatedJob, elapsed: int) -> float | None:
        return job.run


class PredictedRunTimes(Estimates):
    """Estimates by a method for run times, which learns from each job as it ends.

    Smith, Taylor and Foster 1999, section 2.1.4.
    """

    learns = True

    def __init__(self, method: RunMethod) -> None:
        super().__init__()
        self.method, self.runs = method, RunHistory(method.templates)

    def learn(self, job: SimulatedJob, run: int) -> None:
        """Take in that the job has ended after `run` seconds, and show it to the method before the history has it."""
        super().learn(job, run)
        self.method.learn(_seen(job), float(run), self.runs)
        self.runs.learn(_seen(job), float(run))

    def _expect(self, job: SimulatedJob, elapsed: int) -> float | None:
        return self.method.predict(_seen(job), self.runs, float(elapsed)).schedule_s


def _seen(job: SimulatedJob) -> Job:
    """Return the job with only the data that is available before it ends."""
    return Job.of(job.submission(""))
