import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.method_registry import run_method_named
from models.papers.downey import MAX_FITTED_RUNS, Downey, LogUniform
from models.site.job import Job
from models.site.runs import RunHistory


def make(queue: str | None = "batch", walltime: float | None = None) -> Job:
    return Job(id="1", attempt=0, submit=0.0, queue=queue, walltime=walltime)


def history_of(run_times: list[float], queue: str | None = "batch") -> RunHistory:
    history = RunHistory(Downey.templates)
    for run_s in run_times:
        history.learn(make(queue), run_s)
    return history


def log_uniform(least: float, greatest: float, count: int) -> list[float]:
    """Return run times with a log-uniform cumulative distribution from `least` to `greatest`."""
    steps = np.arange(1, count + 1) / count
    return [float(run_s) for run_s in least * (greatest / least) ** steps]


def test_log_uniform_fit_recovers_the_distribution() -> None:
    model = LogUniform.fitted(log_uniform(10.0, 1000.0, 50))
    assert (model.least, model.greatest) == pytest.approx((10.0, 1000.0))


def test_log_uniform_fit_equals_least_squares() -> None:
    dice = random.Random(3)
    times = sorted(dice.expovariate(1 / 3000) + 1 for _ in range(40))
    slope, intercept = np.polyfit(np.log(times), np.arange(1, 41) / 40, 1)
    model = LogUniform.fitted(dice.sample(times, 40))  # in any order
    assert model.least == pytest.approx(math.exp(-intercept / slope))
    assert model.greatest == pytest.approx(math.exp((1 - intercept) / slope))


@pytest.mark.parametrize("elapsed_s", [1.0, 60.0, 5000.0])
def test_median_and_average_are_those_of_the_paper(elapsed_s: float) -> None:
    beta0, beta1 = -0.25, 0.125  # from e² to e¹⁰ s
    t_max = math.exp((1 - beta0) / beta1)
    model = LogUniform(math.exp(-beta0 / beta1), t_max).beyond(elapsed_s)
    a = max(elapsed_s, math.exp(2))
    assert model.median == pytest.approx(math.sqrt(a * math.exp((1 - beta0) / beta1)))
    assert model.average == pytest.approx((t_max - a) / (math.log(t_max) - math.log(a)))


def test_log_uniform_median_and_average_equal_those_of_samples() -> None:
    drawn = np.exp(np.random.default_rng(1).uniform(math.log(100), math.log(90_000), 200_000))
    longer = drawn[drawn > 600]
    model = LogUniform(100.0, 90_000.0).beyond(600.0)
    assert model.median == pytest.approx(np.median(longer), rel=0.01)
    assert model.average == pytest.approx(np.mean(longer), rel=0.01)


def test_queue_with_eight_runs_replaces_all_jobs() -> None:
    history = history_of(log_uniform(1000.0, 4000.0, 20), queue="long")
    assert Downey().predict(make("short"), history).reason == "conditional median of 20 by site"
    for run_s in log_uniform(10.0, 40.0, 8):
        history.learn(make("short"), run_s)
    estimate = Downey().predict(make("short"), history)
    assert estimate.reason == "conditional median of 8 by queue"
    assert estimate.run_s == pytest.approx(20.0)
    assert Downey().predict(make("long"), history).run_s == pytest.approx(2000.0)
    assert Downey().predict(make(None), history).reason == "conditional median of 28 by site"


def test_downey_lifetime_parameter_selects_the_average() -> None:
    history = history_of(log_uniform(10.0, 40.0, 8))
    method = run_method_named("downey", {"lifetime": "average"})
    assert method.predict(make(), history).run_s == pytest.approx(30.0 / math.log(4.0))
    with pytest.raises(ValueError, match=r"downey\.lifetime"):
        run_method_named("downey", {"lifetime": "mode"})


def test_downey_without_history_returns_no_estimate() -> None:
    assert Downey().predict(make(), history_of([])).reason == "no history"


@pytest.mark.parametrize("lifetime", ["median", "average"])
@pytest.mark.parametrize("runs", [[500.0], [500.0] * 20, [500.0] * 20 + [math.nextafter(500.0, 1e9)]])
def test_downey_of_equal_run_times_returns_that_run_time(lifetime: str, runs: list[float]) -> None:
    method = run_method_named("downey", {"lifetime": lifetime})
    assert method.predict(make(), history_of(runs)).run_s == pytest.approx(500.0)
    assert method.predict(make(), history_of(runs), 700.0).run_s == 700.0


def test_downey_ignores_runs_beyond_its_limit() -> None:
    times = log_uniform(10.0, 1e5, 3 * MAX_FITTED_RUNS)
    longer = RunHistory([type(template)(template.attributes, 1000) for template in Downey.templates])
    for run_s in times:
        longer.learn(make(), run_s)
    assert Downey().predict(make(), longer) == Downey().predict(make(), history_of(times))


times = st.floats(0, 1e11)


@given(st.lists(times, min_size=1, max_size=80), st.none() | times, times, st.sampled_from(["median", "average"]))
def test_estimate_is_between_elapsed_time_and_walltime(
    ran: list[float], walltime: float | None, elapsed_s: float, lifetime: str
) -> None:
    method = run_method_named("downey", {"lifetime": lifetime})
    estimate = method.predict(make(walltime=walltime), history_of(ran), elapsed_s).run_s
    assert estimate is not None and math.isfinite(estimate)
    assert elapsed_s <= estimate
    assert not walltime or estimate <= max(walltime, elapsed_s)


@given(st.lists(times, min_size=1, max_size=80), times, times)
def test_downey_prediction_grows_with_elapsed_time(ran: list[float], one_s: float, other_s: float) -> None:
    history = history_of(ran)
    less, more = (Downey().predict(make(), history, elapsed_s).run_s for elapsed_s in sorted((one_s, other_s)))
    assert less is not None and more is not None and less <= more
