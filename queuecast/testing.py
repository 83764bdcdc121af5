"""Test a method of your own at a simulated site in memory: no servers, no files.

from queuecast.testing import check_method


def test_optimist() -> None:
    checked = check_method(Optimist)
    assert checked.error_s["optimist"] < checked.error_s["zero"]
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any, NamedTuple

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.method import RunMethod, WaitMethod
from models.method_registry import METHODS, RUN_METHODS
from models.records import AnyEvent, Outcome, Prediction
from models.simulation import generate, run

__all__ = ["MethodCheck", "check_method", "records_of", "simulated_events"]

AnyMethod = type[WaitMethod] | type[RunMethod]


class MethodCheck(NamedTuple):
    """Result of a check.

    Attributes:
        predictions: Number of the method's predictions, and of those with an estimate.
        error_s: Mean absolute error in seconds by method, "zero" and "median" included; for a method for run times the
            error of its run times alone.
    """

    predictions: int
    estimates: int
    error_s: dict[str, float]


def simulated_events(jobs: int = 600, seed: int = 1, cpus: int = 128, load: float = 0.9) -> list[AnyEvent]:
    """Return the events of a busy site under EASY backfilling, the same for the same arguments."""
    return list(run(generate(seed, jobs, cpus, load), cpus, "test", "easy"))


def records_of(
    method: AnyMethod, events: Sequence[AnyEvent], restart_at: int | None = None
) -> list[Prediction | Outcome]:
    """Apply events to a site that uses a method, and return the predictions and outcomes.

    Args:
        method: The class, which needs no entry point.
        restart_at: Number of events after which the site is stored and restored, as when another worker takes over.
    """
    with _registered(method) as settings:
        engine, found = Engine("test", settings), list[Prediction | Outcome]()
        for number, event in enumerate(events):
            if number == restart_at:
                state, changes = engine.checkpoint()
                engine = Engine.load(state, changes.started, changes.runs, settings, changes.rows)
            found += (record for record in engine.apply(event) if isinstance(record, Prediction | Outcome))
        return found


def check_method(method: AnyMethod, events: Sequence[AnyEvent] | None = None, restarts: int = 5) -> MethodCheck:
    """Check the rules that every method must follow, and measure its error.

    It must predict, give the same records for the same events, and go on identically after it was stored and restored.

    Args:
        events: Events of the site "test" in time order; by default `simulated_events`.
        restarts: Number of runs with one restart each, evenly over the events.

    Raises:
        AssertionError: A rule is broken; the message names it and the first record that differs.
    """
    events = simulated_events() if events is None else events
    records = records_of(method, events)
    made = [one for one in records if isinstance(one, Prediction) and one.method == _settings(method).method]
    estimates = sum(_estimate(method, one) is not None for one in made)
    assert estimates, f"{method.__name__} made no estimate for {len(made)} jobs"
    _check_same(method, "applied again", records, records_of(method, events))
    for restart in range(1, restarts + 1):
        place = restart * len(events) // (restarts + 1)
        _check_same(method, f"restored after event {place}", records, records_of(method, events, place))
    return MethodCheck(len(made), estimates, _errors(method, records))


def _check_same(method: AnyMethod, how: str, expected: Sequence[object], found: Sequence[object]) -> None:
    pairs = zip(expected, found, strict=False)
    first = next((f"{one} and {other}" for one, other in pairs if one != other), "their number")
    assert expected == found, f"{method.__name__}, {how}, gives other records: {first}"


def _errors(method: AnyMethod, records: Sequence[Prediction | Outcome]) -> dict[str, float]:
    errors = defaultdict[str, list[float]](list)
    for one in records:
        if isinstance(one, Outcome):
            waits = issubclass(method, WaitMethod)
            actual = one.actual_wait_s if waits else one.actual_run_s
            if (predicted := _estimate(method, one)) is not None and actual is not None:
                errors[one.method if waits else method.name].append(abs(predicted - actual))
    return {name: fmean(values) for name, values in errors.items()}


def _estimate(method: AnyMethod, record: Prediction | Outcome) -> float | None:
    return record.predicted_wait_s if issubclass(method, WaitMethod) else record.predicted_run_s


def _settings(method: AnyMethod) -> EngineSettings:
    if issubclass(method, WaitMethod):
        return EngineSettings(method=method.name, shadows=("zero", "median"), publish_shadows=True, bounds="")
    return EngineSettings(method="median", shadows=(), runtimes=method.name, bounds="")


@contextmanager
def _registered(method: AnyMethod) -> Iterator[EngineSettings]:
    """Register a class under its name meanwhile."""
    registry: Any = METHODS if issubclass(method, WaitMethod) else RUN_METHODS
    before = registry.get(method.name)
    registry[method.name] = method
    try:
        yield _settings(method)
    finally:
        if before is None:
            del registry[method.name]
        else:
            registry[method.name] = before
