"""Accuracy of the methods in a replay, by method."""

from struct import Struct

import msgspec
import numpy as np

from models.engine.settings import EngineSettings
from models.measures import Accuracy, RunAccuracy
from models.method_registry import TRIVIAL
from models.records import Outcome

_FLOAT = Struct("d")


class ScoreCounts(msgspec.Struct):
    """The counts of `ReplayScores`; `errors` are 64-bit floats in job order."""

    accuracy: dict[str, Accuracy]
    runs: dict[str, RunAccuracy]
    errors: dict[str, bytearray]


class ReplayScores:
    """Accuracy of each method with exact medians; jobs cancelled in the queue count as if they had started.

    Args:
        settings: settings of the replay, which name the run time method of the predictions.

    Attributes:
        counted: the counts so far, which may be saved and restored.
    """

    def __init__(self, settings: EngineSettings | None = None) -> None:
        self._settings = settings or EngineSettings()
        self.counted = ScoreCounts({}, {name: RunAccuracy() for name in self._settings.run_methods}, {})

    def add(self, outcome: Outcome) -> None:
        """Add an outcome: first the wait's, later the run time's."""
        self._add_run(outcome)
        if outcome.method in self.counted.runs and outcome.method not in self._settings.methods:
            return
        accuracy = self.counted.accuracy.setdefault(outcome.method, Accuracy())
        wait_s, predicted_s = outcome.actual_wait_s, outcome.predicted_wait_s
        if outcome.actual_run_s is None:
            accuracy.add_wait(predicted_s, wait_s, outcome.bounds)
            errors = self.counted.errors.setdefault(outcome.method, bytearray())
            errors += _FLOAT.pack(abs(outcome.error_s))
        else:
            accuracy.add_response(predicted_s, wait_s, outcome.actual_run_s)
        if outcome.censored:
            accuracy.add_response(predicted_s, wait_s, 0.0)

    def _add_run(self, outcome: Outcome) -> None:
        """Count each run time method once: as a shadow, or with the default method for waits."""
        name, runs = outcome.method, self.counted.runs
        if name not in runs and name == self._settings.method:
            name = self._settings.runtimes
        if name in runs and outcome.actual_run_s is not None:
            runs[name].add(outcome.predicted_run_s, outcome.actual_run_s, outcome.run_interval)

    def rows(self) -> dict[str, dict[str, float]]:
        """Return the accuracy by method, baselines first."""
        methods = sorted(self.counted.accuracy, key=lambda name: (name not in TRIVIAL, name != "zero", name))
        return {name: self._row(name) for name in methods}

    def _row(self, method: str) -> dict[str, float]:
        accuracy, errors = self.counted.accuracy[method], np.frombuffer(self.counted.errors[method])
        place = len(errors) // 2
        row = accuracy.measures() | {"median_min": float(np.partition(errors, place)[place]) / 60}
        for q, bound in sorted(accuracy.bounds.items()):
            row[f"cov_{q}"] = bound.held / bound.jobs
        return row

    def run_rows(self) -> dict[str, dict[str, float]]:
        """Return the accuracy of the run time methods, by name."""
        return {name: accuracy.measures() for name, accuracy in self.counted.runs.items() if accuracy.jobs}

    def bound_rows(self) -> dict[str, dict[str, float]]:
        """Return the accuracy of bounds by method and probability: coverage, mean width and quantile loss in hours."""
        return {
            f"{name} {q}": {
                "coverage": bound.held / bound.jobs,
                "width_h": bound.width_s / bound.jobs / 3600,
                "pinball_h": bound.pinball_s / bound.jobs / 3600,
                "jobs": bound.jobs,
            }
            for name, accuracy in self.counted.accuracy.items()
            for q, bound in sorted(accuracy.bounds.items())
        }
