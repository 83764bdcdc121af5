"""The forests of one training: their estimates of a wait, on two scales and at several quantiles."""

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import fsum, isfinite
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from models.arrays import Flags, Floats, Ints, Singles
from models.kernels import njit
from models.stored_values import encode, reader
from models.waits.boosted.forest import BinnedFeatures, Boosting, Forest, ForestBatch
from models.waits.boosted.prior import MAX_JOBS, Prior, Probability, Scale, Target, TrainingSet
from models.waits.boosted.training_range import WORDS, TrainingRange

SCALE_S: Final = 30.0  # on the logarithmic scale, waits are distinguished down to about this many seconds
MAX_WAIT_S: Final = 400 * 86_400.0  # no longer wait is predicted

POINT: Final = (Target("log", 0.5), Target("root", 0.5))
"""Targets of the point estimate, with least absolute errors. On the scale of logarithms all waits count equally; on
that of square roots the long ones count more, as in the mean absolute error."""

TREES_PER_JOB, LEAST_TREES = 0.1, 30
"""Trees per job, and the minimum, for forests that start from a prior: with few jobs they have little to add to it."""

MEDIAN: Final = 0.5

QUANTILES: Final = (Target("log", 0.1), Target("log", 0.9), Target("log", 0.95))

QUANTILE_TREES, QUANTILE_LEAVES = 50, 8
"""Maximum for a far quantile: larger forests overfit the few jobs beyond it, and their bounds hold less often."""


class TrainingRows(NamedTuple):
    """Jobs that left the queue, as rows for training.

    Attributes:
        features: (n, features).
        waits: in seconds, (n,).
        weights: weight of each row, (n,).
        begins: the prior's estimates, (n, its aims), if they have been computed.
    """

    features: Singles
    waits: Floats
    weights: Floats
    begins: Floats | None = None


class ForestsSnapshot(NamedTuple):
    """The forests' estimates of a wait, in seconds: its median on each scale, and its quantiles by their probability.

    The quantile of 0.5 is the median of `medians`, which is the point estimate. `unlike` describes a feature that is
    out of the range of training, if there is one. `elsewhere` is set if the forests were trained on jobs of other sites
    only.
    """

    medians: dict[str, float]
    quantiles: dict[float, float]
    unlike: str | None = None
    elsewhere: bool = False


class _EncodedForests(msgspec.Struct, array_like=True, frozen=True):
    jobs: Annotated[int, Meta(ge=0, le=MAX_JOBS)]
    forests: list[tuple[Scale, Probability, bytes]]
    most: dict[str, float]
    prior: int


_read = reader(_EncodedForests, "forests")


class Forests:
    """Forests by their aims, trained on the same jobs.

    Args:
        forests: the same aims as those of the prior, if there is one.
        jobs: number of jobs that they were trained on.
        extent: the range of the states of these jobs.
        prior: the model that they start from: their estimates are added to its estimates.
    """

    def __init__(
        self, forests: Mapping[Target, Forest], jobs: int, extent: TrainingRange, prior: Prior | None = None
    ) -> None:
        self._aims, self._grove = tuple(forests), ForestBatch(list(forests.values()))
        self._trained: Mapping[Target, Forest] = {}
        self.jobs = jobs
        self._extent, self._prior = extent, prior
        self._logarithmic = [aim.scale == "log" for aim in forests]
        self._begin = [] if prior is None else [prior.aims.index(aim) for aim in forests]
        places = {aim.quantile: place for place, aim in enumerate(forests) if aim.quantile != MEDIAN}
        self._medians = [(aim.scale, place) for place, aim in enumerate(forests) if aim.quantile == MEDIAN]
        self._below = [(q, places[q]) for q in sorted(places, reverse=True) if q < MEDIAN]
        self._above = [(q, places[q]) for q in sorted(places) if q > MEDIAN]
        points, outward = ([place for _, place in some] for some in (self._medians, [*self._below, *self._above]))
        self._layout = np.array(self._logarithmic), np.array(points), np.array(outward, np.int64), len(self._below)

    @classmethod
    def prior_estimates(cls, prior: Prior, aims: Iterable[Target], names: Sequence[str]) -> "Forests":
        """Return the prior's estimates alone, for a site without jobs."""
        return cls({aim: Forest.empty(names) for aim in aims}, 0, TrainingRange(names, {}), prior)

    @classmethod
    def fit(
        cls,
        rows: TrainingRows,
        aims: Sequence[Target],
        names: Sequence[str],
        parameters: Boosting,
        prior: Prior | None = None,
        threads: int = 1,
    ) -> "Forests":
        """Train one forest for each aim; the threads share the aims, and the result does not depend on them."""
        begin: Mapping[Target, Floats | None] = dict.fromkeys(aims)
        if prior is not None:
            begins = prior.values(rows.features) if rows.begins is None else rows.begins
            begin = dict(zip(prior.aims, begins.T, strict=True))
            trees = min(parameters.trees, max(int(TREES_PER_JOB * len(rows.waits)), LEAST_TREES))
            parameters = msgspec.structs.replace(parameters, trees=trees)

        def train(some: Sequence[Target], binned: BinnedFeatures) -> dict[Target, Forest]:
            found = {}
            for aim in some:
                target, chosen = _to_scale(aim.scale, rows.waits), parameters if aim in POINT else _smaller(parameters)
                found[aim] = Forest.fit(binned, target, aim.quantile, chosen, names, begin=begin[aim])
            return found

        shares = [aims[first::threads] for first in range(min(threads, len(aims)))]
        binned = BinnedFeatures(rows.features, parameters, rows.weights)
        copies = [binned, *(binned.copy() for _ in shares[1:])]
        with ThreadPoolExecutor(len(shares)) as pool:
            each = pool.map if len(shares) > 1 else map  # a single one runs in this thread, whose time is counted
            trained = ChainMap(*each(train, shares, copies))
        found = {aim: trained[aim] for aim in aims}
        forests = cls(found, len(rows.waits), TrainingRange.of(rows.features, names), prior)
        forests._trained = found
        return forests

    def snapshot(self, row: Singles, begins: Floats | None = None) -> "ForestsSnapshot":
        """Estimate the wait of a job from its features.

        Args:
            row: the features, (f,).
            begins: the prior's estimates, (its aims,), if they have been computed.
        """
        rows = row.reshape(1, -1)
        values: list[float] = self._grove.predict(rows)[0].tolist()
        if self._prior is not None:
            prior = (self._prior.values(rows)[0] if begins is None else begins).tolist()
            values = [value + prior[place] for value, place in zip(values, self._begin, strict=True)]
        waits_s = _from_scale(self._logarithmic, values)
        medians = {scale: waits_s[place] for scale, place in self._medians}
        return ForestsSnapshot(medians, self._uncrossed(waits_s), self._extent.unlike(row), elsewhere=not self.jobs)

    def quantiles(self, rows: Singles) -> Floats:
        """Return the quantiles of the waits of several jobs in ascending order, (jobs, quantiles) seconds.

        They are those of `snapshot`.

        Args:
            rows: the features of the jobs, (jobs, f).
        """
        values = self._grove.predict(rows)
        if self._prior is not None:
            values += self._prior.values(rows)[:, self._begin]
        return np.asarray(_quantiles(values, *self._layout))

    def _uncrossed(self, waits_s: Sequence[float]) -> dict[float, float]:
        """The quantiles, which never cross each other nor the point, that of 0.5: the mean of the medians."""
        point = lower = upper = fsum(waits_s[place] for _, place in self._medians) / len(self._medians)
        below, above = [], []
        for q, place in self._below:
            below.append((q, lower := min(lower, waits_s[place])))
        for q, place in self._above:
            above.append((q, upper := max(upper, waits_s[place])))
        return dict([*reversed(below), (MEDIAN, point), *above])

    def encode(self) -> bytes:
        """Serialize all but the prior, compressed, for forests that were trained here.

        Decoded forests do not keep a second copy of their trees.
        """
        parts = [(aim.scale, aim.quantile, forest.encode()) for aim, forest in self._trained.items()]
        version = 0 if self._prior is None else self._prior.version
        return encode(_EncodedForests(self.jobs, parts, self._extent.most, version))

    @classmethod
    def decode(
        cls, encoded: bytes, names: Sequence[str], prior: Prior | None = None, aims: Iterable[Target] = ()
    ) -> "Forests":
        """Deserialize forests, which must have these aims.

        Raises:
            ValueError: they are not forests, have other features or aims, or start from another prior.
        """
        read = _read(encoded)
        if read.prior != (0 if prior is None else prior.version):
            raise ValueError("forests that start from another prior")
        forests = {Target(scale, q): Forest.decode(forest, names) for scale, q, forest in read.forests}
        if missing := {*aims} - forests.keys():
            raise ValueError(f"forests without {', '.join(map(str, sorted(missing)))}")
        if forests.keys().isdisjoint(POINT):
            raise ValueError("forests without a median; expected one or both of the point estimate")
        if not all(map(isfinite, read.most.values())) or not read.most.keys() <= {*names} & WORDS.keys():
            raise ValueError("the range of a feature that has none, or is not finite")
        return cls(forests, read.jobs, TrainingRange(names, read.most), prior)


def warm_up() -> None:
    """Compile the kernel that reads the forests of several jobs."""
    Forests({aim: Forest.empty([]) for aim in POINT}, 0, TrainingRange([], {})).quantiles(np.zeros((0, 0), np.float32))


@njit(cache=True, nogil=True)
def _quantiles(values: Floats, logarithmic: Flags, points: Ints, outward: Ints, below: int) -> Floats:
    """Return `Forests.quantiles` of values on the scales, (jobs, aims).

    Args:
        points: the places of the medians among the aims.
        outward: those of the other quantiles, away from the median: first the ones below it, `below` in number.
    """
    found = np.empty((len(values), len(outward) + 1))
    for job in range(len(values)):
        point = 0.0
        for place in points:
            point += _seconds(values[job, place], logarithmic[place])
        point /= len(points)
        found[job, below] = point
        for nth in range(len(outward)):
            wait_s = _seconds(values[job, outward[nth]], logarithmic[outward[nth]])
            if nth < below:
                found[job, below - 1 - nth] = min(wait_s, found[job, below - nth])
            else:
                found[job, nth + 1] = max(wait_s, found[job, nth])
    return found


@njit(cache=True, nogil=True)
def _seconds(value: float, logarithmic: bool) -> float:
    root = max(value, 0.0)
    return min(SCALE_S * np.expm1(min(root, 20.0)) if logarithmic else root * root, MAX_WAIT_S)


def _smaller(parameters: Boosting) -> Boosting:
    trees, leaves = min(parameters.trees, QUANTILE_TREES), min(parameters.leaves, QUANTILE_LEAVES)
    return msgspec.structs.replace(parameters, trees=trees, leaves=leaves)


def training_set(rows: TrainingRows, aims: Iterable[Target] = (*POINT, *QUANTILES)) -> TrainingSet:
    """Return the data of these jobs for the training of a prior for other sites, with these aims."""
    return TrainingSet(rows.features, {aim: _to_scale(aim.scale, rows.waits) for aim in aims}, rows.weights)


def _to_scale(scale: str, waits: Floats) -> Floats:
    return np.log1p(waits / SCALE_S) if scale == "log" else np.sqrt(waits)


def _from_scale(logarithmic: Sequence[bool], values: list[float]) -> list[float]:
    """Waits in seconds, within 0 and `MAX_WAIT_S`, from values on the scale of logarithms or of roots."""
    roots = [value if value > 0.0 else 0.0 for value in values]
    logs: list[float] = np.expm1([min(root, 20.0) for root in roots]).tolist()
    found = zip(logarithmic, logs, roots, strict=True)
    return [min(SCALE_S * log if by_log else root * root, MAX_WAIT_S) for by_log, log, root in found]
