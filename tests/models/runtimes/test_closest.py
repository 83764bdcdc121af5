import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.runtimes.closest import Closest
from models.site.job import Job
from models.site.runs import RunHistory
from tests.support.jobs import make


def predicted(history: RunHistory, job: Job, elapsed_s: float = 0.0) -> float | None:
    return Closest().predict(job, history, elapsed_s).run_s


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (make(executable="namd", queue="batch"), ["executable,user", "user,cpus", "queue,user", "user", "site"]),
        (make(queue="batch"), ["user,cpus", "queue,user", "user", "site"]),
        (make(), ["user,cpus", "user", "site"]),
        (make(user=None, executable="namd", queue="batch"), ["site"]),
    ],
)
def test_categories_come_closest_first(job: Job, names: list[str]) -> None:
    assert [found[0] for template in Closest.templates if (found := template.category(job))] == names


def test_the_closest_category_with_enough_runs_is_believed() -> None:
    history = RunHistory(Closest.templates)
    namd, wrf = make(executable="namd", cpus=4), make(executable="wrf", cpus=64)
    assert predicted(history, namd) is None
    history.learn(namd, 100.0)
    assert predicted(history, namd) is None
    history.learn(wrf, 300.0)
    assert predicted(history, namd) == 200.0  # of the user: each of the closer categories has run once
    history.learn(namd, 140.0)
    assert predicted(history, namd) == 120.0
    assert predicted(history, make(executable="new", cpus=3)) == 120.0  # of the user at that size
    assert predicted(history, make(user="bob")) == pytest.approx(180.0)  # of the site


def test_an_estimate_is_of_the_last_runs_of_its_category() -> None:
    history = RunHistory(Closest.templates)
    for run_s in (1e6, *[10.0] * 4, *[50.0] * 4):
        history.learn(make(), run_s)
    assert predicted(history, make()) == 30.0


def test_no_more_runs_are_kept_than_are_read() -> None:
    history = RunHistory(Closest.templates)
    for number in range(100):
        history.learn(make(), float(number))
    assert [run.run_s for run in history.of(("user", "ada"))] == [92.0, 93.0, 94.0, 95.0, 96.0, 97.0, 98.0, 99.0]


def test_of_a_job_that_runs_already_only_longer_runs_tell() -> None:
    history = RunHistory(Closest.templates)
    for run_s in (10.0, 20.0, 60.0, 80.0):
        history.learn(make(), run_s)
    assert predicted(history, make(), 20.0) == 70.0
    assert predicted(history, make(), 80.0) == 80.0  # none ran longer: it is over at any moment


@pytest.mark.parametrize(
    ("walltime", "ran", "expected"),
    [
        (None, [(None, 100.0), (3600.0, 200.0)], 150.0),
        (7200.0, [(3600.0, 1800.0), (7200.0, 1800.0)], 2700.0),  # half and a quarter of the request
        (7200.0, [(None, 1000.0), (3600.0, 1800.0)], 2300.0),
        (100.0, [(None, 1000.0), (None, 3000.0)], 100.0),  # no more than the request
        (100.0, [(50.0, 80.0), (50.0, 90.0)], 100.0),  # overran theirs
        (100.0, [(50.0, 80.0), (50.0, 10.0)], 60.0),
        (100.0, [(0.0, 30.0), (0.0, 50.0)], 40.0),  # none was asked for
        (0.0, [(60.0, 30.0), (0.0, 50.0)], 40.0),
    ],
)
def test_run_times_are_relative_to_the_requests_where_there_are_any(
    walltime: float | None, ran: list[tuple[float | None, float]], expected: float
) -> None:
    history = RunHistory(Closest.templates)
    for requested, run_s in ran:
        history.learn(make(walltime=requested), run_s)
    assert predicted(history, make(walltime=walltime)) == expected


times = st.floats(0, 1e11)


@given(st.lists(st.tuples(st.none() | times, times), min_size=2, max_size=20), times)
def test_no_estimate_is_beyond_the_walltime_or_below_zero(
    ran: list[tuple[float | None, float]], walltime: float
) -> None:
    history = RunHistory(Closest.templates)
    for requested, run_s in ran:
        history.learn(make(walltime=requested), run_s)
    estimate = predicted(history, make(walltime=walltime))
    assert estimate is not None and estimate >= 0
    assert walltime == 0 or estimate <= walltime
