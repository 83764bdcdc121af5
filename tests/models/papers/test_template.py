import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from models.method_registry import run_method_named
from models.papers.run_template import MAX_HISTORY_RUNS, UNIT, RunTemplate
from models.papers.template import (
    MIN_HALF_WIDTH_S,
    NOTHING,
    Choice,
    Templates,
    estimate,
    plus,
    student_quantiles,
)
from models.site.job import Job, RunEstimate
from models.site.runs import RunHistory

CHEBYSHEV = math.sqrt(10)


def make(cpus: int = 4, walltime: float | None = 3600.0, user: str | None = "ada", **request: Any) -> Job:
    return Job(id="1", attempt=0, submit=0.0, user=user, cpus=cpus, walltime=walltime, **request)


def after(runs: list[tuple[Job, float]], *templates: str, choice: Choice = "surest") -> tuple[Templates, RunHistory]:
    method = Templates(templates, choice)
    history = RunHistory(method.templates)
    for job, run_s in runs:
        history.learn(job, run_s)
    return method, history


def predicted(
    runs: list[tuple[Job, float]], job: Job, *templates: str, elapsed_s: float = 0.0, choice: Choice = "surest"
) -> RunEstimate:
    method, history = after(runs, *templates, choice=choice)
    return method.predict(job, history, elapsed_s)


def spread(run: RunEstimate) -> float:
    assert run.low is not None and run.high is not None
    return (run.high - run.low) / 2


# Templates as text.


@pytest.mark.parametrize(
    ("text", "template", "canonical"),
    [
        ("user mean relative 4096", RunTemplate(("user",), "mean", True, 4096), None),
        ("site mean absolute 2", RunTemplate((), "mean", False, 2), None),
        ("queue,user,cpus/4 linear relative 65536", RunTemplate(("queue", "user", "cpus/4"), "linear", True), None),
        (
            "cpus/512,elapsed/64,user,type  inverse absolute 7",
            RunTemplate(("type", "user", "cpus/512"), "inverse", False, 7, 64),
            "type,user,cpus/512,elapsed/64 inverse absolute 7",
        ),
        ("elapsed/1 logarithmic absolute 64", RunTemplate((), "logarithmic", False, 64, 1), None),
        ("cpus,memory mean absolute 64", RunTemplate(("cpus", "memory"), "mean", False, 64), None),
    ],
)
def test_template_text_round_trips(text: str, template: RunTemplate, canonical: str | None) -> None:
    assert RunTemplate.parse(text) == template
    assert str(template) == (canonical or text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected four words"),
        ("user mean relative", "expected four words"),
        ("usr mean relative 64", "no attribute 'usr'; there are: type, queue"),
        ("user/4 mean relative 64", "no attribute 'user/4'"),
        ("user,,queue mean relative 64", "no attribute ''"),
        ("user,cpus,cpus/4 mean relative 64", "an attribute is there twice"),
        ("user,user mean relative 64", "an attribute is there twice"),
        ("cpus/0 mean relative 64", "'cpus/0': expected cpus/N with N from 1"),
        ("cpus/x mean relative 64", "'cpus/x': expected cpus/N"),
        ("elapsed mean relative 64", "'elapsed': expected elapsed/N"),
        ("elapsed/-1 mean relative 64", "'elapsed/-1': expected elapsed/N"),
        ("user average relative 64", "no predictor 'average'; there are: mean, linear, inverse, logarithmic"),
        ("user mean rel 64", "data is 'rel'; expected absolute or relative"),
        ("user mean relative 1", "history is '1'; expected 2 to 65536"),
        ("user mean relative 65537", "history is '65537'"),
        ("user mean relative many", "history is 'many'"),
    ],
)
def test_template_parse_error_names_the_problem(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match="an example: 'user,cpus/4 mean relative 4096'") as raised:
        RunTemplate.parse(text)
    assert problem in str(raised.value)


def test_settings_configure_the_template_method() -> None:
    method = run_method_named("template", {"templates": ["user mean relative 8"], "choice": "surest"})
    assert isinstance(method, Templates)
    assert (method.templates[0].name, method.templates[0].depth, method.choice) == ("user", 8, "surest")
    assert isinstance(run_method_named("template"), Templates)
    for parameters in ({"templates": []}, {"templates": ["user"]}, {"choice": "best"}, {"templates": "user"}):
        with pytest.raises(ValueError, match="template"):
            run_method_named("template", parameters)


# Estimates of one category: manual computation and scipy.


def test_mean_has_a_chebyshev_interval() -> None:
    runs = [(make(), run_s) for run_s in (600.0, 900.0, 1500.0)]
    found = predicted(runs, make(), "user mean absolute 64")
    assert found.run_s == 1000.0
    assert found.reason == "mean of 3 by user"
    # Variance (400² + 100² + 500²) / 2 = 210000, its root times √10 for 90 percent.
    assert found.low == 0.0 and found.high == pytest.approx(1000.0 + math.sqrt(2_100_000.0))


def test_relative_run_times_are_shares_of_the_walltime() -> None:
    runs = [(make(walltime=1000.0), 500.0), (make(walltime=4000.0), 3000.0), (make(walltime=None), 77.0)]
    found = predicted(runs, make(walltime=8000.0), "user mean relative 64")
    assert found.run_s == pytest.approx(0.625 * 8000, rel=1e-6)  # the mean of a half and three quarters
    half = CHEBYSHEV * math.sqrt(2 * 0.125**2) * 8000
    assert (found.low, found.high) == (pytest.approx(5000 - half, rel=1e-6), 8000.0)  # at most the walltime
    assert found.reason == "mean of 2 by user"
    assert predicted(runs, make(walltime=None), "user mean relative 64").run_s is None
    assert predicted(runs, make(walltime=0.0), "user mean relative 64").run_s is None
    overrun = [(make(walltime=1000.0), 1100.0)] * 2
    assert predicted(overrun, make(walltime=500.0), "user mean relative 64").run_s == 500.0


def test_linear_regression_equals_manual_computation() -> None:
    # n = 1, 2, 3, 4 and t = 100, 300, 200, 400: slope 80, mean 250 at 2.5, residues 0.3 · 60000 = 18000.
    runs = [(make(cpus), run_s) for cpus, run_s in ((1, 100.0), (2, 300.0), (3, 200.0), (4, 400.0))]
    found = predicted(runs, make(cpus=5), "user linear absolute 64")
    assert found.run_s == pytest.approx(450.0)
    half = 2.9199855803537 * math.sqrt(9000.0) * math.sqrt(1 + 1 / 4 + 2.5**2 / 5)  # t at 0.95 with 2 degrees
    assert found.low == pytest.approx(max(450.0 - half, 0.0)) and found.high == pytest.approx(450.0 + half)


REGRESSORS = {"linear": lambda n: n, "inverse": lambda n: 1 / n, "logarithmic": np.log}


@pytest.mark.parametrize("predictor", REGRESSORS)
def test_regressions_equal_scipy(predictor: str) -> None:
    dice = np.random.default_rng(2)
    cpus = dice.integers(1, 300, 50)
    x, times = REGRESSORS[predictor](cpus.astype(float)), np.round(20_000 + 100 * dice.normal(size=50) + 9 * cpus)
    fit = stats.linregress(x, times)
    at = REGRESSORS[predictor](17.0)
    residues = times - fit.intercept - fit.slope * x
    root = np.sqrt((residues**2).sum() / 48 * (1 + 1 / 50 + (at - x.mean()) ** 2 / ((x - x.mean()) ** 2).sum()))
    runs = [(make(int(n)), float(t)) for n, t in zip(cpus, times, strict=True)]
    found = predicted(runs, make(17, None), f"user {predictor} absolute 64")
    assert found.run_s == pytest.approx(fit.intercept + fit.slope * at, rel=1e-4)
    assert spread(found) == pytest.approx(stats.t.ppf(0.95, 48) * root, rel=1e-4)


def test_too_few_runs_give_no_estimate() -> None:
    one, two = [(make(2), 60.0)], [(make(2), 60.0), (make(3), 90.0)]
    same = [(make(3), 60.0)] * 5
    assert predicted([], make(), "user mean absolute 64") == RunEstimate(None, "no history")
    assert predicted(one, make(), "user mean absolute 64").run_s is None
    assert predicted(two, make(), "user mean absolute 64").run_s == 75.0
    for predictor in REGRESSORS:
        assert predicted(two, make(), f"user {predictor} absolute 64").run_s is None
        assert predicted(same, make(), f"user {predictor} absolute 64").run_s is None
        assert predicted([*same, (make(4), 60.0)], make(), f"user {predictor} absolute 64").run_s is not None
    assert predicted(two, make(user=None), "user mean absolute 64").run_s is None
    assert predicted(two, make(user="bob"), "user mean absolute 64").run_s is None


def test_student_quantiles_match_the_table() -> None:
    quantiles = student_quantiles(50)
    assert quantiles[[1, 2, 30, 48]] == pytest.approx([6.3138, 2.92, 1.6973, 1.6772], abs=1e-4)


points = st.lists(st.tuples(st.integers(0, UNIT), st.integers(1, UNIT)), min_size=2, max_size=40)


@given(points, st.integers(1, UNIT))
def test_integer_sums_equal_two_pass_statistics(pairs: list[tuple[int, int]], at: int) -> None:
    sums = NOTHING
    for y, x in [*pairs, *pairs[:5]]:
        sums = plus(sums, y, x, 1)
    for y, x in pairs[:5]:
        sums = plus(sums, y, x, -1)
    ys, xs = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    value, half = estimate(sums, 0, False, np.empty(0))
    assert value == pytest.approx(ys.mean())
    assert half == pytest.approx(CHEBYSHEV * ys.std(ddof=1), rel=1e-9, abs=1e-9)
    value, half = estimate(sums, at, True, student_quantiles(64))
    if len(pairs) > 2 and len({x for _, x in pairs}) > 1:
        slope = ((xs - xs.mean()) * (ys - ys.mean())).sum() / ((xs - xs.mean()) ** 2).sum()
        far = 1 + abs(at - xs.mean()) / (xs.max() - xs.min())
        assert value == pytest.approx(ys.mean() + slope * (at - xs.mean()), rel=1e-6, abs=1e-6 * UNIT * far)
    else:
        assert half == math.inf


def test_largest_sums_fit_in_64_bits() -> None:
    sums = NOTHING
    for _ in range(16):
        sums = plus(sums, UNIT, UNIT, 1)
    full = tuple(MAX_HISTORY_RUNS // 16 * part for part in sums)
    assert max(full) < 2**63
    assert estimate(full, UNIT, False, np.empty(0)) == (UNIT, 0.0)


# Sets of templates.


def test_smallest_interval_selects_the_prediction() -> None:
    runs = [(make(4), 100.0), (make(4), 110.0), (make(8), 400.0), (make(8), 401.0), (make(8, user="bob"), 500.0)]
    templates = ("user mean absolute 64", "user,cpus/4 mean absolute 64", "cpus/8 mean absolute 64")
    assert predicted(runs, make(8), *templates).run_s == 400.5
    assert predicted(runs, make(4), *templates).run_s == 105.0
    assert predicted(runs, make(8, user="bob"), *templates).reason == "mean of 5 by cpus/8"
    assert predicted([(make(), 60.0)] * 2, make(), "user mean absolute 4", "site mean absolute 4").reason[-4:] == "user"


def test_estimates_weigh_by_their_intervals() -> None:
    runs = [(make(4), 1000.0), (make(4), 1100.0), (make(8), 4000.0)]
    templates = ("user mean absolute 64", "user,cpus/4 mean absolute 64")
    of_all, of_size = CHEBYSHEV * np.std([1000, 1100, 4000], ddof=1), CHEBYSHEV * np.std([1000, 1100], ddof=1)
    mean = (6100 / 3 / of_all + 1050 / of_size) / (1 / of_all + 1 / of_size)
    found = predicted(runs, make(4), *templates, choice="weighted")
    assert found.run_s == pytest.approx(mean)
    assert found.reason == "2 templates, the surest mean of 2 by user,cpus/4"
    assert found.high == pytest.approx(min(mean + 2 / (1 / of_all + 1 / of_size), 3600.0))
    same = [(make(4), 1000.0)] * 2 + [(make(8), 4000.0)]  # zero width: one minute is used
    mean = (2000 / of_all_(same) + 1000 / MIN_HALF_WIDTH_S) / (1 / of_all_(same) + 1 / MIN_HALF_WIDTH_S)
    assert predicted(same, make(4), *templates, choice="weighted").run_s == pytest.approx(mean)


def test_weighted_choice_uses_all_jobs_as_last_resort() -> None:
    runs = [(make(), 1000.0), (make(), 1200.0), (make(user="bob"), 3500.0)]
    templates = ("user mean absolute 64", "site mean absolute 64")
    assert predicted(runs, make(), *templates, choice="weighted").run_s == pytest.approx(1100.0)
    found = predicted(runs, make(user="eve"), *templates, choice="weighted")
    assert (found.run_s, found.reason) == (pytest.approx(1900.0), "mean of 3 by site")


def of_all_(runs: list[tuple[Job, float]]) -> float:
    return CHEBYSHEV * float(np.std([run_s for _, run_s in runs], ddof=1))


def test_history_is_limited_to_the_last_runs() -> None:
    runs = [(make(), float(run_s)) for run_s in (9000, 8000, 100, 200, 300)]
    assert predicted(runs, make(), "user mean absolute 3").run_s == 200.0
    both = Templates(["user mean absolute 2", "user mean absolute 5"])
    history = RunHistory(both.templates)  # keeps the deeper history
    for job, run_s in runs:
        history.learn(job, run_s)
        both.predict(make(), history)
    assert Templates(["user mean absolute 2"]).predict(make(), history).run_s == 250.0


def test_running_job_is_compared_with_runs_at_least_as_long() -> None:
    runs = [(make(), float(run_s)) for run_s in (100, 1000, 1100, 2000, 2200)]
    conditional, blind = "user,elapsed/1000 mean absolute 64", "user mean absolute 64"
    assert predicted(runs, make(), conditional).run_s == 1280.0
    assert predicted(runs, make(), conditional, elapsed_s=999.0).run_s == 1280.0
    assert predicted(runs, make(), conditional, elapsed_s=1500.0).run_s == 1575.0
    assert predicted(runs, make(), conditional, elapsed_s=2050.0).run_s == 2100.0
    assert predicted(runs, make(), conditional, elapsed_s=3000.0).run_s is None
    assert predicted(runs, make(), blind, elapsed_s=2050.0).run_s == 2050.0
    found = predicted(runs, make(), "user,elapsed/1 mean absolute 64", elapsed_s=2000.0)
    assert (found.run_s, found.reason) == (2100.0, "mean of 2 by user")


times = st.floats(0, 1e9)
walltimes = st.none() | st.floats(0, 1e9)


@given(st.lists(st.tuples(st.integers(1, 5000), walltimes, times), max_size=20), walltimes, times, st.data())
def test_estimate_is_between_elapsed_time_and_walltime(
    ran: list[tuple[int, float | None, float]], walltime: float | None, elapsed_s: float, data: st.DataObject
) -> None:
    choice = data.draw(st.sampled_from(["surest", "weighted"]))
    predictor = data.draw(st.sampled_from(["mean", *REGRESSORS]))
    texts = [f"user,elapsed/64 {predictor} {kind} 16" for kind in ("absolute", "relative")]
    found = predicted(
        [(make(n, w), t) for n, w, t in ran], make(7, walltime), *texts, elapsed_s=elapsed_s, choice=choice
    )
    if found.run_s is not None:
        assert found.low is not None and found.high is not None
        assert elapsed_s <= found.low <= found.run_s <= found.high
        assert not walltime or found.high <= max(walltime, elapsed_s)


def test_cached_data_equal_recomputed_data() -> None:
    """Categories are added, filled, overflow and are dropped."""
    dice = random.Random(4)
    texts = ["user,elapsed/64 mean relative 8", "user,cpus/2 linear absolute 32", "queue inverse relative 5"]
    kept = Templates(texts)
    history = RunHistory(kept.templates, breadth=10)
    run_times = set()
    for _ in range(400):
        job = make(dice.randint(1, 9), dice.choice([None, 600.0, 900.0]), dice.choice("abcde"), queue=dice.choice("pq"))
        if dice.random() < 0.5:
            history.learn(job, dice.expovariate(1 / 500))
        elapsed_s = dice.choice([0.0, 0.0, 300.0])
        found = kept.predict(job, history, elapsed_s)
        assert found == Templates(texts).predict(job, history, elapsed_s)
        run_times.add(found.run_s)
    assert len(run_times) > 100
    assert kept.predict(make(), RunHistory(kept.templates)).run_s is None
