"""QBETS: bounds on a wait's quantiles, with a confidence, from the waits of the job's category.

D. Nurmi, J. Brevik, R. Wolski, "QBETS: queue bounds estimation from time series", JSSPP 2007; the binomial method is
that of J. Brevik, D. Nurmi, R. Wolski, "Predicting bounds on queuing delay for batch-scheduled parallel machines",
PPoPP 2006.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta
from scipy.special import bdtr, ndtr, ndtri

from models.arrays import Floats
from models.linear import dot
from models.method import SiteContext, WaitMethod
from models.site.job import Estimate, Job
from models.site.rows import Rows
from models.site.runs import power_of_two
from models.stored_values import encode, reader

UPPER = (0.5, 0.75, 0.9, 0.95)  # quantiles with an upper bound
LOWER = (0.1,)  # quantiles with a lower bound: the probability of a shorter wait is at most this
CHANGE_QUANTILE = 0.95  # the quantile whose bound, exceeded several times in a row, shows that the queue has changed

MAX_CHANCE_OF_MISSES = 0.0025
"""A run of misses with at most this probability counts as a change: three, where waits are independent."""

ROUNDING = 1 - 1e-12  # a probability above this share of the confidence counts as equal to it, due to rounding
WALLTIME_EDGES_S = (900.0, 3600.0, 4 * 3600.0, 12 * 3600.0)  # edges of the ranges of walltimes, seconds
Category = tuple[str, ...]


@cache
def min_waits(q: float, confidence: float) -> int:
    """Return the number of waits that a bound needs, so that the largest is above the quantile with this confidence.

    >>> min_waits(0.95, 0.95)
    59
    """
    return math.ceil(math.log(1 - confidence) / math.log(q))


@lru_cache(4096)
def upper_rank(count: int, q: float, confidence: float) -> int | None:
    """Return the rank, from 1 for the smallest, of the wait that is an upper confidence bound of the quantile `q`.

    The number of waits below the quantile is binomial. The k-th smallest is above the quantile when fewer than k are
    below it (PPoPP 2006, section 3).

    Returns:
        The rank among `count` waits; None if none of them bounds the quantile with this confidence.

    >>> upper_rank(59, 0.95, 0.95), upper_rank(58, 0.95, 0.95), upper_rank(1000, 0.5, 0.95)
    (59, None, 527)
    """
    z, enough = float(ndtri(confidence)), confidence * ROUNDING
    about = count * q + z * math.sqrt(count * q * (1 - q)) + (z * z - 1) * (1 - 2 * q) / 6 - 0.5  # Cornish and Fisher
    below = min(max(math.ceil(about), 0), count)
    while below > 0 and bdtr(below - 1, count, q) >= enough:
        below -= 1
    while bdtr(below, count, q) < enough:
        below += 1
    return below + 1 if below < count else None


@lru_cache(4096)
def lower_rank(count: int, q: float, confidence: float) -> int | None:
    """Return the rank of the wait that is a lower confidence bound of the quantile `q`; None if there is none.

    >>> lower_rank(59, 0.05, 0.95)
    1
    """
    upper = upper_rank(count, 1 - q, confidence)
    return None if upper is None else count + 1 - upper


@cache
def misses_of_a_change(tenths: int) -> int:
    """Misses in a row that show a change, where successive waits have this rank correlation, in tenths.

    Under a Gaussian first-order process a miss is followed by another with probability p; the run is the shortest with
    p^(run - 1) at most `MAX_CHANCE_OF_MISSES`. The papers have a table by simulation instead.

    >>> misses_of_a_change(0), misses_of_a_change(9) > 10
    (3, True)
    """
    edge, rho = float(ndtri(CHANGE_QUANTILE)), min(tenths, 9) / 10
    x = np.linspace(edge, edge + 8.0, 4001)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    both = float(np.trapezoid(density * ndtr((rho * x - edge) / math.sqrt(1 - rho * rho)), x))
    return 1 + math.ceil(math.log(MAX_CHANCE_OF_MISSES) / math.log(both / (1 - CHANGE_QUANTILE)) - 1e-6)


def average_ranks(values: Floats) -> Floats:
    """Return the rank of each value, from 1; equal values share the average of their ranks.

    It is `scipy.stats.rankdata`, without the import of `scipy.stats`, which takes as long as all other imports of a
    worker together, and 45 MB of memory.

    >>> average_ranks(np.array([0.0, 7.0, 0.0, 0.0])).tolist()
    [2.0, 4.0, 2.0, 2.0]
    """
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(count) - (count - 1) / 2)[place]
    return ranks


class _StartedJob(msgspec.Struct, array_like=True, frozen=True):
    categories: tuple[Category, ...]
    wait_s: float


class _Series(msgspec.Struct):
    """The waits of one category since its last change: in the order of the starts, and sorted.

    They count from the row with number `first` on; `misses` are in a row; `estimate` is the last prediction, while it
    is still valid.
    """

    waits: deque[tuple[int, float]] = msgspec.field(default_factory=deque)
    ordered: list[float] = []
    first: int = 0
    misses: int = 0
    estimate: Estimate | None = None

    def append(self, row: tuple[int, float]) -> None:
        self.waits.append(row)
        insort(self.ordered, row[1])
        self.estimate = None

    def drop_before(self, number: int) -> None:
        while self.waits and self.waits[0][0] < number:
            self.estimate = None
            del self.ordered[bisect_left(self.ordered, self.waits.popleft()[1])]

    def bound(self, q: float, confidence: float) -> float | None:
        rank = upper_rank(len(self.ordered), q, confidence)
        return None if rank is None else self.ordered[rank - 1]

    def correlation_tenths(self) -> int:
        """Rank correlation of successive waits, in tenths; O(n log n), only computed after several misses in a row."""
        ranks = average_ranks(np.array([wait for _, wait in self.waits]))
        before, after = ranks[:-1], ranks[1:]
        if len(before) < 2 or np.ptp(before) == 0.0 or np.ptp(after) == 0.0:
            return 0
        before, after = before - before.mean(), after - after.mean()
        both = dot(before, after) / math.sqrt(dot(before, before) * dot(after, after))
        return max(int(10 * both), 0)


class Qbets(WaitMethod):
    """Bounds on the wait from jobs of the same size and walltime; its point estimate is their median.

    A job's categories are size and walltime range, size range, and all jobs; the first with enough waits counts. A
    category that misses its 0.95 bound several times in a row has changed: its history is cut to the last waits, as
    many as this bound needs (JSSPP 2007, section 3). Each bound bounds its quantile with this `confidence`; `depth`
    jobs are kept. O(log n) a prediction.
    """

    name = "qbets"
    by_waits_alone = True
    tunable: ClassVar[Mapping[str, Any]] = {
        "confidence": Annotated[float, Meta(ge=0.5, lt=1.0)],
        "depth": Annotated[int, Meta(ge=100, le=200_000)],
    }

    def __init__(self, confidence: float = 0.95, depth: int = 20_000) -> None:
        self.confidence = confidence
        self.rows: Rows = Rows(depth)
        self._series: dict[Category, _Series] = {}
        self._min_waits = min_waits(CHANGE_QUANTILE, confidence)

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """The median, and the bounds on the quantiles, of the closest category that has enough waits."""
        found = self._closest(job)
        if found is None:
            return Estimate(None, "no history")
        category, series = found
        if series.estimate is None:
            series.estimate = self._estimate(category, series)
        return series.estimate

    def _estimate(self, category: Category, series: _Series) -> Estimate:
        bounds = {}
        for q in LOWER:
            rank = lower_rank(len(series.ordered), q, self.confidence)
            if rank is not None:
                bounds[f"{q:g}"] = series.ordered[rank - 1]
        for q in UPPER:
            bound = series.bound(q, self.confidence)
            if bound is not None:
                bounds[f"{q:g}"] = bound
        middle = series.ordered[len(series.ordered) // 2]
        return Estimate(middle, f"median of {len(series.ordered)} by {_named(category)}", bounds)

    def _closest(self, job: Job) -> tuple[Category, _Series] | None:
        for category in _categories(job):
            series = self._series.get(category)
            if series is not None and len(series.ordered) >= self._min_waits:
                return category, series
        return None

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Add the wait of a job that started to its categories, and detect whether they have changed."""
        row, categories = (self.rows.count, wait_s), _categories(job)
        for category in categories:
            series = self._series.setdefault(category, _Series())
            bound = series.bound(CHANGE_QUANTILE, self.confidence)
            series.misses = series.misses + 1 if bound is not None and wait_s > bound else 0
            series.append(row)
            if self._changed(series):
                self._cut(series)
        leaving = _decode_row(self.rows.values[0]) if len(self.rows.values) == self.rows.depth else None
        self.rows.append(encode(_StartedJob(categories, wait_s)))
        for category in leaving.categories if leaving is not None else ():
            self._drop(category)

    @staticmethod
    def _changed(series: _Series) -> bool:
        if series.misses < misses_of_a_change(0):
            return False  # independent of the correlation, which takes time to compute
        return series.misses >= misses_of_a_change(series.correlation_tenths())

    def _cut(self, series: _Series) -> None:
        series.misses = 0
        if len(series.waits) > self._min_waits:
            series.first = series.waits[-self._min_waits][0]
            series.drop_before(series.first)

    def _drop(self, category: Category) -> None:
        series = self._series.get(category)
        if series is None:  # none of its jobs remained after rows were lost
            return
        series.drop_before(self.rows.oldest)
        if not series.waits:
            del self._series[category]

    def save(self) -> bytes:
        """Serialize the start of each category's history, and its misses."""
        return encode([(name, one.first, one.misses) for name, one in self._series.items()])

    def load(self, saved: bytes) -> None:
        """Restore the saved state; the waits are in the rows."""
        self._series = {}
        for category, first, misses in _decode_categories(saved):
            self._series[category] = _Series(first=first, misses=misses)
        for row in self.rows.numbered:
            started = _decode_row(row.value)
            waited = (row.number, started.wait_s)
            for category in started.categories:
                if row.number >= self._series[category].first:
                    self._series[category].append(waited)


_decode_row = reader(_StartedJob, "a job that started")
_decode_categories = reader(list[tuple[Category, int, int]], "categories")


def _categories(job: Job) -> tuple[Category, ...]:
    size = power_of_two(job.cpus)
    if not job.walltime:
        return (size,), ()
    return (size, str(bisect_left(WALLTIME_EDGES_S, job.walltime))), (size,), ()


def _named(category: Category) -> str:
    return ("site", "size", "size and walltime")[len(category)]
