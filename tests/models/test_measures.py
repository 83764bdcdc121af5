import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.measures import ERROR_BUCKETS, PPE_BUCKETS, Accuracy, Bound, Histogram, RunAccuracy

REFEREE = Path(__file__).parents[3] / "shared" / "referee" / "score.py"

Scored = tuple[float, float, float | None, dict[str, float] | None]
"""A job's wait and run time, and its predicted wait and bounds."""

MEASURES = ("AAE", "PPE", "PPE600", "PPE1200", "x2", "x3", "1min", "10min", "missing", "jobs")


@pytest.fixture(scope="module")
def referee() -> ModuleType:
    if not REFEREE.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"{REFEREE} is not at hand")
    spec = importlib.util.spec_from_file_location("score", REFEREE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accuracy_over(jobs: list[Scored]) -> Accuracy:
    accuracy = Accuracy()
    for wait_s, run_s, predicted_s, bounds in jobs:
        accuracy.add_wait(predicted_s, wait_s, bounds)
        accuracy.add_response(predicted_s, wait_s, run_s)
    return accuracy


def assert_agree(referee: ModuleType, jobs: list[Scored]) -> None:
    test = [(number, 0.0, wait_s, run_s, True) for number, (wait_s, run_s, *_) in enumerate(jobs)]
    predictions = {
        number: (predicted_s, {float(q): s for q, s in (bounds or {}).items()})
        for number, (_, _, predicted_s, bounds) in enumerate(jobs)
    }
    expected = referee.score(test, predictions)
    accuracy = accuracy_over(jobs)
    found = accuracy.measures()
    assert found == pytest.approx({name: expected[name] for name in MEASURES}, rel=1e-9, abs=1e-12)
    assert {f"{float(q):g}" for q in accuracy.bounds} == set(expected["bounds"])
    for q, bound in accuracy.bounds.items():
        theirs = expected["bounds"][f"{float(q):g}"]
        assert bound.jobs == theirs["jobs"]
        assert bound.held / bound.jobs == pytest.approx(theirs["cov"])
        assert bound.width_s / bound.jobs / 3600 == pytest.approx(theirs["width_h"])
        assert bound.pinball_s / bound.jobs / 3600 == pytest.approx(theirs["pinball_h"])


def random_jobs(count: int, seed: int) -> list[Scored]:
    dice = random.Random(seed)

    def seconds() -> float:
        return dice.choice([0.0, 1.0, 30.0, 60.0, 61.0, 600.0, dice.expovariate(1e-4), float(dice.randrange(100_000))])

    jobs: list[Scored] = []
    for _ in range(count):
        bounds = {q: seconds() for q in ("0.1", "0.5", "0.9", "0.95") if dice.random() < 0.8}
        jobs.append((seconds(), seconds(), dice.choice([None, *(seconds() for _ in range(5))]), bounds or None))
    return jobs


def test_measures_equal_those_of_the_referee(referee: ModuleType) -> None:
    assert_agree(referee, random_jobs(5000, seed=1))


amounts = st.one_of(st.sampled_from([0.0, 59.0, 60.0, 120.0, 180.0, 600.0, 660.0, 1200.0]), st.floats(0, 1e9))


@given(
    st.lists(
        st.tuples(
            amounts,
            amounts,
            st.none() | amounts,
            st.none() | st.dictionaries(st.sampled_from(["0.1", "0.5", "0.95"]), amounts),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_measures_equal_those_of_the_referee_on_edge_cases(referee: ModuleType, jobs: list[Scored]) -> None:
    assert_agree(referee, jobs)


def test_measures_of_one_job_equal_manual_computation() -> None:
    accuracy = accuracy_over([(1200.0, 1800.0, 600.0, {"0.9": 1500.0})])
    assert accuracy.measures() == {
        "AAE": 600 / 3600,
        "PPE": 0.2,
        "PPE600": 0.2,
        "PPE1200": 0.2,
        "x2": 1.0,
        "x3": 1.0,
        "1min": 0.0,
        "10min": 1.0,
        "missing": 0,
        "jobs": 1,
    }
    bound = accuracy.bounds["0.9"]
    assert (bound.jobs, bound.held, bound.width_s) == (1, 1, 1500.0)
    assert bound.pinball_s == pytest.approx(0.1 * 300)


@pytest.mark.parametrize("wait_s", [0.0, 10.0, 1e6])
def test_missing_estimate_is_counted_and_scored_as_zero(wait_s: float) -> None:
    withheld, zero = accuracy_over([(wait_s, 60.0, None, None)]), accuracy_over([(wait_s, 60.0, 0.0, None)])
    assert (withheld.missing, zero.missing) == (1, 0)
    assert withheld.measures() | {"missing": 0} == zero.measures()


def test_measures_of_empty_accuracy_are_zero() -> None:
    assert set(Accuracy().measures().values()) == {0}


def test_run_time_without_estimate_is_missing_and_scores_zero() -> None:
    accuracy = RunAccuracy()
    accuracy.add(None, 120.0)
    accuracy.add(60.0, 120.0, (0.0, 100.0))
    accuracy.add(0.0, 60.0, (0.0, 60.0))
    assert (accuracy.jobs, accuracy.missing, accuracy.run_s) == (3, 1, 300.0)
    measures = accuracy.measures()
    assert (measures["MAE_min"], measures["share"], measures["within"]) == (pytest.approx(4 / 3), 0.8, 0.5)
    assert "within" not in RunAccuracy().measures()


def test_histogram_value_on_an_edge_is_in_the_lower_bucket() -> None:
    histogram = Histogram.over((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.1, 1e9):
        histogram.add(value, (1.0, 2.0))
    assert histogram.counts == [2, 2, 2]
    assert histogram.total == pytest.approx(1e9 + 6.6)


def test_histograms_contain_every_job() -> None:
    jobs = random_jobs(1000, seed=2)
    accuracy = accuracy_over(jobs)
    assert len(accuracy.error.counts) == len(ERROR_BUCKETS) + 1 and len(accuracy.ppe.counts) == len(PPE_BUCKETS) + 1
    errors = [abs((predicted_s or 0.0) - wait_s) for wait_s, _, predicted_s, _ in jobs]
    for upper in range(1, len(ERROR_BUCKETS) + 1):
        within = sum(error <= ERROR_BUCKETS[upper - 1] for error in errors)
        assert sum(accuracy.error.counts[:upper]) == within
    assert sum(accuracy.error.counts) == sum(accuracy.ppe.counts) == len(jobs)


def test_accuracy_survives_encoding() -> None:
    accuracy, jobs = Accuracy(), random_jobs(300, seed=3)
    for half in (jobs[:150], jobs[150:]):
        accuracy = msgspec.msgpack.decode(msgspec.msgpack.encode(accuracy), type=Accuracy)
        for wait_s, run_s, predicted_s, bounds in half:
            accuracy.add_wait(predicted_s, wait_s, bounds)
            accuracy.add_response(predicted_s, wait_s, run_s)
    uninterrupted = accuracy_over(jobs)
    assert accuracy == uninterrupted
    assert msgspec.msgpack.encode(accuracy) == msgspec.msgpack.encode(uninterrupted)


def test_accuracies_share_no_state() -> None:
    one, other = Accuracy(), Accuracy()
    one.add_wait(0.0, 100.0, {"0.5": 1.0})
    assert other == Accuracy() and other.bounds == {}
    assert Bound() == Bound(0, 0, 0.0, 0.0)


def test_sums_of_bounds_have_the_same_order_in_every_process() -> None:
    tally = "Tally(bounds={str(n): (1, 1) for n in range(20)})"
    script = f"from models.measures import Tally; print([*({tally} + {tally}).bounds])"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout == f"{[str(n) for n in range(20)]}\n"


def test_tally_excludes_withheld_predictions() -> None:
    accuracy = Accuracy()
    for predicted_s, wait_s in ((600.0, 900.0), (None, 7200.0)):
        accuracy.add_wait(predicted_s, wait_s)
        accuracy.add_response(predicted_s, wait_s, run_s=100.0)
    tally = accuracy.tally()
    assert (tally.jobs, tally.error_s, tally.within_x2, tally.responses, tally.ppe) == (1, 300.0, 1, 1, 0.3)
    assert accuracy.measures()["jobs"] == 2 and accuracy.missing == 1
