"""Run times from a log-uniform model of each category, by Downey (1997).

The model follows the description and evaluation by Smith, Foster and Taylor (1998, section 4). The cumulative
distribution of a category's run times is modelled as a straight line over the logarithm of time,

    F(t) = β0 + β1 ln t   from t_min = e^(-β0/β1), where it is 0, to t_max = e^((1-β0)/β1), where it is 1,

fitted to the observed distribution by least squares. If a job has already run for a seconds, its run time is
log-uniform between a and t_max, with

    the conditional median √(a·t_max) and the conditional average (t_max - a) / (ln t_max - ln a).

(Smith's section misprints both: the root covers the exponential only in the median, and the average has 1 for a.)
"""

import math
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from models.method import RunMethod
from models.runtimes.walltime import within
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory, Template

MAX_FITTED_RUNS = 64
"""Runs that a distribution is fitted to. On the traces of KTH and CTC the error falls from 1024 to 64."""

MIN_QUEUE_RUNS = 8  # runs that a queue needs before it is used
MIN_RUN_S = 1.0  # clocks have a resolution of a second: a shorter run counts as one, since zero has no logarithm


class LogUniform(NamedTuple):
    """A log-uniform distribution of run times between two limits, in seconds."""

    least: float
    greatest: float

    @classmethod
    def fitted(cls, run_times: npt.ArrayLike) -> "LogUniform":
        """Fit β0 + β1 ln t by least squares to the share of `run_times` that are at most t; O(n log n).

        If all run times are equal, they are t_min and t_max.
        """
        logs = np.log(np.maximum(np.sort(np.asarray(run_times, np.float64)), MIN_RUN_S))
        if logs[-1] - logs[0] < 1e-9:  # nothing but rounding to fit a line to
            return cls(math.exp(logs[0]), math.exp(logs[-1]))
        shares = np.arange(1, len(logs) + 1) / len(logs)
        centred = logs - logs.mean()
        slope = float((centred * shares).sum() / (centred * centred).sum())
        intercept = float(shares.mean()) - slope * float(logs.mean())
        return cls(math.exp(-intercept / slope), math.exp((1.0 - intercept) / slope))

    def beyond(self, elapsed_s: float) -> "LogUniform":
        """Return the distribution of the run times above `elapsed_s`; if there are none, `elapsed_s` itself."""
        least = max(self.least, elapsed_s)
        return LogUniform(least, max(self.greatest, least))

    @property
    def median(self) -> float:
        """√(a·t_max)."""
        return math.sqrt(self.least) * math.sqrt(self.greatest)

    @property
    def average(self) -> float:
        """(t_max - a) / (ln t_max - ln a)."""
        span = math.log(self.greatest / self.least)
        return self.least * math.expm1(span) / span if span > 0 else self.least


class Downey(RunMethod):
    """Conditional median or average of the last 64 run times in the job's queue, or at the site if the queue has few.

    A job that has not started runs for t_min at least, so that is its a. (Smith's comparison assumes that each job has
    run for a second already; this increases the median's mean error on the KTH and CTC traces.) Each prediction fits
    the distribution again, in the order of `runs`, so that it is the same after a restore: O(64 log 64).

    Args:
        lifetime: "median" or "average".

    >>> method = Downey()
    >>> history = RunHistory(method.templates)
    >>> job = Job(id="1", attempt=0, submit=0.0, queue="batch")
    >>> for run_s in (10, 20, 40, 80, 160, 320, 640, 1280):
    ...     new, gone = history.learn(job, run_s)
    >>> [round(method.predict(job, history, elapsed_s).run_s) for elapsed_s in (0.0, 100.0, 5000.0)]
    [80, 358, 5000]
    """

    name = "downey"
    tunable: ClassVar[dict[str, Any]] = {"lifetime": Literal["median", "average"]}
    templates = (Template(("queue",), MAX_FITTED_RUNS), Template((), MAX_FITTED_RUNS))

    def __init__(self, lifetime: Literal["median", "average"] = "median") -> None:
        self.lifetime = lifetime

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the median or average, given that the job has run for `elapsed_s`."""
        for template in self.templates:
            kept = [run.run_s for run in runs.of(template.category(job))][-MAX_FITTED_RUNS:]
            if len(kept) >= MIN_QUEUE_RUNS or (kept and not template.attributes):
                model = LogUniform.fitted(kept).beyond(elapsed_s)
                expected = model.median if self.lifetime == "median" else model.average
                reason = f"conditional {self.lifetime} of {len(kept)} by {template.name}"
                return RunEstimate(within(expected, job.walltime, elapsed_s), reason)
        return RunEstimate(None, "no history")
