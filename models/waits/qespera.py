"""Waits from similar jobs in similar states: Qespera (Murali and Vadhiyar 2015, section 3, algorithm 1).

A job is compared with every job of the history by sixteen features of its request and of the site's state (table II).
The weight of a feature is its recent absolute rank correlation with the wait. The distances and waits of all jobs then
decide which of three models predicts:

- *sdm*, the standard deviation minimiser, where the nearest jobs are near enough and their waits cluster: the window of
  distances whose waits spread least, outliers removed;
- *ridge* regression of the wait on the features, where they do not;
- *wa*, the weighted average of the nearest, where the regression gives an impossible wait.

Choices that the paper leaves open were made on the jobs numbered 8000 to 20000 of five traces, so on none of those that
it tests on (`docs/research/papers.md`). `PAPER` has the paper's windows and means, `QesperaParameters()` the best
values found.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, NamedTuple, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.linear import dot, gram, moments, solve, standardize
from models.method import SiteContext, WaitMethod
from models.site.job import Estimate, Job
from models.waits.dbscan import NOISE, dbscan, outliers

MIN_EXTENT = 1e-290
"""A feature whose values differ by less counts as constant: the quotient would not be finite."""

MIN_HISTORY_JOBS = 10
"""Jobs that must have started before a wait is predicted."""

MIN_VARIANCE = 1e-12
"""A variance of waits, in units of the longest, that counts as zero: less than a second in ten days."""

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Width = Annotated[float, Meta(ge=0.001, le=1.0)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class QesperaParameters(NamedTuple):
    """Parameters of the method (table V). Distances are within 0 and 1.

    `nearest` is the k of the paper, in percent of the history, and `outliers` its f; `dist_threshold` is algorithm 1's.
    `window` is the width of a window and `reach` the distance up to which there are windows, of at least `least` jobs
    each, `nested` or side by side. The prediction is the weighted `quantile` of their waits, or with `average` the
    mean. The regression uses the jobs within `ridge_distance` and adds `ridge_penalty` to the diagonal; the weighted
    average is of the `neighbours` nearest. The size of the history is the engine's.
    """

    nearest: Annotated[float, Meta(gt=0.0, le=100.0)] = 5.0
    outliers: Annotated[float, Meta(ge=0.0, le=1e6)] = 0.5
    eps: Width = 0.05
    min_pts: Count = 5
    dist_threshold: Share = 0.6
    window: Width = 0.01
    reach: Width = 0.6
    least: Count = 10
    nested: bool = True
    quantile: Share = 0.5
    average: bool = False
    ridge_distance: Share = 1.0
    ridge_penalty: Annotated[float, Meta(ge=1e-6, le=1e6)] = 1.0
    neighbours: Count = 10


PAPER = QesperaParameters(dist_threshold=0.3, reach=0.3, window=0.05, least=2, nested=False, average=True, neighbours=5)
"""As close to the paper as possible: windows side by side, the mean, and parameters within its ranges."""

MODELS = ("sdm", "ridge", "wa")
SDM, RIDGE, WA = range(3)


class ModelPrediction(msgspec.Struct, frozen=True):
    """A prediction: the wait in seconds, by which model, from how many jobs within which distance."""

    wait_s: float
    model: str
    jobs: int
    distance: float


def predict(
    target: Floats,
    columns: Floats,
    waits: Floats,
    distance: Floats,
    parameters: QesperaParameters,
    state_distance: Floats | None = None,
) -> ModelPrediction | None:
    """Algorithm 1 for the features `target` (d) and a history of n jobs: `columns` (d, n and more), `waits` (n) in
    seconds.

    `distance` (n) is by summaries (see `distances`). `state_distance` (n) is by distributions; where it is given, it
    decides which model predicts and which jobs the minimiser uses. None while fewer than `MIN_HISTORY_JOBS` jobs are
    in the history.
    """
    if len(waits) < MIN_HISTORY_JOBS:
        return None
    wait_s, model, jobs, within = _choose(
        target, columns, waits, distance, distance if state_distance is None else state_distance, parameters
    )
    return ModelPrediction(wait_s, MODELS[model], jobs, within)


class Qespera(WaitMethod):
    """Algorithm 1 over the site's history, by summaries; see the module."""

    name: ClassVar[str] = "qespera"
    learns = False
    tunable: ClassVar[Mapping[str, Any]] = get_type_hints(QesperaParameters, include_extras=True)

    def __init__(self, **parameters: Any) -> None:
        self.parameters = QesperaParameters(**parameters)

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait, with the jobs it is based on; none while fewer than `MIN_HISTORY_JOBS` have started."""
        (found,) = self.predictions(job, context, [self.parameters])
        if found is None:
            return Estimate(None, "no history")
        return Estimate(found.wait_s, f"{found.model}: {found.jobs} jobs within distance {found.distance:.2g}")

    def predictions(
        self, job: Job, context: SiteContext, tried: Sequence[QesperaParameters]
    ) -> list[ModelPrediction | None]:
        """Return the prediction by each of these parameters. The distances, the same for all, are computed once."""
        assert job.features is not None
        window = context.history.window
        columns = window.columns
        distance = distances(job.features, columns, len(window), window.weights, window.minimum, window.maximum)
        state_distance = self.distribution_distances(job, context)
        return [
            predict(job.features, columns, window.targets, distance, parameters, state_distance) for parameters in tried
        ]

    def notice(self, job: Job, context: SiteContext) -> None:
        """Note the submission of a job that needs no prediction, to learn from it."""

    def distribution_distances(self, job: Job, context: SiteContext) -> Floats | None:
        """Distances of the history's jobs by distributions, in ring order; None for this method, it uses summaries."""
        return None


@njit(cache=True)
def distances(target: Floats, columns: Floats, jobs: int, weights: Floats, minimum: Floats, maximum: Floats) -> Floats:
    """The distance of each of the first `jobs` of the history, within 0 and 1 (equations 3 and 4): O(d·n).

    The first feature, the request's size, is nominal: the same or not. Where no feature is correlated with the wait,
    all weigh the same.
    """
    total = weights.sum()
    uniform = total <= 0.0
    if uniform:
        total = float(len(weights))
    distance = np.zeros(jobs)
    for feature in range(len(weights)):
        weight = (1.0 if uniform else weights[feature]) / total
        value, column = target[feature], columns[feature]
        if feature == 0:
            for i in range(len(distance)):
                distance[i] += weight if column[i] != value else 0.0
            continue
        extent = max(maximum[feature], value) - min(minimum[feature], value)
        if extent > MIN_EXTENT and weight > 0.0:
            weight /= extent
            for i in range(len(distance)):
                distance[i] += weight * abs(column[i] - value)
    return distance


@njit(cache=True)
def _choose(
    target: Floats, columns: Floats, waits: Floats, distance: Floats, state_distance: Floats, p: QesperaParameters
) -> tuple[float, int, int, float]:
    """Lines 6 to 21 of algorithm 1: the wait, the model, and how many jobs within which distance it is from."""
    longest = max(waits.max(), 1.0)
    nearest = max(int(len(waits) * p.nearest / 100.0), min(p.min_pts, len(waits)))
    close = _places(state_distance <= _nth(state_distance, nearest))
    if state_distance[close].mean() < p.dist_threshold and _clustered(state_distance[close], waits[close] / longest, p):
        wait, jobs, reach = _sdm(waits, state_distance, longest, p)
        if jobs > 0:
            return wait, SDM, jobs, reach
    wait, jobs = _ridge(target, columns, waits, distance, p)
    if jobs > 0 and 0.0 <= wait <= longest:
        return wait, RIDGE, jobs, p.ridge_distance
    reach = _nth(distance, min(p.neighbours, len(waits)))
    close = _places(distance <= reach)
    return _middle(waits[close], distance[close], p), WA, len(close), reach


@njit(cache=True)
def _clustered(x: Floats, y: Floats, p: QesperaParameters) -> bool:
    """Return True if the noise is at most the allowed share of the average cluster (equation 6)."""
    label = dbscan(x, y, p.eps, p.min_pts)
    noise = (label == NOISE).sum()
    clusters = label.max() + 1
    return bool(clusters > 0 and noise * clusters <= p.outliers * (len(label) - noise))


@njit(cache=True)
def _sdm(waits: Floats, distance: Floats, longest: float, p: QesperaParameters) -> tuple[float, int, float]:
    """The standard deviation minimiser (section 3.3.2): wait, jobs of the window and its end; no jobs if no window."""
    within, wait, jobs_within = np.empty(len(waits)), np.empty(len(waits)), 0
    for i in range(len(waits)):
        within[jobs_within], wait[jobs_within] = distance[i], waits[i]
        jobs_within += distance[i] < p.reach
    within, wait = within[:jobs_within], wait[:jobs_within]
    share = wait / longest
    out, windows = outliers(within, share, p.eps, p.min_pts), math.ceil(p.reach / p.window)
    place = np.empty(jobs_within, np.int64)
    for i in range(jobs_within):  # in a loop of its own, so that several are divided in one instruction
        place[i] = windows if out[i] else min(int(within[i] / p.window), windows - 1)
    sums = np.zeros((windows + 1, 3))  # of each window the jobs, their waits, and the squares of these
    for i in range(jobs_within):
        sums[place[i], 0] += 1.0
        sums[place[i], 1] += share[i]
        sums[place[i], 2] += share[i] * share[i]
    best, best_score = -1, math.inf
    jobs = total = squares = 0.0
    for i in range(windows):
        if not p.nested:
            jobs = total = squares = 0.0
        jobs, total, squares = jobs + sums[i, 0], total + sums[i, 1], squares + sums[i, 2]
        if jobs >= p.least:
            variance = squares / jobs - (total / jobs) ** 2
            score = math.sqrt(variance) * (i + 1) if variance > MIN_VARIANCE else 0.0
            if score < best_score:
                best, best_score = i, score
    if best < 0:
        return 0.0, 0, 0.0
    chosen = _places((place == best) | (p.nested & (place < best)))
    return _middle(wait[chosen], within[chosen], p), len(chosen), (best + 1) * p.window


@njit(cache=True)
def _middle(waits: Floats, distance: Floats, p: QesperaParameters) -> float:
    """The average or the (lower) quantile of waits, under the kernel of their distances."""
    return float(kernel_mean(waits, distance) if p.average else kernel_quantile(waits, distance, p.quantile))


@njit(cache=True)
def kernel_mean(values: Floats, distance: Floats) -> float:
    """The average under the Gaussian kernel's weights exp(-d²)."""
    weight = np.exp(-(distance**2))
    return float((values * weight).sum() / weight.sum())


@njit(cache=True)
def kernel_quantile(values: Floats, distance: Floats, q: float) -> float:
    """The (lower) quantile under the same weights."""
    weight = np.exp(-(distance**2))
    enough = weight.sum() * q * (1.0 - 1e-12)  # a share that is just reached counts, in spite of rounding
    order = np.argsort(values)
    below = 0.0
    for i in order:
        below += weight[i]
        if below >= enough:
            return float(values[i])
    return float(values[order[-1]])


@njit(cache=True)
def _ridge(target: Floats, columns: Floats, waits: Floats, distance: Floats, p: QesperaParameters) -> tuple[float, int]:
    """Ridge regression on standardised features (section 3.3.3), and of how many jobs; O(d²·n)."""
    close = _places(distance <= p.ridge_distance)
    if len(close) < 2:
        return 0.0, 0
    x = np.empty((len(close), len(columns)))
    for feature in range(len(columns)):
        for i in range(len(close)):
            x[i, feature] = columns[feature, close[i]]
    at = standardize(x, target)
    y = waits[close]
    slope = solve(gram(x) + p.ridge_penalty * np.eye(len(columns)), moments(x, y - y.mean()))
    return y.mean() + dot(slope, at), len(close)


@njit(cache=True)
def _nth(distance: Floats, n: int) -> float:
    """The n-th least of the distances, counted from 1: counted out by 512 steps, then sorted within one; O(len)."""
    steps = np.zeros(513, np.int64)
    for d in distance:
        steps[int(min(d, 1.0) * 512)] += 1
    step = before = 0
    while before + steps[step] < n:
        before += steps[step]
        step += 1
    same = np.empty(steps[step])
    filled = 0
    for d in distance:
        if int(min(d, 1.0) * 512) == step:
            same[filled] = d
            filled += 1
    return float(same[np.argsort(same)[n - before - 1]])


@njit(cache=True)
def _places(chosen: Flags) -> Ints:
    """Return the result of `np.flatnonzero`, without a branch that the CPU has to predict."""
    found, count = np.empty(len(chosen), np.int64), 0
    for i in range(len(chosen)):
        found[count] = i
        count += chosen[i]
    return found[:count]
