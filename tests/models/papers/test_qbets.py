import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, rankdata

from models.method import SiteContext
from models.papers.qbets import (
    UPPER,
    Qbets,
    _Series,
    average_ranks,
    lower_rank,
    min_waits,
    misses_of_a_change,
    upper_rank,
)
from models.runtimes.closest import Closest
from models.site.history import History
from models.site.job import Estimate, Job
from models.site.runs import RunHistory
from models.site.state import SiteState

SITE = SiteContext(SiteState(), History(2), RunHistory(), Closest())


def job(cpus: int = 4, walltime: float | None = 1800.0) -> Job:
    return Job(id="1", attempt=0, submit=0.0, cpus=cpus, walltime=walltime)


def learnt(waits: list[float], method: Qbets | None = None, like: Job | None = None) -> Qbets:
    method = method or Qbets()
    for wait_s in waits:
        method.learn(like or job(), wait_s, SITE)
    return method


def bounds(method: Qbets, of: Job | None = None) -> dict[str, float]:
    found = method.predict(of or job(), SITE).bounds
    assert found is not None
    return found


@given(st.integers(1, 400), st.sampled_from((0.1, 0.5, 0.75, 0.9, 0.95)), st.sampled_from((0.5, 0.9, 0.95, 0.99)))
def test_rank_is_the_least_above_quantile_at_confidence(n: int, q: float, c: float) -> None:
    rank = upper_rank(n, q, c)
    if rank is None:
        assert binom.cdf(n - 1, n, q) < c + 1e-9  # even the largest wait can be below the quantile
        return
    assert binom.cdf(rank - 1, n, q) >= c - 1e-9
    assert rank == 1 or binom.cdf(rank - 2, n, q) < c + 1e-9


@given(st.integers(1, 400), st.sampled_from((0.05, 0.1, 0.5)))
def test_lower_rank_is_below_the_quantile_with_confidence(n: int, q: float) -> None:
    rank = lower_rank(n, q, 0.95)
    if rank is None:
        assert (1 - q) ** n > 0.05 - 1e-9
    else:
        assert binom.sf(rank - 1, n, q) >= 0.95 - 1e-9  # at least `rank` waits are below the quantile


def test_minimum_waits_make_the_largest_one_a_bound() -> None:
    for q in UPPER:
        n = min_waits(q, 0.95)
        assert upper_rank(n, q, 0.95) == n
        assert upper_rank(n - 1, q, 0.95) is None


def test_qbets_without_enough_waits_returns_no_estimate() -> None:
    method = learnt([1.0] * 58)
    assert method.predict(job(), SITE) == Estimate(None, "no history")
    learnt([2.0], method)
    estimate = method.predict(job(), SITE)
    assert (estimate.wait_s, estimate.reason) == (1.0, "median of 59 by size and walltime")
    assert estimate.bounds == {"0.1": 1.0, "0.5": 1.0, "0.75": 1.0, "0.9": 1.0, "0.95": 2.0}


def test_qbets_uses_the_closest_category_with_enough_waits() -> None:
    method = learnt([10.0] * 60, like=job(4, 1800.0))
    learnt([500.0] * 60, method, job(4, 7200.0))
    learnt([9000.0] * 60, method, job(64, 1800.0))
    assert method.predict(job(3, 1000.0), SITE).wait_s == 10.0
    assert method.predict(job(3, 7000.0), SITE).wait_s == 500.0
    assert method.predict(job(3, 90_000.0), SITE).reason == "median of 120 by size"
    assert method.predict(job(3, None), SITE).reason == "median of 120 by size"
    assert method.predict(job(7, 90_000.0), SITE).reason == "median of 180 by site"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_qbets_bounds_of_stationary_waits_have_stated_coverage(seed: int) -> None:
    dice = random.Random(seed)
    method, held, count = Qbets(), dict.fromkeys(("0.1", "0.5", "0.75", "0.9", "0.95"), 0), 0
    for _ in range(6000):
        wait_s = dice.lognormvariate(7, 2)
        estimate = method.predict(job(), SITE)
        if estimate.bounds is not None:
            count += 1
            for q, bound in estimate.bounds.items():
                held[q] += wait_s <= bound
        method.learn(job(), wait_s, SITE)
    assert held["0.1"] / count <= 0.1
    for q in UPPER:
        assert q - 0.005 <= held[f"{q:g}"] / count <= q + 0.04


def test_bounds_grow_with_probability_and_confidence() -> None:
    dice = random.Random(4)
    waits = [dice.expovariate(0.001) for _ in range(500)]
    usual, sure = bounds(learnt(waits)), bounds(learnt(waits, Qbets(confidence=0.99)))
    values = [usual[q] for q in sorted(usual, key=float)]
    assert all(low < high for low, high in pairwise(values))
    assert all(sure[f"{q:g}"] > usual[f"{q:g}"] for q in UPPER)
    assert sure["0.1"] < usual["0.1"]


def test_qbets_change_point_drops_earlier_waits() -> None:
    dice = random.Random(5)
    method = learnt([dice.uniform(0, 100) for _ in range(2000)])
    assert bounds(method)["0.95"] < 100
    learnt([dice.uniform(10_000, 20_000) for _ in range(60)], method)
    assert bounds(method)["0.5"] > 10_000
    assert method.predict(job(), SITE).reason.startswith("median of ")
    assert len(method.rows.numbered) == 2060  # the rows stay: other categories can be unchanged


def test_qbets_of_stationary_waits_keeps_most_of_them() -> None:
    dice = random.Random(6)
    method = learnt([dice.uniform(0, 100) for _ in range(1000)])
    reason = method.predict(job(), SITE).reason
    assert int(reason.split()[2]) > 500


def test_correlated_waits_need_more_misses_for_a_change() -> None:
    runs = [misses_of_a_change(tenths) for tenths in range(10)]
    assert runs[0] == 3
    assert all(low <= high for low, high in pairwise(runs))
    assert 10 < runs[-1] < 60


@pytest.mark.parametrize("zeros", [0.8, 0.9, 0.95])
def test_tied_waits_detect_a_change_as_fast_as_others(zeros: float) -> None:
    dice = random.Random(9)
    series = _Series()
    for number in range(2000):
        series.append((number, 0.0 if dice.random() < zeros else dice.uniform(1, 100)))
    for number in range(2000, 2003):
        series.append((number, 5000.0))
    assert misses_of_a_change(series.correlation_tenths()) == misses_of_a_change(0) == 3


@given(st.lists(st.sampled_from((0.0, 0.5, 1.0, 3600.0)), max_size=50))
def test_equal_waits_share_the_average_of_their_ranks(waits: list[float]) -> None:
    assert average_ranks(np.array(waits)).tolist() == rankdata(waits).tolist()


def test_waits_that_are_all_equal_have_no_autocorrelation() -> None:
    series = _Series()
    for number in range(100):
        series.append((number, 0.0))
    assert series.correlation_tenths() == 0


def test_jobs_beyond_the_window_drop_the_oldest() -> None:
    dice = random.Random(7)
    method = Qbets(depth=200)
    kept: list[tuple[int, float]] = []
    count = 0
    for _ in range(1000):
        cpus, wait_s = dice.choice((1, 8)), dice.random()
        method.learn(job(cpus), wait_s, SITE)
        kept.append((cpus, wait_s))
        last = kept[-200:]
        for size in (1, 8):
            waits = sorted(wait for cpus, wait in last if cpus == size)
            estimate = method.predict(job(size), SITE)
            if estimate.reason == f"median of {len(waits)} by size and walltime":
                count += 1
                assert estimate.wait_s == waits[len(waits) // 2]
            elif estimate.wait_s is not None:
                assert int(estimate.reason.split()[2]) <= 200
    assert count > 500
