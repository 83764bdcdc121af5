"""Qespera by distributions: compare site states by histograms instead of sums.

Murali and Vadhiyar 2015, sections 3.1 and 3.2.1. Two states with the same sums can differ much: one job of 64 CPUs, or
64 jobs of one CPU. Six sets describe a state (table I): sizes, estimated run times and elapsed waits of the queued
jobs; sizes, estimated run times and elapsed run times of the running jobs. On three of the paper's eight traces, those
with few kinds of jobs, histograms are more accurate than sums. On the other five they are less accurate, and they cost
about thirty times as much. They are therefore a separate method, to run beside `qespera` where the gain is worth the
cost.

`docs/research/papers.md` lists what the paper leaves open and the choices made here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec
import numpy as np
from msgspec import Meta

from models.arrays import Floats, Singles
from models.kernels import njit
from models.method import SiteContext
from models.records import JobKey
from models.site.history import History
from models.site.job import Job, Phase
from models.site.rows import PerJob, Rows
from models.site.spearman import RollingSpearman
from models.site.state import SiteState
from models.stored_values import encode, reader
from models.waits.qespera import Qespera

Samples = Singles  # six sorted sets, (6, SET_VALUES), each padded with NaN
SETS = 6  # sets of values that describe a state
SET_VALUES = 64  # maximum number of values that are kept of a set
BINS = 10  # bins of a histogram

NO_DEPTH = 1 << 40  # rows that are kept before the size of the history is read


class _StoredRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row: a job that started, with its number in the history, its request, its wait and the site's state."""

    number: int
    cpus: float
    run_s: float
    wait_s: float
    samples: bytes


class QesperaDistributions(Qespera):
    """Algorithm 1 with `use_distribution`. The states of 6000 jobs take ten MB, twice in memory and once in rows."""

    name: ClassVar[str] = "qespera-distributions"
    learns = True
    tunable: ClassVar[Mapping[str, Any]] = {**Qespera.tunable, "bins": Annotated[int, Meta(ge=1, le=1000)]}
    rows: Rows
    per_job: PerJob[bytes]

    def __init__(self, bins: int = BINS, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.bins = bins
        self.rows = Rows(NO_DEPTH)
        self.per_job = PerJob(bytes)  # the states at the submission of the queued jobs
        self._numbers = np.empty(0, np.int64)  # job of the site's history at each place, -1 for none
        self._samples = np.empty((0, SETS, SET_VALUES), np.float32)
        self._window: RollingSpearman | None = None
        self._layout = (0, 0)  # the size and the first job of the history for these places

    def notice(self, job: Job, context: SiteContext) -> None:
        """Keep the site's state at a job's submission until the job starts."""
        self.per_job.put(job.key, samples_of(context.state, job.submit).tobytes())

    def distribution_distances(self, job: Job, context: SiteContext) -> Floats | None:
        """Distances by equation 2, in the history's order; None while fewer than two jobs were seen."""
        self.notice(job, context)
        found = _samples(self.per_job.get(job.key) or b"")[0]
        history = context.history
        count = len(history)
        if len(self.rows.values) < 2:
            return None
        self._lay_out(history)
        assert self._window is not None
        last = history.count - 1
        numbers = last - (last - history.first - np.arange(count)) % history.size
        known = self._numbers[:count] == numbers
        assert job.features is not None
        distance = histogram_distances(
            job.features[:2],
            history.window.columns,
            found,
            self._samples[:count],
            self._window.weights,
            history.window.minimum[1],
            history.window.maximum[1],
            self.bins,
        )
        return np.where(known, distance, 1.0)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Add the state at the job's submission, with the job's place in the history."""
        samples = self.per_job.pop(job.key)
        if samples is None:
            return
        history = context.history
        self._lay_out(history)
        assert self._window is not None and job.features is not None
        place = (history.count - history.first) % history.size
        cpus, run_s = job.features[:2].tolist()
        found = _StoredRow(history.count, cpus, run_s, wait_s, samples)
        self._numbers[place], self._samples[place] = found.number, _samples(samples)[0]
        self._window.push(self._correlated(found), wait_s)
        self.rows.append(encode(found))

    def forget(self, key: JobKey) -> None:
        """Drop the state of a job whose wait will stay unknown."""
        self.per_job.pop(key)

    def load(self, saved: bytes) -> None:
        """Lay out the rows."""
        found = list(self.rows.read(_decode))
        self._numbers = np.array([one.number for one in found], np.int64)
        self._samples = _samples(b"".join(one.samples for one in found))
        self._window, self._layout = None, (0, 0)

    def _correlated(self, found: _StoredRow) -> Floats:
        """Return the values whose correlation with the wait gives the weight of each distance."""
        return np.concatenate(((found.cpus, found.run_s), norms(_samples(found.samples)[0], self.bins)))

    def _lay_out(self, history: History) -> None:
        """Sort the arrays in the order of the history, which may be new or of another size."""
        size, first = history.size, history.first
        if self._window is not None and self._layout == (size, first):
            return
        held = (self._numbers >= history.oldest) & (self._numbers < history.count)
        numbers, samples = self._numbers[held], self._samples[held]
        self._numbers = np.full(size, -1, np.int64)
        self._samples = np.full((size, SETS, SET_VALUES), np.nan, np.float32)
        places = (numbers - first) % size
        self._numbers[places], self._samples[places] = numbers, samples
        self.rows.resize(size)
        learnt = list(self.rows.read(_decode))
        correlated = np.array([self._correlated(found) for found in learnt]).reshape(-1, 2 + SETS)
        self._window = RollingSpearman.from_rows(correlated, [found.wait_s for found in learnt], size)
        self._layout = (size, first)


_decode = reader(_StoredRow, "a saved state")


def _samples(stored: bytes) -> Samples:
    """The states of one job or several, (jobs, SETS, SET_VALUES); a copy, so that kernels get only writable ones."""
    return np.frombuffer(stored, np.float32).reshape(-1, SETS, SET_VALUES).copy()


def samples_of(state: SiteState, now: float) -> Samples:
    """Return the six sets of table I for the state at `now`; O(live jobs)."""
    found = np.full((SETS, SET_VALUES), np.nan, np.float32)
    for first, phase in ((0, Phase.QUEUED), (3, Phase.RUNNING)):
        jobs = list(state.in_phase(phase))
        sets = (
            [float(job.counted_cpus) for job in jobs],
            [job.planned_run_s for job in jobs],
            [now - (job.submit if job.shifted_start is None else job.shifted_start) for job in jobs],
        )
        for index, values in enumerate(sets, first):
            kept = np.sort(np.array(values, np.float32))
            if len(kept) > SET_VALUES:
                kept = kept[np.linspace(0, len(kept) - 1, SET_VALUES).round().astype(np.int64)]
            found[index, : len(kept)] = kept
    return found


@njit(cache=True)
def norms(samples: Samples, bins: int) -> Floats:
    """The L² norm of each set's histogram over its own range; 0 for an empty set."""
    norm = np.zeros(SETS)
    for index in range(SETS):
        count = _filled(samples[index])
        if count > 0:
            norm[index] = np.sqrt((_histogram(samples[index], count, bins) ** 2).sum())
    return norm


@njit(cache=True)
def non_uniformity(samples: Samples, bins: int) -> float:
    """Mean distance of the sets' histograms from uniform ones (section 4.1), each over its own range.

    The distance is half the χ² distance: 0.82 where one of ten bins holds all values, the highest value in table VI.
    Empty sets do not count; NaN where all are empty.
    """
    total = sets = 0.0
    for index in range(SETS):
        count = _filled(samples[index])
        if count > 0:
            histogram = _histogram(samples[index], count, bins)
            total += ((histogram - 1.0 / bins) ** 2 / (histogram + 1.0 / bins)).sum()
            sets += 1.0
    return 0.5 * total / sets if sets else np.nan


@njit(cache=True)
def chi_square(one: Samples, other: Samples, bins: int) -> float:
    """The χ² distance (equation 1) of two sorted sets, padded with NaN, in bins over the range of both: within 0 and 2.

    Bins hold shares of their set, so that sets of different sizes compare.
    """
    ones, others = _filled(one), _filled(other)
    if ones == 0 or others == 0:
        return 0.0 if ones == others else 1.0
    low, high = min(one[0], other[0]), max(one[ones - 1], other[others - 1])
    p, q = np.zeros(bins), np.zeros(bins)
    _fill(p, one, ones, low, high)
    _fill(q, other, others, low, high)
    distance = 0.0
    for i in range(bins):
        if p[i] + q[i] > 0.0:
            distance += (p[i] - q[i]) ** 2 / (p[i] + q[i])
    return distance


@njit(cache=True)
def histogram_distances(
    request: Floats,
    requests: Floats,
    samples: Samples,
    history: Samples,
    weights: Floats,
    shortest: float,
    longest: float,
    bins: int,
) -> Floats:
    """Equation 2 for a job's `request` (size, estimated run time) and `samples`, and n jobs of the history.

    `requests` is (2 and more, n and more), `history` (n, 6, SET_VALUES); `weights` are those of the two and the six.
    `shortest` and `longest` are the estimated run times' over the history. Distances are within 0 and 1.
    """
    total = weights.sum()
    if total <= 0.0:
        weights = np.ones(len(weights))
        total = weights.sum()
    extent = max(longest, request[1]) - min(shortest, request[1])
    distance = np.zeros(len(history))
    six = np.zeros(SETS)
    for job in range(len(history)):
        for index in range(SETS):
            six[index] = chi_square(samples[index], history[job, index], bins)
        most = six.max()
        found = weights[0] if requests[0, job] != request[0] else 0.0
        if extent > 0.0:
            found += weights[1] * abs(requests[1, job] - request[1]) / extent
        if most > 0.0:
            for index in range(SETS):
                found += weights[2 + index] * six[index] / most
        distance[job] = found / total
    return distance


@njit(cache=True)
def _filled(values: Samples) -> int:
    for i in range(len(values)):
        if np.isnan(values[i]):
            return i
    return len(values)


@njit(cache=True)
def _histogram(values: Samples, count: int, bins: int) -> Floats:
    """The shares of a set's `count` values in bins over its own range."""
    histogram = np.zeros(bins)
    _fill(histogram, values, count, values[0], values[count - 1])
    return histogram


@njit(cache=True)
def _fill(histogram: Floats, values: Samples, count: int, low: float, high: float) -> None:
    last = len(histogram) - 1
    scale = len(histogram) / (high - low) if high - low > 1e-30 else 0.0
    for i in range(count):
        histogram[min(int((values[i] - low) * scale), last)] += 1.0 / count
