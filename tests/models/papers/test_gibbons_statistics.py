import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.papers.gibbons_statistics import ExecutionTime, student

# The thesis' own examples, section 4.3.3.

CPUS, TIMES, DEVIATIONS = [1, 4, 8], [8350.0, 2500.0, 1700.0], [4175.0, 1250.0, 850.0]


def example(variances: list[float], observations: int = 60) -> ExecutionTime:
    function = ExecutionTime.fitted(CPUS, TIMES, variances, observations)
    assert function is not None
    return function


@pytest.mark.parametrize("variances", [DEVIATIONS, [s**2 for s in DEVIATIONS], [s**2 / 20 for s in DEVIATIONS]])
def test_the_example_of_the_execution_time_function(variances: list[float]) -> None:
    function = example(variances)
    assert function.coefficients == pytest.approx([8000.0, 300.0, 50.0])
    assert function.estimate_time(16)[0] == pytest.approx(1600.0)


def test_the_interval_follows_from_the_matrices() -> None:
    design = np.array([[1 / p, 1, p] for p in CPUS])
    x0 = np.array([1 / 16, 1, 16])
    for variances in (DEVIATIONS, [s**2 / 20 for s in DEVIATIONS]):
        spread = x0 @ np.linalg.inv(design.T @ np.diag(1 / np.array(variances)) @ design) @ x0
        assert example(variances).estimate_time(16)[1] == pytest.approx(student(60, 0.975) * math.sqrt(spread))
    assert student(60, 0.975) == pytest.approx(2.0, abs=0.001)
    assert example(DEVIATIONS).estimate_time(16)[1] == pytest.approx(2.0003 * math.sqrt(16935.2), rel=1e-4)


def test_a_fit_weighs_what_is_surer_more() -> None:
    cpus, times = [1, 2, 4, 8], [8350.0, 4400.0, 2500.0, 5000.0]
    unsure, sure = (ExecutionTime.fitted(cpus, times, [100, 100, 100, last], 40) for last in (1e8, 1e-2))
    assert unsure is not None and sure is not None
    assert unsure.estimate_time(1)[0] == pytest.approx(8350.0, rel=1e-3)
    assert sure.estimate_time(8)[0] == pytest.approx(5000.0, rel=1e-3)
    assert abs(unsure.estimate_time(8)[0] - 5000.0) > 1000.0


@pytest.mark.parametrize("cpus", [[1, 2], [4, 4, 4], [1, 4, 4]])
def test_what_cannot_tell_the_terms_apart_is_no_fit(cpus: list[int]) -> None:
    assert ExecutionTime.fitted(cpus, [100.0] * len(cpus), [1.0] * len(cpus), 10) is None


terms = st.floats(1, 1e5)


@given(terms, terms, st.floats(0, 100), st.lists(st.floats(1, 1e6), min_size=4, max_size=4), st.integers(1, 512))
def test_an_execution_time_function_is_found_again(
    work: float, alpha: float, beta: float, variances: list[float], cpus: int
) -> None:
    def true(p: float) -> float:
        return work / p + alpha + beta * p

    places = [1.0, 3.5, 16.0, 100.0]
    function = ExecutionTime.fitted(places, [true(p) for p in places], variances, 20)
    assert function is not None
    estimate, error = function.estimate_time(cpus)
    assert estimate == pytest.approx(true(cpus), rel=1e-6)
    assert error >= 0
