"""A simple estimate of the run time: the mean of the last runs of the closest category."""

import sys
from collections.abc import Iterable
from math import fsum

from models.method import NO_MEMORY, RunMethod
from models.runtimes.walltime import within
from models.site.job import Job, RunEstimate
from models.site.runs import Run, RunHistory, Template

LAST_RUNS = 8  # number of runs in the mean
MIN_RUNS = 2  # minimum number of runs of a category


class Closest(RunMethod):
    """The mean of the last eight runs of the first category that has two.

    The categories are, the closest first: executable and user; user and size; queue and user; user; all jobs. Each run
    counts relative to its requested walltime where both jobs have one, and no estimate is above the walltime, at which
    the scheduler ends the job.

    >>> method = Closest()
    >>> history = RunHistory(method.templates)
    >>> job = Job(id="1", attempt=0, submit=0.0, user="ada", cpus=4, walltime=3600.0)
    >>> for number in range(3):
    ...     new, gone = history.learn(job, 1800.0)
    >>> method.predict(job, history).run_s
    1800.0
    """

    name = "closest"
    memory = NO_MEMORY
    templates = tuple(
        Template(attributes, LAST_RUNS)
        for attributes in (("executable", "user"), ("user", "cpus"), ("queue", "user"), ("user",), ())
    )

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the mean; if some runs were longer than the elapsed run time, the mean of these."""
        for template in self.templates:
            kept = runs.of(template.category(job))
            if len(kept) >= MIN_RUNS:
                last = kept[-LAST_RUNS:]
                longer = [run for run in last if run.run_s > elapsed_s]
                expected = within(_mean(job, longer or last), job.walltime, elapsed_s)
                return RunEstimate(expected, sys.intern(f"mean of {len(longer or last)} by {template.name}"))
        return RunEstimate(None, "no history")


def _mean(job: Job, runs: list[Run]) -> float:
    limit = job.limit_s or 0.0
    if limit <= 0:
        return _average(run.run_s for run in runs)
    return _average(limit * min(run.run_s / run.walltime, 1.0) if run.walltime else run.run_s for run in runs)


def _average(values: Iterable[float]) -> float:
    listed = list(values)
    return fsum(listed) / len(listed)
