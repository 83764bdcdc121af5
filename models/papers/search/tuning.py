"""Tuning of a site's method as in the paper: on a validation period, one parameter after another.

Murali and Vadhiyar 2015, sections 3.4 and 4.1. First the statistic, summaries or distributions, is chosen (lines 1 to 5
of algorithm 1). Then each parameter takes the values of its range in table V while the others keep their current
values, and the value with the least average absolute error is chosen. The values that were chosen one by one are then
measured together, which the paper does not show.

The expensive part is to bring a site to the period and to compare each job with the history. It is done once for all
values: a `Panel` replaces a method in the engine, and predicts as each of the tried methods would.
"""

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

import msgspec

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.measures import Accuracy
from models.method import SiteContext, WaitMethod
from models.method_registry import METHODS, method_named
from models.papers.distributions import BINS, QesperaDistributions, non_uniformity, samples_of
from models.records import AnyEvent, JobKey
from models.site.job import Estimate, Job
from models.waits.qespera import Qespera, QesperaParameters

Value = bool | int | float

STATISTICS = (Qespera.name, QesperaDistributions.name)
"""The methods that are tuned: by feature summaries and by distributions."""

VALUES: dict[str, tuple[Value, ...]] = {
    "history": (2000, 3000, 4000, 5000, 6000),
    "bins": (5, 10, 20, 35, 50),
    "nearest": (1.0, 2.0, 3.0, 4.0, 5.0),
    "outliers": (0.1, 0.3, 0.5, 0.7, 0.9),
    "eps": (0.05, 0.06, 0.07, 0.08, 0.09, 0.1),
    "min_pts": (2, 3, 4, 5),
    "window": (0.01, 0.02, 0.03, 0.05, 0.07, 0.1),
    "reach": (0.3, 0.4, 0.5, 0.6),
    "dist_threshold": (0.3, 0.4, 0.5, 0.6),
    "ridge_distance": (0.4, 0.6, 0.8, 1.0),
    "neighbours": (1, 2, 3, 5, 10, 15, 20),
}
"""The values of each parameter that are tried, within table V. `bins` are of distributions, `history` of the engine."""


class ActualTimes(msgspec.Struct, frozen=True):
    """Outcome of a job: its wait and run time, in seconds; 0 for a job that was cancelled in the queue."""

    wait_s: float
    run_s: float


class TriedValue(msgspec.Struct, frozen=True):
    """A value of a parameter, its accuracy, and whether it is in force or chosen."""

    parameter: str
    value: Value
    accuracy: Accuracy
    in_force: bool
    chosen: bool


class TuningResult(msgspec.Struct, frozen=True):
    """Result of tuning.

    `statistics` has the accuracy of each of `STATISTICS` with the parameters in force, `rows` the accuracy of each
    value tried with the better one. `profile` has all choices, and `together` is its accuracy. `non_uniformity` is the
    paper's score of the distance from uniform distributions in the states of the period's jobs. It is NaN if the site
    was empty at every submission.
    """

    statistics: dict[str, Accuracy]
    non_uniformity: float
    rows: list[TriedValue]
    profile: EngineSettings
    together: Accuracy

    @property
    def before(self) -> Accuracy:
        """The accuracy of the better statistic with the parameters in force."""
        return self.statistics[self.profile.method]


PASSES = 3  # passes of `tune` over the events


def tune(
    events: Callable[[], Iterable[AnyEvent]], jobs: Mapping[str, ActualTimes], settings: EngineSettings
) -> TuningResult:
    """Choose a site's statistic, size of history and parameters.

    `events` returns the site's events, from its beginning to the end of the period, at each call. `jobs` are those of
    the period to predict, with their outcomes.
    """
    statistics = [msgspec.structs.replace(settings, method=name, shadows=()) for name in STATISTICS]
    accuracies, non_uniformity = evaluate(events(), statistics, jobs)
    found = dict(zip(STATISTICS, accuracies, strict=True))
    best = min(STATISTICS, key=lambda name: (aae_s(found[name]), name != settings.method))
    base = profile = statistics[STATISTICS.index(best)]
    varied = {name: [vary(base, name, value) for value in values(base, name)] for name in parameters_of(base)}
    accuracies, _ = evaluate(events(), [changed for tried in varied.values() for changed in tried], jobs)
    scores = iter(accuracies)
    rows = []
    for name, tried in varied.items():
        in_force = value_of(base, name)
        scored = {value_of(changed, name): next(scores) for changed in tried}
        chosen = choose(scored, in_force)
        rows += [TriedValue(name, value, score, value == in_force, value == chosen) for value, score in scored.items()]
        profile = vary(profile, name, chosen)
    (together,), _ = evaluate(events(), [profile], jobs)
    return TuningResult(found, non_uniformity, rows, profile, together)


def choose(scored: Mapping[Value, Accuracy], in_force: Value) -> Value:
    """The value with the least average absolute error; of equals the one in force, else the least."""
    return min(scored, key=lambda value: (aae_s(scored[value]), value != in_force, value))


def aae_s(accuracy: Accuracy) -> float:
    """The average absolute error in seconds."""
    return accuracy.error.total / max(accuracy.jobs, 1)


def parameters_of(settings: EngineSettings) -> list[str]:
    """The parameters of the settings' method that are tuned."""
    return [name for name in VALUES if name == "history" or name in METHODS[settings.method].tunable]


def values(settings: EngineSettings, parameter: str) -> list[Value]:
    """The values that are tried of a parameter, ascending: its range and the value in force."""
    return sorted({*VALUES[parameter], value_of(settings, parameter)})


def value_of(settings: EngineSettings, parameter: str) -> Value:
    """A parameter's value in these settings."""
    if parameter == "history":
        return settings.history
    method = _method(settings)
    value: Value = _bins(method) if parameter == "bins" else getattr(method.parameters, parameter)
    return value


def vary(settings: EngineSettings, parameter: str, value: Value) -> EngineSettings:
    """The settings with another value of a parameter of their method, or another size of the history."""
    if parameter == "history":
        return msgspec.structs.replace(settings, history=value)
    own = settings.parameters.get(settings.method, {}) | {parameter: value}
    return msgspec.structs.replace(settings, parameters=settings.parameters | {settings.method: own})


def evaluate(
    events: Iterable[AnyEvent], tried: Sequence[EngineSettings], jobs: Mapping[str, ActualTimes]
) -> tuple[list[Accuracy], float]:
    """Return the accuracy of each of the `tried` settings on the jobs, in one pass, and their non-uniformity."""
    panels: dict[int, Panel] = {}
    engines = []
    for history in sorted({settings.history for settings in tried}):
        panel = Panel({at: settings for at, settings in enumerate(tried) if settings.history == history}, jobs)
        engine = Engine("tuned", EngineSettings(method=Qespera.name, shadows=(), history=history))
        engine.methods.waits[Qespera.name] = panel
        panels[history] = panel
        engines.append(engine)
    for event in events:
        for engine in engines:
            engine.apply(event)
            engine.take_changes()  # nothing is stored here
    accuracies = [Accuracy() for _ in tried]
    for panel in panels.values():
        for job, waits in panel.waits_by_job.items():
            for at, wait_s in waits.items():
                accuracies[at].add_wait(wait_s, jobs[job].wait_s)
                accuracies[at].add_response(wait_s, jobs[job].wait_s, jobs[job].run_s)
    return accuracies, panel.non_uniformity


class Panel(WaitMethod):
    """Replacement for a method that predicts the jobs `to_score` as each of the `tried` methods would.

    Methods that differ only in `QesperaParameters` compare jobs in the same way: one of them does so for all.
    `waits_by_job` has the predictions, in seconds, by job and the number of the settings.
    """

    name = "panel"

    def __init__(self, tried: Mapping[int, EngineSettings], to_score: Container[str]) -> None:
        self.waits_by_job: dict[str, dict[int, float | None]] = {}
        self._to_score = to_score
        self._non_uniformity: list[float] = []
        self._methods: dict[tuple[str, int], Qespera] = {}
        self._numbers: dict[tuple[str, int], dict[QesperaParameters, list[int]]] = {}
        for number, settings in tried.items():
            method = _method(settings)
            kind = (method.name, _bins(method))
            self._methods.setdefault(kind, method)
            self._numbers.setdefault(kind, {}).setdefault(method.parameters, []).append(number)

    @property
    def non_uniformity(self) -> float:
        """Mean score of the scored jobs whose site was not empty; NaN if there are none."""
        scores = [score for score in self._non_uniformity if not math.isnan(score)]
        return math.fsum(scores) / len(scores) if scores else math.nan

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Keep the prediction of each method; none is published."""
        if job.id in self._to_score:
            waits = self.waits_by_job[job.id] = {}
            for kind, method in self._methods.items():
                numbers = self._numbers[kind]
                for found, those in zip(method.predictions(job, context, list(numbers)), numbers.values(), strict=True):
                    waits.update(dict.fromkeys(those, None if found is None else found.wait_s))
            self._non_uniformity.append(non_uniformity(samples_of(context.state, job.submit), BINS))
        else:
            for method in self._methods.values():
                method.notice(job, context)
        return Estimate(None, "not predicted")

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Each method learns."""
        for method in self._methods.values():
            method.learn(job, wait_s, context)

    def forget(self, key: JobKey) -> None:
        """Each method forgets."""
        for method in self._methods.values():
            method.forget(key)


def _method(settings: EngineSettings) -> Qespera:
    method = method_named(settings.method, settings.parameters.get(settings.method))
    assert isinstance(method, Qespera)
    return method


def _bins(method: Qespera) -> int:
    return method.bins if isinstance(method, QesperaDistributions) else 0
