"""Several estimates of a remaining wait, weighted by how well each did lately for jobs of the same age."""

from collections.abc import Sequence
from math import isnan
from typing import Final

import msgspec
import numpy as np

from models.arrays import Floats, Ints
from models.waits.blend.mixture import scaled, seconds
from models.waits.blend.remaining.ages import AGES

EXPERTS: Final = ("conditional", "forests", "schedule", "recent", "now")
"""The first prediction given the age, the forests, the simulated schedule, and two baselines: the median of what was
left for jobs that had waited as long, and an immediate start."""

CONDITIONAL, FORESTS, SCHEDULE, RECENT, NOW = range(len(EXPERTS))

FIRST_ERRORS: Final = (1.0, 0.95, 1.15, 1.25, 1.3)
"""The errors with which the experts begin, relative to each other, as at other sites."""

FIRST_ERROR_S: Final = 10 * 3600.0
"""Their sum of absolute errors before any job, seconds."""

MEMORY: Final = 600.0
"""After so many landmarks of an age class an error counts 1/e."""

NEIGHBOUR_WEIGHT: Final = 0.5
"""What a landmark counts for the classes next to its own, where little may be known."""

SHARPNESS: Final = 8.0
"""An expert weighs as its errors to the minus of this."""

RECENT_STEP: Final = 0.12
"""How far one landmark moves the recent median of its class, on the scale of `mixture.scaled`."""


class ExpertsState(msgspec.Struct, array_like=True):
    """Decayed absolute errors in seconds, (AGES, EXPERTS), and the recent medians on the scale, (AGES,)."""

    errors: Floats
    medians: Floats


class AgeExperts:
    """The recent errors of each expert by age class, and the estimate that follows. 10 µs a landmark.

    >>> experts = AgeExperts()
    >>> for _ in range(200):
    ...     experts.learn(3, [7200.0, 3600.0, 3600.0, 0.0, 0.0], 3600.0)
    >>> experts.combine(np.array([3]), np.array([[9000.0, 4000.0, 4000.0, 0.0, 0.0]])).round().tolist()
    [4000.0]
    """

    def __init__(self) -> None:
        first = np.tile(FIRST_ERROR_S * np.array(FIRST_ERRORS), (AGES, 1))
        self.state = ExpertsState(first, np.zeros(AGES))

    def recent(self, numbers: Ints) -> Floats:
        """Return the recent medians of what was left at these age classes, (jobs,) seconds."""
        return np.array([seconds(self.state.medians.item(number)) for number in numbers.tolist()])

    def combine(self, numbers: Ints, estimates_s: Floats) -> Floats:
        """Return the weighted estimates of jobs of these age classes, (jobs,) seconds.

        Args:
            numbers: the classes, (jobs,).
            estimates_s: what the experts say, (jobs, EXPERTS) seconds; nan, but not of the baselines: nothing.
        """
        errors = self.state.errors[numbers]
        weights = (errors / errors.min(axis=1, keepdims=True)) ** -SHARPNESS
        silent = np.isnan(estimates_s)
        weights[silent] = 0.0
        estimates = (weights * np.where(silent, 0.0, estimates_s)).sum(axis=1) / weights.sum(axis=1)
        return np.asarray(estimates)

    def learn(self, number: int, estimates_s: Sequence[float], remaining_s: float, weight: float = 1.0) -> None:
        """Learn how long a job of an age class still waited, of which the experts said this (seconds).

        An expert that said nothing (nan) errs as the first one that did.
        """
        spoken_s = next(value for value in estimates_s if not isnan(value))
        errors = np.array([abs((spoken_s if isnan(value) else value) - remaining_s) for value in estimates_s])
        for place in range(max(number - 1, 0), min(number + 2, AGES)):
            share = weight * (1.0 if place == number else NEIGHBOUR_WEIGHT)
            self.state.errors[place] *= 1.0 - share / MEMORY
            self.state.errors[place] += share * errors
        before = self.state.medians.item(number)
        above = scaled(remaining_s) > before
        self.state.medians[number] = max(before + weight * (RECENT_STEP if above else -RECENT_STEP), 0.0)
