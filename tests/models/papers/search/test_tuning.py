import math
from collections.abc import Iterator

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.method_registry import method_named
from models.papers.distributions import QesperaDistributions
from models.papers.search.tuning import (
    STATISTICS,
    VALUES,
    ActualTimes,
    TuningResult,
    Value,
    aae_s,
    choose,
    evaluate,
    parameters_of,
    tune,
    value_of,
    values,
    vary,
)
from models.records import AnyEvent, Outcome
from models.simulation import generate, run
from models.waits.qespera import Qespera

BASE = EngineSettings(method=Qespera.name, shadows=(), history=120)
STATES = msgspec.structs.replace(BASE, method=QesperaDistributions.name)


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    """Two hundred jobs on a busy machine, some of them cancelled."""
    return list(run(generate(seed=3, jobs=200, cpus=64, load=0.9), cpus=64, site="made"))


@pytest.fixture(scope="module")
def jobs(events: list[AnyEvent]) -> dict[str, ActualTimes]:
    """Every second job of the last ninety."""
    truths = {}
    for outcome in outcomes(events, EngineSettings(method="zero", shadows=())):
        if outcome.censored or outcome.actual_run_s is not None:
            truths[outcome.job] = ActualTimes(outcome.actual_wait_s, outcome.actual_run_s or 0.0)
    return {name: truths[name] for name in sorted(truths, key=int)[-90::2]}


def outcomes(events: list[AnyEvent], settings: EngineSettings) -> Iterator[Outcome]:
    engine = Engine("made", settings)
    return (record for event in events for record in engine.apply(event) if isinstance(record, Outcome))


def replayed(events: list[AnyEvent], settings: EngineSettings, jobs: dict[str, ActualTimes]) -> tuple[float, float]:
    """Return AAE in seconds and PPE of the jobs from an engine with these settings."""
    found = Accuracy()
    for outcome in outcomes(events, settings):
        if outcome.job in jobs and outcome.actual_run_s is None:
            found.add_wait(outcome.predicted_wait_s, outcome.actual_wait_s)
        if outcome.job in jobs and (outcome.censored or outcome.actual_run_s is not None):
            found.add_response(outcome.predicted_wait_s, outcome.actual_wait_s, outcome.actual_run_s or 0.0)
    assert found.jobs == found.responses == len(jobs)
    return figures(found)


def figures(accuracy: Accuracy) -> tuple[float, float]:
    return aae_s(accuracy), accuracy.measures()["PPE"]


def test_evaluate_equals_engines_with_each_of_the_settings(
    events: list[AnyEvent], jobs: dict[str, ActualTimes]
) -> None:
    changes: list[tuple[str, Value]] = [("history", 60), ("window", 0.1), ("nearest", 1), ("min_pts", 2)]
    tried = [BASE, STATES, vary(STATES, "bins", 3), vary(vary(STATES, "history", 60), "window", 0.1)]
    tried += [vary(BASE, *change) for change in changes]
    accuracies, _ = evaluate(events, tried, jobs)
    for settings, accuracy in zip(tried, accuracies, strict=True):
        assert replayed(events, settings, jobs) == pytest.approx(figures(accuracy))
    assert len({aae_s(accuracy) for accuracy in accuracies}) > 5  # otherwise the settings have no effect


@pytest.fixture(scope="module")
def tuning(events: list[AnyEvent], jobs: dict[str, ActualTimes]) -> TuningResult:
    return tune(lambda: events, jobs, BASE)


def test_tuning_chooses_the_value_with_least_error(tuning: TuningResult) -> None:
    base = msgspec.structs.replace(BASE, method=tuning.profile.method)
    for name in parameters_of(base):
        rows = [row for row in tuning.rows if row.parameter == name]
        (chosen,) = (row for row in rows if row.chosen)
        (in_force,) = (row for row in rows if row.in_force)
        assert [row.value for row in rows] == values(base, name)
        assert aae_s(chosen.accuracy) == min(aae_s(row.accuracy) for row in rows)
        assert chosen is in_force or aae_s(chosen.accuracy) < aae_s(in_force.accuracy)
        assert in_force.value == value_of(base, name)
        assert figures(in_force.accuracy) == figures(tuning.before)  # parameters vary one at a time
        assert value_of(tuning.profile, name) == chosen.value
    assert any(row.chosen and not row.in_force for row in tuning.rows)


def test_tuning_chooses_the_statistic_with_the_lower_error(tuning: TuningResult) -> None:
    assert list(tuning.statistics) == list(STATISTICS)
    assert tuning.before is min(tuning.statistics.values(), key=aae_s)
    assert 0.0 < tuning.non_uniformity < 1.0


def test_tuning_together_equals_engine_with_the_profile(
    tuning: TuningResult, events: list[AnyEvent], jobs: dict[str, ActualTimes]
) -> None:
    assert replayed(events, tuning.profile, jobs) == pytest.approx(figures(tuning.together))


def test_tuning_starts_from_the_settings_in_force(events: list[AnyEvent], jobs: dict[str, ActualTimes]) -> None:
    in_force = msgspec.structs.replace(BASE, parameters={name: {"window": 0.04} for name in STATISTICS})
    found = tune(lambda: events, jobs, in_force)
    assert [row.value for row in found.rows if row.in_force and row.parameter == "window"] == [0.04]
    assert replayed(events, in_force, jobs) == pytest.approx(figures(found.statistics[Qespera.name]))


def erring(*errors: float) -> Accuracy:
    accuracy = Accuracy()
    for error in errors:
        accuracy.add_wait(error, 0.0)
    return accuracy


def test_choose_keeps_the_value_in_force_on_ties() -> None:
    scored: dict[Value, Accuracy] = {1: erring(20.0), 2: erring(10.0), 3: erring(5.0, 15.0), 4: erring(30.0)}
    assert [choose(scored, in_force) for in_force in (1, 2, 3, 4)] == [2, 2, 3, 2]


def test_tuning_covers_the_ranges_of_all_parameters_of_table_v() -> None:
    ranges: dict[str, tuple[float, float]] = {
        "nearest": (1.0, 5.0),
        "outliers": (0.1, 0.9),
        "eps": (0.05, 0.1),
        "min_pts": (2, 5),
        "window": (0.01, 0.1),
        "reach": (0.3, 0.6),  # its only distance threshold is this and the next
        "dist_threshold": (0.3, 0.6),
        "ridge_distance": (0.4, 1.0),
        "neighbours": (1, 20),
        "history": (2000, 6000),
        "bins": (5, 50),
    }
    assert {name: (tried[0], tried[-1]) for name, tried in VALUES.items()} == ranges
    assert set(parameters_of(STATES)) == set(VALUES) == {*parameters_of(BASE), "bins"}


def test_non_uniformity_at_an_empty_site_is_nan(events: list[AnyEvent]) -> None:
    _, non_uniformity = evaluate(events[:2], [BASE], {"1": ActualTimes(0.0, 0.0)})
    assert math.isnan(non_uniformity)


def test_method_named_sets_parameters() -> None:
    method = method_named(QesperaDistributions.name, {"window": 1, "bins": 7, "nested": False})
    assert isinstance(method, QesperaDistributions)
    assert (method.parameters.window, method.bins, method.parameters.nested) == (1.0, 7, False)
    assert type(method.parameters.window) is float  # otherwise kernels are compiled again


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("qespera", "widow", 0.1, r"qespera.widow is not a parameter; there are: nearest, outliers"),
        ("qespera", "bins", 5, "qespera.bins is not a parameter"),
        ("zero", "window", 0.1, "zero.window is not a parameter; it has none"),
        ("qespera", "window", 1.5, "qespera.window is 1.5: expected `float` <= 1.0"),
        ("qespera", "window", math.nan, "qespera.window is nan: expected"),
        ("qespera", "min_pts", 2.5, "qespera.min_pts is 2.5: expected `int`, got `float`"),
        ("qespera-distributions", "bins", 0, "qespera-distributions.bins is 0: expected `int` >= 1"),
    ],
)
def test_method_named_rejects_wrong_parameter_by_name(name: str, key: str, value: Value, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method_named(name, {key: value})
