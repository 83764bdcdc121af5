from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.runtimes.closest import Closest
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory
from models.stored_values import encode
from tests.support.jobs import make


def predicted(history: RunHistory, job: Job, elapsed_s: float = 0.0) -> float | None:
    return Closest().predict(job, history, elapsed_s).run_s


def learnt(*run_times: float, job: Job | None = None) -> RunHistory:
    history = RunHistory(Closest.templates)
    for run_s in run_times:
        history.learn(job or make(), run_s)
    return history


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (
            make(executable="namd", queue="batch", walltime=60.0),
            ["user,walltime", "executable,user", "user,cpus", "queue,user", "user", "queue", "site"],
        ),
        (make(queue="batch"), ["user,cpus", "queue,user", "user", "queue", "site"]),
        (make(), ["user,cpus", "user", "site"]),
        (make(user=None, executable="namd", queue="batch"), ["queue", "site"]),
    ],
)
def test_closest_templates_start_with_the_closest(job: Job, names: list[str]) -> None:
    assert [found[0] for template in Closest.templates if (found := template.category(job))] == names


def test_closest_prefers_runs_of_close_categories() -> None:
    history = RunHistory(Closest.templates)
    namd, wrf = make(executable="namd", cpus=4), make(executable="wrf", cpus=64)
    assert predicted(history, namd) is None
    history.learn(namd, 100.0)
    assert predicted(history, namd) is None
    history.learn(wrf, 300.0)
    assert predicted(history, namd) == 100.0
    assert predicted(history, wrf) == 300.0
    history.learn(wrf, 340.0)
    assert predicted(history, namd) == 100.0
    assert predicted(history, make(executable="new", cpus=3)) == 100.0  # the same size
    assert predicted(history, make(user="bob")) == 300.0  # only all jobs of the site


def test_closest_names_the_closest_category() -> None:
    history = learnt(10.0, 20.0)
    assert Closest().predict(make(), history).reason == "median of recent runs, closest by user,cpus"
    assert Closest().predict(make(user="bob"), history).reason == "median of recent runs, closest by site"


def test_closest_median_ignores_a_heavy_tail() -> None:
    assert predicted(learnt(*[30.0, 40.0, 50.0] * 3, 1e6, 1e6), make()) == 50.0


def test_closest_weights_recent_runs_more() -> None:
    assert predicted(learnt(*[10.0] * 8, *[50.0] * 8), make()) == 50.0
    assert predicted(learnt(*[50.0] * 8, *[10.0] * 8), make()) == 10.0


def test_closest_keeps_no_more_runs_than_it_uses() -> None:
    kept = learnt(*map(float, range(100))).of(("user", "ada"))
    assert [run.run_s for run in kept] == [float(run_s) for run_s in range(84, 100)]


def test_closest_uses_only_runs_above_the_elapsed_time() -> None:
    history = learnt(60.0, 80.0, 70.0, 10.0, 20.0)
    assert predicted(history, make(), 20.0) == 70.0
    assert predicted(history, make(), 80.0) == 80.0  # no longer run: can end at any moment


@pytest.mark.parametrize(
    ("walltime", "ran", "expected"),
    [
        (None, [(None, 100.0), (3600.0, 200.0)], 200.0),
        (7200.0, [(3600.0, 1800.0)] * 2, 3600.0),  # half of the request
        (7200.0, [(None, 1000.0)] * 2, 1000.0),
        (100.0, [(None, 1000.0), (None, 3000.0)], 100.0),  # at most the request
        (100.0, [(50.0, 80.0), (50.0, 90.0)], 100.0),  # longer than their request
        (100.0, [(50.0, 10.0), (50.0, 30.0)], 60.0),
        (100.0, [(0.0, 30.0), (0.0, 50.0)], 50.0),  # nothing was requested
        (0.0, [(60.0, 30.0), (0.0, 50.0)], 50.0),
    ],
)
def test_closest_scales_runs_by_the_walltime(
    walltime: float | None, ran: list[tuple[float | None, float]], expected: float
) -> None:
    history = RunHistory(Closest.templates)
    for requested, run_s in ran:
        history.learn(make(walltime=requested), run_s)
    assert predicted(history, make(walltime=walltime)) == expected


def test_closest_interval_covers_eight_of_ten_runs() -> None:
    draw, method, history = Random(1), Closest(), RunHistory(Closest.templates)
    held = []
    for number in range(3000):
        job, run_s = make(), draw.lognormvariate(6.0, 2.0) * (1.0 + number / 300)  # run times grow
        estimate = method.predict(job, history)
        job.run_estimates["closest"] = estimate
        if estimate.interval is not None:
            held.append(estimate.interval[0] <= run_s <= estimate.interval[1])
        method.learn(job, run_s, history)
        history.learn(job, run_s)
    assert sum(held[-1500:]) / 1500 == pytest.approx(0.8, abs=0.05)


def test_closest_interval_continues_after_a_restore() -> None:
    history, before, after = learnt(100.0, 200.0), Closest(), Closest()
    for _ in range(50):
        job = make()
        job.run_estimates["closest"] = before.predict(job, history)
        before.learn(job, 5000.0, history)
    after.load(before.save())
    assert after.predict(make(), history) == before.predict(make(), history) != Closest().predict(make(), history)
    with pytest.raises(ValueError, match="not the interval of run times"):
        after.load(encode((0.0, 4.0)))


def test_closest_run_beyond_the_walltime_counts_as_covered() -> None:
    method, history = Closest(), learnt(100.0, 100.0, job=make(walltime=100.0))
    job = make(walltime=100.0)
    job.run_estimates["closest"] = RunEstimate(100.0, "", 100.0, 100.0)
    method.learn(job, 900.0, history)
    assert msgspec.msgpack.decode(method.save()) == pytest.approx([-0.0003, -0.0003])


times = st.floats(0, 1e11)


@given(st.lists(st.tuples(st.none() | times, times), min_size=2, max_size=40), times, times)
def test_closest_estimate_is_within_its_interval_and_walltime(
    ran: list[tuple[float | None, float]], walltime: float, elapsed_s: float
) -> None:
    history = RunHistory(Closest.templates)
    for requested, run_s in ran:
        history.learn(make(walltime=requested), run_s)
    estimate = Closest().predict(make(walltime=walltime), history)
    assert estimate.run_s is not None and estimate.low is not None and estimate.high is not None
    assert 0 <= estimate.low <= estimate.run_s <= estimate.high
    assert walltime == 0 or estimate.high <= walltime
    later = Closest().predict(make(walltime=walltime), history, elapsed_s)
    assert later.run_s is not None and later.run_s >= elapsed_s
