from collections.abc import Callable
from time import perf_counter

import numpy as np
import numpy.typing as npt
from scipy import stats

from models.arrays import Floats
from models.site.spearman import RollingSpearman

FEATURES, SIZE = 16, 6000


def seconds(work: Callable[[], object], repeats: int, rounds: int = 5) -> float:
    """Return the time of one call (s): the best round's mean, least disturbed by other load."""
    best = np.inf
    for _ in range(rounds):
        begin = perf_counter()
        for _ in range(repeats):
            work()
        best = min(best, (perf_counter() - begin) / repeats)
    return best


def job_like_rows(count: int) -> tuple[Floats, Floats]:
    """Return continuous features, small counts with many ties, and a skewed target that depends on some."""
    rng = np.random.default_rng(0)
    half = FEATURES // 2
    x = np.hstack((rng.lognormal(5, 2, (count, half)), rng.integers(0, 16, (count, half)).astype(np.float64)))
    return x, x[:, 0] * (1 + x[:, half]) * rng.lognormal(0, 1, count)


def doubled_ranks(values: Floats) -> npt.NDArray[np.int64]:
    ordered = np.sort(values)
    return ordered.searchsorted(values, "left") + ordered.searchsorted(values, "right") - len(values)


def correlations_by_sorting(x: Floats, y: Floats) -> Floats:
    """Compute the same correlations by sorting all columns with numpy."""
    target = doubled_ranks(y).astype(np.float64)
    ranks = np.array([doubled_ranks(column) for column in x.T], np.float64)
    rho: Floats = ranks @ target / np.sqrt((ranks**2).sum(axis=1) * (target @ target))
    return rho


def by_scipy(x: Floats, y: Floats) -> Floats:
    """Compute the whole matrix in one call, scipy's fastest way; only the target's row is used."""
    return np.asarray(stats.spearmanr(x, y).statistic)[-1, :-1]


def test_spearman_push_is_fifty_times_faster_than_scipy() -> None:
    x, y = job_like_rows(SIZE + 1000)
    RollingSpearman.from_rows([[0.0]], [0.0], size=2).push([0.0], 0.0)
    window = RollingSpearman.from_rows(x[:SIZE], y[:SIZE], SIZE)
    coming = iter([*range(SIZE, SIZE + 1000)] * 2)

    def push() -> Floats:
        row = next(coming)
        window.push(x[row], y[row])
        return window.weights

    pushing = seconds(push, repeats=400)
    values, targets = window.values.copy(), window.targets.copy()
    np.testing.assert_allclose(window.correlations, by_scipy(values, targets), rtol=0, atol=1e-9)
    np.testing.assert_allclose(window.correlations, correlations_by_sorting(values, targets), rtol=0, atol=1e-9)
    scipy = seconds(lambda: by_scipy(values, targets), repeats=2)
    numpy = seconds(lambda: correlations_by_sorting(values, targets), repeats=2)
    print(f"\n{FEATURES} features × {SIZE} rows: a push and its weights {pushing * 1e6:.0f} µs")
    print(f"scipy from scratch {scipy * 1e6:.0f} µs, {scipy / pushing:.0f} times as long")
    print(f"numpy from scratch {numpy * 1e6:.0f} µs, {numpy / pushing:.0f} times as long")
    assert scipy / pushing >= 50
