import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.papers.last_two import CORRECTIONS_S, LastTwo
from models.site.job import Job
from models.site.runs import RunHistory, Template

HOUR = 3600.0


def make(user: str | None = "ada", walltime: float | None = None) -> Job:
    return Job(id="1", attempt=0, submit=0.0, user=user, walltime=walltime)


def history_of(*run_times: float, user: str = "ada", depth: int = 2) -> RunHistory:
    history = RunHistory([*LastTwo.templates, Template(("user",), depth)])
    for run_s in run_times:
        history.learn(make(user), run_s)
    return history


def predicted(history: RunHistory, job: Job, elapsed_s: float = 0.0) -> float | None:
    return LastTwo().predict(job, history, elapsed_s).run_s


@pytest.mark.parametrize("depth", [2, 64])
def test_last_two_runs_of_the_user_are_averaged_at_any_depth(depth: int) -> None:
    history = history_of(10.0, 100.0, 300.0, depth=depth)
    history.learn(make("bob"), 9000.0)
    assert predicted(history, make()) == 200.0


def test_last_two_is_limited_by_the_walltime() -> None:
    assert predicted(history_of(100.0, 300.0), make(walltime=150.0)) == 150.0
    assert predicted(history_of(100.0, 300.0), make(walltime=250.0)) == 200.0


@pytest.mark.parametrize(
    ("ran", "walltime", "expected"),
    [
        ([], 500.0, 500.0),
        ([100.0], 500.0, 500.0),
        ([100.0], None, 100.0),
        ([100.0], 0.0, 100.0),
        ([], None, None),
    ],
)
def test_last_two_with_fewer_runs_prefers_the_walltime(
    ran: list[float], walltime: float | None, expected: float | None
) -> None:
    assert predicted(history_of(*ran), make(walltime=walltime)) == expected


def test_last_two_of_missing_user_returns_the_walltime() -> None:
    history = history_of(100.0, 300.0)
    assert predicted(history, make(user=None, walltime=500.0)) == 500.0
    estimate = LastTwo().predict(make(user=None), history)
    assert (estimate.run_s, estimate.reason) == (None, "no run of the user, no walltime requested")


@pytest.mark.parametrize(
    ("elapsed_s", "expected"),
    [
        (0.0, 200.0),
        (199.0, 200.0),
        (200.0, 260.0),  # one more minute
        (260.0, 500.0),  # five
        (HOUR, 200.0 + HOUR),
        (200.0 + HOUR, 200.0 + 2 * HOUR),
        (200.0 + 99 * HOUR, 200.0 + 100 * HOUR),
        (200.0 + 500 * HOUR, 200.0 + 500 * HOUR),  # beyond all corrections
    ],
)
def test_exceeded_prediction_is_corrected_in_growing_steps(elapsed_s: float, expected: float) -> None:
    assert predicted(history_of(100.0, 300.0), make(), elapsed_s) == expected
    assert predicted(history_of(100.0, 300.0), make(walltime=HOUR), elapsed_s) == max(min(expected, HOUR), elapsed_s)


def test_corrections_are_increasing() -> None:
    assert list(CORRECTIONS_S) == sorted(CORRECTIONS_S)
    assert CORRECTIONS_S[-1] == 100 * HOUR


times = st.floats(0, 1e11)


@given(st.lists(times, max_size=5), st.none() | times, times)
def test_estimate_is_between_elapsed_time_and_walltime(
    ran: list[float], walltime: float | None, elapsed_s: float
) -> None:
    estimate = predicted(history_of(*ran), make(walltime=walltime), elapsed_s)
    if estimate is not None:
        assert elapsed_s <= estimate
        assert not walltime or estimate <= max(walltime, elapsed_s)
