import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.method import SiteContext
from models.papers.distributions import (
    SET_VALUES,
    SETS,
    QesperaDistributions,
    chi_square,
    non_uniformity,
    norms,
    samples_of,
)
from models.runtimes.closest import Closest
from models.site.history import History
from models.site.job import Job, Phase
from models.site.runs import RunHistory
from models.site.state import SiteState
from tests.support.methods import kept_by, taken_back

VALUE = st.sampled_from([0.0, 1.0, 2.0, 60.0, 3600.0, 86_400.0])


def padded(values: list[float]) -> np.ndarray:
    found = np.full(SET_VALUES, np.nan, np.float32)
    found[: len(values)] = np.sort(np.array(values, np.float32))
    return found


def reference(one: list[float], other: list[float], bins: int) -> float:
    """Compute equation 1 with numpy's histograms."""
    low, high = min(one + other), max(one + other)
    if low == high:
        return 0.0
    p, q = (np.histogram(values, bins, (low, high))[0] / len(values) for values in (one, other))
    return float(sum((a - b) ** 2 / (a + b) for a, b in zip(p, q, strict=True) if a + b))


@given(one=st.lists(VALUE, min_size=1, max_size=SET_VALUES), other=st.lists(VALUE, min_size=1, max_size=SET_VALUES))
def test_chi_square_is_equation_1(one: list[float], other: list[float]) -> None:
    found = chi_square(padded(one), padded(other), 10)
    assert found == pytest.approx(reference(one, other, 10), abs=1e-9)
    assert found == chi_square(padded(other), padded(one), 10)
    assert 0.0 <= found <= 2.0 + 1e-9


def test_chi_square_of_empty_sets() -> None:
    assert chi_square(padded([]), padded([]), 10) == 0.0
    assert chi_square(padded([]), padded([5.0]), 10) == chi_square(padded([5.0]), padded([]), 10) == 1.0


def test_sets_of_one_shape_are_alike_whatever_their_size() -> None:
    assert chi_square(padded([1.0, 9.0]), padded([1.0, 9.0] * 20), 10) == pytest.approx(0.0)


def test_norm_is_higher_for_equal_values_than_for_spread_values() -> None:
    samples = np.full((SETS, SET_VALUES), np.nan, np.float32)
    samples[0, :10] = np.arange(10)
    samples[1, :10] = 7.0
    assert norms(samples, 10).round(6).tolist() == [0.316228, 1.0, 0.0, 0.0, 0.0, 0.0]


def live_state() -> SiteState:
    state = SiteState()
    for number in range(200):
        state.enter(Job(id=f"q{number}", attempt=0, submit=float(number), cpus=number + 1, planned_run_s=60.0))
    running = Job(id="r", attempt=0, submit=0.0, cpus=8, planned_run_s=600.0)
    state.enter(running)
    state.move(running, Phase.RUNNING, 250.0)
    return state


def test_samples_of_large_set_are_its_order_statistics() -> None:
    found = samples_of(live_state(), 300.0)
    assert (found[0, 0], found[0, -1]) == (1.0, 200.0)
    assert (np.diff(found[0]) > 0).all()
    assert (found[2, 0], found[2, -1]) == (101.0, 300.0)
    assert [found[row, 0] for row in (3, 4, 5)] == [8.0, 600.0, 50.0]
    assert np.isnan(found[3:, 1:]).all()


def play(method: QesperaDistributions, context: SiteContext, first: int, last: int) -> list[float | None]:
    """Play jobs that meet one of two states with equal sums and have a wait that depends on it."""
    waits_s = []
    for number in range(first, last):
        context.state = SiteState()
        many = number % 2 == 0
        for running in range(64 if many else 1):
            job = Job(
                id=f"r{running}", attempt=0, submit=0.0, cpus=1 if many else 64, planned_run_s=60.0 if many else 3840.0
            )
            context.state.enter(job)
            context.state.move(job, Phase.RUNNING, 0.0)
        target = Job(id=str(number), attempt=0, submit=100.0, start=100.0, cpus=4, planned_run_s=60.0)
        target.features = np.array([4.0, 60.0, *([1.0] * 14)])
        waits_s.append(method.predict(target, context).wait_s)
        wait_s = 0.0 if many else 7200.0
        method.learn(target, wait_s, context)
        context.history.learn(target, wait_s)
    return waits_s


def new_site() -> SiteContext:
    return SiteContext(SiteState(), History(50), RunHistory(), Closest())


def test_states_with_equal_sums_are_distinguished() -> None:
    waits_s = play(QesperaDistributions(), new_site(), 0, 120)
    assert waits_s[-2:] == [0.0, 7200.0]


@pytest.mark.parametrize("size", [30, 80])
def test_load_into_another_history_size_keeps_common_jobs(size: int) -> None:
    site, method = new_site(), QesperaDistributions()
    play(method, site, 0, 70)
    other, resized = taken_back(method, QesperaDistributions()), new_site()
    resized.state, resized.history = site.state, History(size)
    resized.history.restore(site.history.stored(), 70, size=site.history.size)
    job = Job(id="next", attempt=0, submit=100.0, cpus=4, planned_run_s=60.0, features=np.ones(16))
    found = other.distribution_distances(job, resized)
    assert found is not None and len(found) == min(size, 50) and (found < 1.0).all()
    if size > 50:  # the same jobs have the same distances in any order
        expected = method.distribution_distances(job, site)
        assert expected is not None
        assert sorted(found) == sorted(expected)
    assert play(other, resized, 70, 170)[-2:] == [0.0, 7200.0]
    assert other.distribution_distances(job, resized) is not None


def test_distributions_loaded_with_other_bins_use_these_bins() -> None:
    site, method, whole = new_site(), QesperaDistributions(), QesperaDistributions(bins=5)
    play(method, site, 0, 70)
    other = taken_back(method, QesperaDistributions(bins=5))
    play(whole, again := new_site(), 0, 70)
    job = Job(id="next", attempt=0, submit=100.0, cpus=4, planned_run_s=60.0, features=np.ones(16))
    found, expected = other.distribution_distances(job, site), whole.distribution_distances(job, again)
    assert found is not None and expected is not None
    np.testing.assert_array_equal(found, expected)


def test_non_uniformity_rises_with_distance_from_uniform() -> None:
    samples = np.full((SETS, SET_VALUES), np.nan, np.float32)
    assert np.isnan(non_uniformity(samples, 10))
    samples[0, :10] = np.arange(10)
    assert non_uniformity(samples, 10) == pytest.approx(0.0)
    samples[1, :10] = 7.0  # one of ten bins: half of 0.9²/1.1 + 9·0.1
    assert non_uniformity(samples, 10) == pytest.approx((0.0 + 9 / 11) / 2)


def test_load_rejects_invalid_saved_state() -> None:
    empty = taken_back(QesperaDistributions(), QesperaDistributions())
    assert kept_by(empty) == (b"", {})
    empty.rows.append(b"\xc1")
    with pytest.raises(ValueError, match="saved state"):
        empty.load(b"")


def test_jobs_not_observed_at_submission_have_maximum_distance() -> None:
    site, method = new_site(), QesperaDistributions()
    play(QesperaDistributions(), site, 0, 20)
    play(method, site, 20, 40)
    found = method.distribution_distances(Job(id="x", attempt=0, submit=0.0, features=np.ones(16)), site)
    assert found is not None
    assert (found[:20] == 1.0).all() and (found[20:] < 1.0).any()
