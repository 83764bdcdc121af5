"""Several estimates of a remaining wait, weighted by their recent errors for jobs of the same age."""

from typing import Final

import msgspec
import numpy as np

from models.arrays import Floats, Ints, Singles
from models.kernels import njit
from models.waits.blend.remaining.ages import AGES

EXPERTS: Final = ("conditional", "forests", "schedule", "recent", "now")
"""The first prediction given the age, the forests, the simulated schedule, and two baselines: the median remaining wait
of jobs at the same age, and an immediate start."""

CONDITIONAL, FORESTS, SCHEDULE, RECENT, NOW = range(len(EXPERTS))

FIRST_ERRORS: Final = (1.0, 0.95, 1.0, 1.25, 1.3)
"""Initial errors of the experts, relative to each other, as at other sites. Their unit is the error at the site: a
fixed unit of 10 h outweighed all errors at a site of short waits."""

MIN_ERROR_S: Final = 1.0
"""Minimum of that unit."""

MEMORY: Final = 600.0
"""After so many landmarks of an age class an error counts 1/e."""

FIRST_LANDMARKS: Final = 60.0
"""Number of landmarks that the initial errors count as: few jobs reach the old classes."""

NEIGHBOUR_WEIGHT: Final = 0.5
"""Weight of a landmark in the adjacent classes, which may have little data."""

SHARPNESS: Final = 16.0
"""The weight of an expert is its error to the power of minus this."""

RECENT_LANDMARKS: Final = 300
"""Number of the latest landmarks behind the recent median of a class."""


class ExpertsState(msgspec.Struct, array_like=True):
    """Learned state of each age class.

    Attributes:
        errors: means of the latest absolute errors in seconds, (AGES, EXPERTS).
        counts: landmarks behind the errors, `MEMORY` at most, those of the next classes in part, (AGES,).
        recent_s: remaining waits at the latest landmarks, seconds, in a ring, (AGES, RECENT_LANDMARKS).
        landmarks: number of landmarks, (AGES,).
    """

    errors: Floats
    counts: Floats
    recent_s: Singles
    landmarks: Ints


class AgeExperts:
    """The recent errors of each expert by age class, and the estimate that follows.

    >>> experts = AgeExperts()
    >>> said_s, remaining_s = np.array([[7200.0, 3600.0, 3600.0, 0.0, 0.0]]), np.array([3600.0])
    >>> for _ in range(200):
    ...     experts.learn(np.array([3]), said_s, remaining_s)
    >>> experts.combine(np.array([3]), np.array([[9000.0, 4000.0, 4000.0, 0.0, 0.0]])).round(-2).tolist()
    [4000.0]
    """

    def __init__(self) -> None:
        recent_s = np.zeros((AGES, RECENT_LANDMARKS), np.float32)
        self.state = ExpertsState(np.zeros((AGES, len(EXPERTS))), np.zeros(AGES), recent_s, np.zeros(AGES, np.int64))
        self._medians_s = np.zeros(AGES)

    def recent(self, numbers: Ints) -> Floats:
        """Return the recent medians of what was left at these age classes, (jobs,) seconds."""
        return np.asarray(self._medians_s[numbers])

    def combine(self, numbers: Ints, estimates_s: Floats) -> Floats:
        """Return the weighted estimates of jobs of these age classes, (jobs,) seconds.

        Args:
            numbers: the classes, (jobs,).
            estimates_s: the experts' estimates, (jobs, EXPERTS) seconds; nan: none. The baselines always have one.
        """
        return np.asarray(_combine(self.state.errors, self.state.counts, numbers, estimates_s))

    def learn(self, numbers: Ints, estimates_s: Floats, remaining_s: Floats, weight: float = 1.0) -> None:
        """Update the errors with the remaining waits of jobs of these age classes, (landmarks,).

        An expert without an estimate (nan) has the error of the first one with an estimate.

        Args:
            numbers: the classes, (landmarks,).
            estimates_s: the experts' estimates, (landmarks, EXPERTS) seconds.
            remaining_s: the remaining waits, (landmarks,) seconds.
            weight: the weight of each landmark.
        """
        state = self.state
        _learn(
            state.errors,
            state.counts,
            state.recent_s,
            state.landmarks,
            self._medians_s,
            numbers,
            estimates_s,
            remaining_s,
            weight,
        )

    def load(self, state: ExpertsState) -> None:
        """Restore the learned state."""
        self.state = state
        for number in range(AGES):
            _update_median(self._medians_s, state.recent_s, state.landmarks, number)


@njit(cache=True, nogil=True)
def _combine(errors: Floats, counts: Floats, numbers: Ints, estimates_s: Floats) -> Floats:
    found = np.empty(len(numbers))
    for job in range(len(numbers)):
        own = _expected(errors[numbers[job]], counts[numbers[job]])
        least, total, weights = own.min(), 0.0, 0.0
        for expert in range(len(own)):
            if not np.isnan(estimates_s[job, expert]):
                weight = (own[expert] / least) ** -SHARPNESS
                total += weight * estimates_s[job, expert]
                weights += weight
        found[job] = total / weights
    return found


@njit(cache=True, nogil=True)
def _expected(errors: Floats, count: float) -> Floats:
    """Return the expected errors of the experts, (EXPERTS,): the mean of those of `count` landmarks and the initial
    ones.
    """
    unit_s = 0.0
    for expert in range(len(errors)):
        unit_s += errors[expert] / FIRST_ERRORS[expert] / len(errors)
    found = np.empty(len(errors))
    for expert in range(len(errors)):
        first_s = FIRST_ERRORS[expert] * max(unit_s, MIN_ERROR_S)
        found[expert] = (count * errors[expert] + FIRST_LANDMARKS * first_s) / (count + FIRST_LANDMARKS)
    return found


@njit(cache=True, nogil=True)
def _learn(
    errors: Floats,
    counts: Floats,
    recent_s: Singles,
    landmarks: Ints,
    medians_s: Floats,
    numbers: Ints,
    estimates_s: Floats,
    remaining_s: Floats,
    weight: float,
) -> None:
    for landmark in range(len(numbers)):
        number, rest_s = numbers[landmark], remaining_s[landmark]
        spoken_s = np.nan
        for value in estimates_s[landmark]:
            if np.isnan(spoken_s):
                spoken_s = value
        for place in range(max(number - 1, 0), min(number + 2, AGES)):
            share = weight * (1.0 if place == number else NEIGHBOUR_WEIGHT)
            counts[place] = min(counts[place] + share, MEMORY)
            rate = min(share / counts[place], 1.0)
            for expert in range(estimates_s.shape[1]):
                value = estimates_s[landmark, expert]
                error = abs((spoken_s if np.isnan(value) else value) - rest_s)
                errors[place, expert] = errors[place, expert] * (1.0 - rate) + rate * error
        recent_s[number, landmarks[number] % RECENT_LANDMARKS] = rest_s
        landmarks[number] += 1
        _update_median(medians_s, recent_s, landmarks, number)


@njit(cache=True, nogil=True)
def _update_median(medians_s: Floats, recent_s: Singles, landmarks: Ints, number: int) -> None:
    count = min(landmarks[number], RECENT_LANDMARKS)
    medians_s[number] = np.median(recent_s[number, :count]) if count else 0.0
