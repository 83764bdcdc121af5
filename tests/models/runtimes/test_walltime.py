import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.runtimes.walltime import Walltime, within
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory


def predicted(walltime: float | None, elapsed_s: float = 0.0) -> RunEstimate:
    return Walltime().predict(Job(id="1", attempt=0, submit=0.0, walltime=walltime), RunHistory(), elapsed_s)


def test_walltime_method_returns_the_requested_walltime() -> None:
    assert predicted(7200.0) == RunEstimate(7200.0, "requested walltime")
    assert predicted(7200.0, 600.0).run_s == 7200.0


def test_walltime_method_returns_elapsed_time_of_overrun_job() -> None:
    assert predicted(7200.0, 7260.0).run_s == 7260.0


@pytest.mark.parametrize("walltime", [None, 0.0, -1.0])
def test_walltime_method_without_walltime_returns_no_estimate(walltime: float | None) -> None:
    assert predicted(walltime, 60.0) == RunEstimate(None, "no walltime requested")


@pytest.mark.parametrize(
    ("run_s", "walltime", "elapsed_s", "expected"),
    [
        (100.0, None, 0.0, 100.0),
        (100.0, 50.0, 0.0, 50.0),
        (100.0, 50.0, 60.0, 60.0),
        (100.0, 500.0, 200.0, 200.0),
        (100.0, 0.0, 0.0, 100.0),  # no request
        (-5.0, None, 0.0, 0.0),
    ],
)
def test_run_time_is_between_elapsed_time_and_walltime(
    run_s: float, walltime: float | None, elapsed_s: float, expected: float
) -> None:
    assert within(run_s, walltime, elapsed_s) == expected


times = st.floats(0, 1e11)


@given(times, times, st.none() | times, times)
def test_within_keeps_the_order_of_run_times(
    run_s: float, other_s: float, walltime: float | None, elapsed_s: float
) -> None:
    less, more = sorted((run_s, other_s))
    assert within(less, walltime, elapsed_s) <= within(more, walltime, elapsed_s)
