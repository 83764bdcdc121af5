"""Run times from a weighted median of recent runs in several categories."""

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate
from math import exp, fsum
from operator import itemgetter
from typing import Annotated

import msgspec
from msgspec import Meta

from models.method import NO_MEMORY, RunMethod
from models.runtimes.walltime import within
from models.site.job import Job, RunEstimate
from models.site.runs import Run, RunHistory, Template
from models.stored_values import encode, reader

LAST_RUNS = 16  # number of runs of a category in the median
MEAN_RUNS = 8  # number of runs in the mean
MIN_RUNS = 2  # minimum number of runs at the site, and of the category of the mean
AGE_DECAY, DISTANCE_DECAY = 0.85, 0.5
"""Weight of a run relative to the next newer one, and of a category relative to the next closer one."""

WeightedRuns = list[tuple[float, float]]
"""Run times in seconds with their weights, the shortest first."""

LOW, MEDIAN, HIGH = 0.05, 0.5, 0.95
"""Quantiles of the runs. Future runs vary more than past ones: these two contain about 80 % of them."""

OUTSIDE = 0.1  # wanted share of runs below, and above, the interval
STEP, MAX_SHIFT = 0.003, 3.0


class IntervalShift(msgspec.Struct, array_like=True):
    """Logarithms of the factors by which the interval is widened at its low and its high end.

    Each is a quantile tracker (Gibbs and Candès 2021): a run outside increases it, a run inside decreases it.
    """

    low: Annotated[float, Meta(ge=-MAX_SHIFT, le=MAX_SHIFT)] = 0.0
    high: Annotated[float, Meta(ge=-MAX_SHIFT, le=MAX_SHIFT)] = 0.0

    def see(self, low: float, high: float, run_s: float) -> None:
        """Update the factors with a run of `run_s` seconds for which this interval was predicted."""
        self.low = _moved(self.low, run_s < low)
        self.high = _moved(self.high, run_s > high)


_run_s = itemgetter(0)

_read_shift = reader(IntervalShift, "the interval of run times")

_CATEGORIES = (
    ("user", "walltime"),
    ("executable", "user"),
    ("user", "cpus"),
    ("queue", "user"),
    ("user",),
    ("queue",),
    (),
)
"""Attributes of the categories, the closest first."""

_MEAN_PLACES = tuple(
    place for place, names in enumerate(_CATEGORIES) if names not in (("user", "walltime"), ("queue",))
)
"""Places of the categories of the mean."""

_WEIGHTS = tuple(
    tuple(DISTANCE_DECAY**place * AGE_DECAY**age for age in range(LAST_RUNS)) for place in range(len(_CATEGORIES))
)


class Closest(RunMethod):
    """The weighted median of the last 16 runs of each of seven categories; for schedules a mean.

    The categories are, the closest first: user and walltime; executable and user; user and size; queue and user; user;
    queue; all jobs. Each run counts relative to its requested walltime where both jobs have one, and no estimate is
    above the walltime, at which the scheduler ends the job. The interval contains about 80 % of the runs.

    Simulated schedules use the mean of the last eight runs of the first category that has two, without (user, walltime)
    and (queue): predicted work is a sum of run times, and the sum of medians is too small.

    >>> method = Closest()
    >>> history = RunHistory(method.templates)
    >>> job = Job(id="1", attempt=0, submit=0.0, user="ada", cpus=4, walltime=3600.0)
    >>> for run_s in (900.0, 1800.0, 2700.0):
    ...     new, gone = history.learn(job, run_s)
    >>> estimate = method.predict(job, history)
    >>> estimate.run_s, estimate.interval, estimate.reason
    (1800.0, (900.0, 2700.0), 'median of recent runs, closest by user,walltime')
    """

    name = "closest"
    memory = NO_MEMORY
    templates = tuple(Template(attributes, LAST_RUNS) for attributes in _CATEGORIES)

    def __init__(self) -> None:
        self._shift = IntervalShift()

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the median and the mean; of the runs longer than the elapsed run time, if there are any."""
        kept = [runs.of(template.category(job)) for template in self.templates]
        if len(kept[-1]) < MIN_RUNS:
            return RunEstimate(None, "no history")
        limit_s = job.limit_s or 0.0
        pool = _pool(kept, limit_s)
        if elapsed_s > 0.0:
            pool = [run for run in pool if run[0] > elapsed_s] or pool
        low, middle, high = _quantiles(pool)
        low, high = min(low * exp(-self._shift.low), middle), max(max(high, 1.0) * exp(self._shift.high), middle)
        mean = _mean((kept[place] for place in _MEAN_PLACES), limit_s, elapsed_s)
        low, middle, high, mean = (within(run_s, job.walltime, elapsed_s) for run_s in (low, middle, high, mean))
        return RunEstimate(middle, _reason(self.templates, kept), low, high, mean)

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        """Adjust the interval. A run beyond the walltime counts as the walltime, because no estimate is above it."""
        estimate = job.run_estimates.get(self.name)
        if estimate is not None and estimate.interval is not None:
            self._shift.see(*estimate.interval, within(run_s, job.walltime))

    def save(self) -> bytes:
        """Serialize the shift of the interval."""
        return encode(self._shift)

    def load(self, saved: bytes) -> None:
        """Restore the shift of the interval.

        Raises:
            ValueError: it is invalid.
        """
        self._shift = _read_shift(saved)


def _mean(kept: Iterable[list[Run]], limit_s: float, elapsed_s: float) -> float:
    """Return the mean of the first category with enough runs, in seconds of a job with this walltime (0 for none)."""
    last = next(runs for runs in kept if len(runs) >= MIN_RUNS)[-MEAN_RUNS:]
    longer = [run for run in last if run.run_s > elapsed_s] or last
    return fsum(_in_mean(run, limit_s) for run in longer) / len(longer)


def _in_mean(run: Run, limit_s: float) -> float:
    return limit_s * min(run.run_s / run.walltime, 1.0) if limit_s > 0.0 and run.walltime else run.run_s


def _pool(kept: Iterable[list[Run]], limit_s: float) -> WeightedRuns:
    """Return the runs of all categories in seconds of a job with this walltime (0 for none), with their weights."""
    pool: WeightedRuns = []
    for category, weights in zip(kept, _WEIGHTS, strict=True):
        last = category[: -LAST_RUNS - 1 : -1]
        run_times = [run.run_s for run in last] if limit_s <= 0.0 else _scaled(last, limit_s)
        pool += zip(run_times, weights, strict=False)
    pool.sort(key=_run_s)
    return pool


def _scaled(runs: Iterable[Run], limit_s: float) -> list[float]:
    """Return run times as shares of the walltime that a job has (seconds), where the runs have one.

    Comparisons instead of `min`: a job's prediction scales some 100 runs.
    """
    return [
        (limit_s * share if (share := run.run_s / run.walltime) < 1.0 else limit_s)
        if run.walltime
        else (run.run_s if run.run_s < limit_s else limit_s)
        for run in runs
    ]


def _quantiles(pool: WeightedRuns) -> Iterator[float]:
    """Yield the quantiles `LOW`, `MEDIAN` and `HIGH` of weighted runs, the shortest first."""
    weights = [weight for _, weight in pool]
    total, sums = fsum(weights), [*accumulate(weights)]
    for quantile in (LOW, MEDIAN, HIGH):
        yield pool[bisect_left(sums, quantile * total)][0]


def _reason(templates: Iterable[Template], kept: Iterable[list[Run]]) -> str:
    closest = next(template.name for template, runs in zip(templates, kept, strict=True) if runs)
    return sys.intern(f"median of recent runs, closest by {closest}")


def _moved(shift: float, outside: bool) -> float:
    return min(max(shift + STEP * (outside - OUTSIDE), -MAX_SHIFT), MAX_SHIFT)
