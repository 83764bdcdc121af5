import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from models.arrays import Floats
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import SiteContext
from models.records import Prediction, Start, Submit
from models.runtimes.closest import Closest
from models.site.history import COUNT, History
from models.site.job import Job
from models.site.runs import RunHistory
from models.site.state import SiteState
from models.waits.qespera import MIN_HISTORY_JOBS, PAPER, Qespera, QesperaParameters, distances, predict


def columns_of(rows: list[list[float]]) -> Floats:
    """Return features by column, as stored in the history."""
    columns = np.ascontiguousarray(np.array(rows, dtype=float).T)
    columns.flags.writeable = False
    return columns


def read_only(values: list[float] | Floats) -> Floats:
    array = np.array(values, dtype=float)
    array.flags.writeable = False
    return array


def result_of(
    waits: Floats, distance: Floats, parameters: QesperaParameters = PAPER, slope: float = 0.0
) -> tuple[float, str, int]:
    """Run algorithm 1 on given distances; the feature that varies is `slope` times the wait, and -1 for the target."""
    columns = columns_of([[0.0, slope * wait] for wait in waits])
    found = predict(np.array([0.0, -1.0]), columns, read_only(waits), distance, parameters)
    assert found is not None
    return found.wait_s, found.model, found.jobs


def test_distances_equal_manual_computation() -> None:
    columns = columns_of([[4, 10, 0], [8, 20, 0], [4, 30, 0]])
    target = np.array([4.0, 40.0, 7.0])
    low, high = columns.min(axis=1), columns.max(axis=1)
    # The range includes the target: 10 to 40. A size is equal or not. The third feature has zero weight.
    found = distances(target, columns, columns.shape[1], np.array([0.5, 0.25, 0.0]), low, high)
    np.testing.assert_allclose(found, [0.25 / 0.75, (0.5 + 0.25 * 20 / 30) / 0.75, 0.25 * (10 / 30) / 0.75])


def test_features_without_correlation_have_equal_weights() -> None:
    columns = columns_of([[1, 0], [2, 1]])
    found = distances(
        np.array([1.0, 0.0]), columns, columns.shape[1], np.zeros(2), np.array([1.0, 0.0]), np.array([2.0, 1.0])
    )
    assert found.tolist() == [0.0, 1.0]


@given(
    rows=st.lists(st.lists(st.floats(0, 1e9), min_size=3, max_size=3), min_size=1, max_size=20),
    target=st.lists(st.floats(0, 1e9), min_size=3, max_size=3),
    weights=st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
@example(rows=[[0.0, 0.0, 2.2250738585e-313]], target=[0.0, 0.0, 0.0], weights=[0.0, 0.0, 0.0])
def test_distances_are_within_0_and_1(rows: list[list[float]], target: list[float], weights: list[float]) -> None:
    columns = columns_of(rows)
    found = distances(
        np.array(target), columns, columns.shape[1], np.array(weights), columns.min(axis=1), columns.max(axis=1)
    )
    assert (found >= 0).all() and (found <= 1 + 1e-9).all()


def test_dense_cluster_predicts_its_mean() -> None:
    near = np.linspace(0.001, 0.04, 60)
    far = np.linspace(0.5, 0.9, 60)
    waits = np.concatenate((np.linspace(990, 1010, 60), np.linspace(0, 90_000, 60)))
    wait, model, jobs = result_of(waits, np.concatenate((near, far)))
    assert model == "sdm"
    assert jobs == 60
    assert wait == pytest.approx(1000, abs=1)


def test_nearer_of_equally_quiet_windows_is_used() -> None:
    waits = np.array([100.0] * 30 + [5000.0] * 30)
    distance = np.array([0.01] * 30 + [0.12] * 30)
    assert result_of(waits, distance, PAPER._replace(nearest=50.0)) == (pytest.approx(100.0), "sdm", 30)


def test_outliers_of_a_window_do_not_count() -> None:
    waits = np.array([100.0] * 40 + [90_000.0] + [0.0, 100_000.0] * 10)
    distance = np.array([0.01] * 41 + [0.8] * 20)
    assert result_of(waits, distance) == (pytest.approx(100.0), "sdm", 40)


def test_nested_windows_contain_all_nearer_jobs() -> None:
    waits = np.array([0.0] * 6 + [0.0] * 6)
    distance = np.array([0.005] * 6 + [0.015] * 6)
    nested = QesperaParameters(least=10)
    assert result_of(waits, distance, nested) == (0.0, "sdm", 12)
    assert result_of(waits, distance, nested._replace(nested=False))[1] != "sdm"


def test_middle_parameter_selects_a_quantile_or_the_mean() -> None:
    waits = np.array([0.0] * 12 + [1000.0] * 9 + [20_000.0] * 30)
    distance = np.array([0.001] * 21 + [0.9] * 30)
    near = QesperaParameters(eps=0.1)
    assert result_of(waits, distance, near)[0] == 0.0
    assert result_of(waits, distance, near._replace(quantile=0.6))[0] == 1000.0
    assert result_of(waits, distance, near._replace(average=True))[0] == pytest.approx(9000 / 21)


def test_distant_history_selects_the_regression() -> None:
    waits = np.linspace(1000, 2000, 50)
    columns = columns_of([[0.0, wait / 2] for wait in waits])
    distance = np.full(50, 0.7)
    found = predict(np.array([0.0, 900.0]), columns, read_only(waits), distance, PAPER)
    assert found is not None and found.model == "ridge"
    assert found.wait_s == pytest.approx(1800, rel=0.02)


@pytest.mark.parametrize("slope", [1.0, -1.0])
def test_impossible_regression_falls_back_to_weighted_average(slope: float) -> None:
    waits = np.linspace(1000, 2000, 50)
    distance = np.linspace(0.6, 0.8, 50)
    columns = columns_of([[0.0, wait] for wait in waits])
    target = np.array([0.0, 1500 - slope * 100_000])  # extrapolates below zero, or far above the longest wait
    found = predict(target, columns, read_only(waits), distance, PAPER)
    assert found is not None and (found.model, found.jobs) == ("wa", PAPER.neighbours)
    assert found.wait_s == pytest.approx(waits[:5].mean(), rel=0.01)


def test_noise_next_to_small_clusters_is_no_structure() -> None:
    spread = np.linspace(0, 100_000, 12)
    waits = np.concatenate((spread, np.zeros(6)))
    distance = np.concatenate((np.linspace(0.01, 0.2, 12), np.full(6, 0.9)))
    found = predict(
        np.zeros(2), columns_of([[0.0, 0.0]] * 18), read_only(waits), distance, PAPER._replace(nearest=60.0)
    )
    assert found is not None and found.model == "ridge"


def test_qespera_without_history_returns_no_estimate() -> None:
    short = MIN_HISTORY_JOBS - 1
    assert predict(np.zeros(2), columns_of([[0.0, 0.0]] * short), np.zeros(short), np.zeros(short), PAPER) is None
    job = Job(id="1", attempt=0, submit=0.0, features=np.zeros(COUNT))
    estimate = Qespera().predict(job, SiteContext(SiteState(), History(100), RunHistory(), Closest()))
    assert (estimate.wait_s, estimate.reason) == (None, "no history")


@given(data=st.data())
def test_prediction_is_within_the_observed_waits_or_zero(data: st.DataObject) -> None:
    count = data.draw(st.integers(MIN_HISTORY_JOBS, 60))
    value = st.sampled_from([0.0, 1.0, 60.0, 3600.0, 86_400.0, 1e6])
    rows = data.draw(st.lists(st.lists(value, min_size=4, max_size=4), min_size=count, max_size=count))
    waits = np.array(data.draw(st.lists(value, min_size=count, max_size=count)))
    target = np.array(data.draw(st.lists(value, min_size=4, max_size=4)))
    columns = columns_of(rows)
    distance = distances(target, columns, columns.shape[1], np.ones(4), columns.min(axis=1), columns.max(axis=1))
    for parameters in (QesperaParameters(), PAPER):
        found = predict(target, columns, read_only(waits), distance, parameters)
        assert found is not None
        assert 0.0 <= found.wait_s <= max(waits.max(), 1.0)
        assert found.jobs >= 1


def test_prediction_does_not_depend_on_the_order_of_history() -> None:
    random = np.random.default_rng(3)
    distance, waits = random.random(300) * 0.4, random.exponential(3000, 300)
    order = random.permutation(300)
    assert (
        result_of(waits, distance, QesperaParameters())[1:]
        == result_of(waits[order], distance[order], QesperaParameters())[1:]
    )
    assert (
        result_of(waits, distance, QesperaParameters())[0]
        == result_of(waits[order], distance[order], QesperaParameters())[0]
    )


def test_qespera_in_engine_predicts_the_wait_of_similar_jobs() -> None:
    engine = Engine("site", EngineSettings(method="qespera", shadows=(), history=64))
    predictions = []
    for number in range(60):
        # Small jobs start immediately, large ones after an hour.
        time, cpus = number * 10_000.0, 64 if number % 2 else 1
        submit = Submit(site="site", time=time, job=str(number), user="ada", cpus=cpus, walltime=600.0 * cpus)
        predictions += [record for record in engine.apply(submit) if isinstance(record, Prediction)]
        engine.apply(Start(site="site", time=time + (3600.0 if cpus == 64 else 0.0), job=str(number)))
    assert all(record.predicted_wait_s is None for record in predictions[:MIN_HISTORY_JOBS])
    assert [record.predicted_wait_s for record in predictions[-2:]] == [0.0, 3600.0]
    assert predictions[-1].reason.startswith("sdm: ")
