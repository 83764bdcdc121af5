"""Waits from similar jobs in similar states: Qespera (Murali and Vadhiyar 2015, section 3, algorithm 1).

A job is compared with every job of the history by sixteen features of its request and of the state it finds (table
II). How much a feature counts is the absolute rank correlation it had with the wait lately. The picture of distances
against waits then tells which of three predictors to ask:

- *sdm*, the standard deviation minimiser, where the nearest jobs are near enough and their waits cluster: the window of
  distances whose waits spread least, outliers removed;
- *ridge* regression of the wait on the features, where they do not;
- *wa*, the weighted average of the nearest, where the regression says something no wait can be.

What the paper leaves open, and how it was settled: on the jobs before number 20001 of five public traces, none of the
jobs that the paper tests on. `PAPER` keeps to the letter, `Parameters()` to what did best there.

- *DBSCAN's plane.* The paper's eps, 0.05 to 0.1, says that both axes run from 0 to 1: waits are divided by the longest
  in the history.
- *Which window.* The paper wants the least deviation and the least distance. Here: the least product of the deviation
  and the window's number, counted from 1 outwards, and the nearer of equals. The deviation alone picks far windows of
  a few jobs that all started at once.
- *Fewest jobs of a window.* Two that agree by chance have the deviation 0. Ten are asked for.
- *Nested windows.* All windows begin at distance 0 and differ in where they end. Windows side by side, as the paper
  draws them, leave out the jobs nearer than the chosen one.
- *The middle of a window* is the median under the Gaussian kernel's weights. Waits are skewed: a mean is drawn far from
  zero by one long wait among many jobs that started at once, and pays in both of the paper's measures.
- *The distance threshold* is as far as the minimiser looks, so it is asked wherever the waits cluster. The regression
  extrapolates: far from everything seen, where a smaller threshold would leave a job to it, it was worst.
- *The regression's answer* counts if it is neither negative nor longer than the longest wait of the history.
"""

import math
from typing import ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from numba import njit

from models.dbscan import NOISE, labels, outliers
from models.method import Site, WaitMethod
from models.state import Estimate, Job

Floats = npt.NDArray[np.float64]

LEAST_HISTORY = 10
"""Jobs that must have started before a wait is predicted."""


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """What the method can be tuned by (table V); the ranges tried there are in `RANGES`. Distances are within 0 and 1.

    `nearest` is the k of the paper, in percent of the history, and `outliers` its f; `dist_threshold` is algorithm 1's.
    `window` is the width of a window and `reach` the distance up to which there are windows, of at least `least` jobs
    each, `nested` or side by side, with the `middle` of their waits as the prediction. The regression uses the jobs
    within `ridge_distance` and adds `ridge_penalty` to the diagonal, the average uses the `neighbours` nearest.
    """

    nearest: float = 5.0
    outliers: float = 0.5
    eps: float = 0.05
    min_pts: int = 5
    dist_threshold: float = 0.6
    window: float = 0.01
    reach: float = 0.6
    least: int = 10
    nested: bool = True
    middle: Literal["median", "mean"] = "median"
    ridge_distance: float = 1.0
    ridge_penalty: float = 1.0
    neighbours: int = 10


PAPER = Parameters(dist_threshold=0.3, reach=0.3, window=0.05, least=2, nested=False, middle="mean", neighbours=5)
"""The letter of the paper: windows side by side and the mean, with parameters within its ranges."""

RANGES = {
    "nearest": (1.0, 5.0),
    "outliers": (0.1, 0.9),
    "eps": (0.05, 0.1),
    "min_pts": (2, 5),
    "window": (0.01, 0.1),
    "reach": (0.3, 0.6),
    "ridge_distance": (0.4, 1.0),
    "neighbours": (1, 20),
}
"""The ranges of table V."""

MODELS = ("sdm", "ridge", "wa")
SDM, RIDGE, WA = range(3)


class Found(msgspec.Struct, frozen=True):
    """A prediction: the wait in seconds, by which model, from how many jobs within which distance."""

    wait_s: float
    model: str
    jobs: int
    distance: float


def predict(
    target: Floats,
    columns: Floats,
    waits: Floats,
    weights: Floats,
    minimum: Floats,
    maximum: Floats,
    parameters: Parameters,
) -> Found | None:
    """Algorithm 1 for the features `target` (d) and a history of n jobs: `columns` (d, n), `waits` (n) in seconds.

    `weights`, `minimum` and `maximum` (d) are the features' over the history. None while it is shorter than
    `LEAST_HISTORY`.
    """
    if len(waits) < LEAST_HISTORY:
        return None
    distance = distances(target, columns, weights, minimum, maximum)
    p = parameters
    wait_s, model, jobs, within = _choose(
        target,
        columns,
        waits,
        distance,
        p.nearest,
        p.outliers,
        p.eps,
        p.min_pts,
        p.dist_threshold,
        p.window,
        p.reach,
        p.least,
        p.nested,
        p.middle == "median",
        p.ridge_distance,
        p.ridge_penalty,
        p.neighbours,
    )
    return Found(wait_s, MODELS[model], jobs, within)


class Qespera(WaitMethod):
    """Algorithm 1 over the site's history; see the module. About 0.2 ms a prediction over 6000 jobs."""

    name: ClassVar[str] = "qespera"

    def __init__(self, parameters: Parameters | None = None) -> None:
        self.parameters = parameters or Parameters()

    def predict(self, job: Job, site: Site) -> Estimate:
        """The wait, and from which jobs; nothing while hardly a job has started."""
        assert job.features is not None
        window = site.history.window
        columns = _contiguous(window.values.T)
        found = predict(
            job.features,
            columns,
            window.targets,
            window.weights,
            window.minimum,
            window.maximum,
            self.parameters,
        )
        if found is None:
            return Estimate(None, "no history")
        return Estimate(found.wait_s, f"{found.model}: {found.jobs} jobs within distance {found.distance:.2g}")


def _contiguous(columns: Floats) -> Floats:
    """The columns in one piece, and read-only as the full window's are: one type, so one compiled kernel."""
    whole = np.ascontiguousarray(columns)
    whole.flags.writeable = False
    return whole


@njit(cache=True)
def distances(target: Floats, columns: Floats, weights: Floats, minimum: Floats, maximum: Floats) -> Floats:
    """The distance of each job of the history, within 0 and 1 (equations 3 and 4): O(d·n).

    The first feature, the request's size, is nominal: the same or not. Where no feature is correlated with the wait,
    all weigh the same.
    """
    total = weights.sum()
    uniform = total <= 0.0
    if uniform:
        total = float(len(weights))
    distance = np.zeros(columns.shape[1])
    for feature in range(len(weights)):
        weight = (1.0 if uniform else weights[feature]) / total
        value, column = target[feature], columns[feature]
        if feature == 0:
            for i in range(len(distance)):
                distance[i] += weight if column[i] != value else 0.0
            continue
        extent = max(maximum[feature], value) - min(minimum[feature], value)
        if extent > 0.0 and weight > 0.0:
            weight /= extent
            for i in range(len(distance)):
                distance[i] += weight * abs(column[i] - value)
    return distance


@njit(cache=True)
def _choose(
    target: Floats,
    columns: Floats,
    waits: Floats,
    distance: Floats,
    nearest: float,
    outlier_share: float,
    eps: float,
    min_pts: int,
    dist_threshold: float,
    window: float,
    reach: float,
    least: int,
    nested: bool,
    median: bool,
    ridge_distance: float,
    ridge_penalty: float,
    neighbours: int,
) -> tuple[float, int, int, float]:
    """Lines 6 to 21 of algorithm 1: the wait, the model, and how many jobs within which distance it is from."""
    longest = max(waits.max(), 1.0)
    close = _within(distance, _nth(distance, max(int(len(waits) * nearest / 100.0), min(min_pts, len(waits)))))
    if distance[close].mean() < dist_threshold and _clustered(
        distance[close], waits[close] / longest, outlier_share, eps, min_pts
    ):
        wait, jobs, within = _sdm(waits, distance, longest, eps, min_pts, window, reach, least, nested, median)
        if jobs > 0:
            return wait, SDM, jobs, within
    wait, jobs = _ridge(target, columns, waits, distance, ridge_distance, ridge_penalty)
    if jobs > 0 and 0.0 <= wait <= longest:
        return wait, RIDGE, jobs, ridge_distance
    within = _nth(distance, min(neighbours, len(waits)))
    close = _within(distance, within)
    return _middle(waits[close], distance[close], median), WA, len(close), within


@njit(cache=True)
def _clustered(x: Floats, y: Floats, share: float, eps: float, min_pts: int) -> bool:
    """Whether the noise is at most this share of the average cluster (equation 6)."""
    label = labels(x, y, eps, min_pts)
    noise = (label == NOISE).sum()
    clusters = label.max() + 1
    return clusters > 0 and noise * clusters <= share * (len(label) - noise)


@njit(cache=True)
def _sdm(
    waits: Floats,
    distance: Floats,
    longest: float,
    eps: float,
    min_pts: int,
    window: float,
    reach: float,
    least: int,
    nested: bool,
    median: bool,
) -> tuple[float, int, float]:
    """The standard deviation minimiser (section 3.3.2): wait, jobs of the window and its end; no jobs if no window."""
    close = np.flatnonzero(distance < reach)
    close = close[~outliers(distance[close], waits[close] / longest, eps, min_pts)]
    windows = int(math.ceil(reach / window))
    place = np.empty(len(close), np.int64)
    count, mean, square = np.zeros(windows), np.zeros(windows), np.zeros(windows)
    for i in range(len(close)):
        place[i] = min(int(distance[close[i]] / window), windows - 1)
        share = waits[close[i]] / longest
        count[place[i]] += 1
        mean[place[i]] += share
        square[place[i]] += share * share
    best, best_score = -1, math.inf
    jobs = total = squares = 0.0
    for i in range(windows):
        if not nested:
            jobs = total = squares = 0.0
        jobs, total, squares = jobs + count[i], total + mean[i], squares + square[i]
        if jobs >= least and count[i] > 0:
            deviation = math.sqrt(max(squares / jobs - (total / jobs) ** 2, 0.0))
            if deviation * (i + 1) < best_score:
                best, best_score = i, deviation * (i + 1)
    if best < 0:
        return 0.0, 0, 0.0
    chosen = close[(place == best) | (nested & (place < best))]
    return _middle(waits[chosen], distance[chosen], median), len(chosen), (best + 1) * window


@njit(cache=True)
def _middle(waits: Floats, distance: Floats, median: bool) -> float:
    """The average or the lower median of waits, weighted by the Gaussian kernel exp(-d²) of their distances."""
    weight = np.exp(-(distance**2))
    if not median:
        return (waits * weight).sum() / weight.sum()
    order = np.argsort(waits)
    half = weight.sum() / 2.0
    below = 0.0
    for i in order:
        below += weight[i]
        if below >= half:
            return waits[i]
    return waits[order[-1]]


@njit(cache=True)
def _ridge(
    target: Floats, columns: Floats, waits: Floats, distance: Floats, within: float, penalty: float
) -> tuple[float, int]:
    """Ridge regression on standardised features (section 3.3.3), and of how many jobs; O(d²·n)."""
    close = np.flatnonzero(distance <= within)
    if len(close) < 2:
        return 0.0, 0
    x = np.zeros((len(columns), len(close)))
    at = np.zeros(len(columns))
    for feature in range(len(columns)):
        values = columns[feature][close]
        mean, deviation = values.mean(), values.std()
        if deviation > 0.0:
            x[feature] = (values - mean) / deviation
            at[feature] = (target[feature] - mean) / deviation
    y = waits[close]
    slope = np.linalg.solve(x @ x.T + penalty * np.eye(len(columns)), x @ (y - y.mean()))
    return y.mean() + (slope * at).sum(), len(close)


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
    same.sort()
    return same[n - before - 1]


@njit(cache=True)
def _within(distance: Floats, most: float) -> npt.NDArray[np.int64]:
    return np.flatnonzero(distance <= most)
