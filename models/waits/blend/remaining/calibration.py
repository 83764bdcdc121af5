"""Bounds of remaining waits with the right coverage at every age."""

from typing import Final

import msgspec
import numpy as np

from models.arrays import Flags, Floats, Ints
from models.kernels import njit
from models.waits.blend.mixture import SITE_SHARE, scaled, seconds
from models.waits.blend.mixture_snapshot import MEDIAN, PROBABILITIES, QUANTILES
from models.waits.blend.remaining.ages import AGES

STEPS: Final = (0.06, 0.03, 0.1, 0.1)
"""Step of one landmark for the shift of each bound, on the scale of `mixture.scaled`."""

FIRST_SHIFTED_CLASS: Final = 6
"""The median is shifted too, from this age class on (2.7 h): an estimate stays in force for some time, and the
remaining time of a long wait shrinks more slowly than that time passes."""

MAX_MEDIAN_SHIFT: Final = 1.0
"""Maximum shift of the median, which is upwards only: the jobs of a burst all miss it together."""

OWN_LANDMARKS: Final = 30.0
"""Landmarks of a class after which its own shift counts as much as that of the class before it. Few jobs reach the old
classes."""

OLD_STEPS: Final = 1.5
"""Factor of the steps from `FIRST_SHIFTED_CLASS` on: with few landmarks, smaller steps are too slow."""

FIRST_SHIFT: Final = 2.0
"""Initial shift of the upper bounds from `FIRST_SHIFTED_CLASS` on: the first jobs that grow old wait for longer than
the forests have learned yet."""

MIN_BOUND_S: Final = 120.0
"""Minimum of the upper bounds: a scheduler takes a minute or two to start a job."""


class CalibrationState(msgspec.Struct, array_like=True):
    """Shifts of the bounds, on the scale.

    Attributes:
        site: for the whole site, (QUANTILES,).
        by_age: in addition for each class, (AGES, QUANTILES), before it is combined with the younger classes.
        landmarks: the weights of all landmarks of each class, (AGES,).
    """

    site: Floats
    by_age: Floats
    landmarks: Floats


class Calibration:
    """Quantile trackers by age class (A. Angelopoulos, E. Candès, R. Tibshirani, "Conformal PID control for time series
    prediction", NeurIPS 2023).

    A class with few landmarks has mainly the shift of the next younger class.

    >>> calibration = Calibration()
    >>> for _ in range(50):
    ...     calibration.learn(np.array([2]), np.zeros((1, 4), np.bool_))
    >>> bounds_s = calibration.bounds(np.array([2]), np.array([600.0]), np.array([[60.0, 600.0, 3600.0, 7200.0]]))
    >>> bounds_s.item(0, 2) > 3600.0
    True
    """

    def __init__(self) -> None:
        self.state = CalibrationState(np.zeros(QUANTILES), np.zeros((AGES, QUANTILES)), np.zeros(AGES))
        self.state.by_age[FIRST_SHIFTED_CLASS:, MEDIAN + 1 :] = FIRST_SHIFT

    def bounds(self, numbers: Ints, estimates_s: Floats, quantiles_s: Floats) -> Floats:
        """Return ascending bounds around the estimates of jobs of these age classes, (jobs, QUANTILES) seconds.

        Args:
            numbers: the classes, (jobs,).
            estimates_s: what is expected to be left of each wait, (jobs,).
            quantiles_s: its quantiles before they are shifted, (jobs, QUANTILES).
        """
        found = np.empty_like(quantiles_s)
        shifts = _shifts(self.state.site, self.state.by_age, self.state.landmarks)
        _bounds(numbers, quantiles_s, estimates_s, shifts, found)
        return found

    def learn(self, numbers: Ints, covered: Flags, weight: float = 1.0) -> None:
        """Learn whether each of the bounds in force covered the wait of a job, (landmarks, QUANTILES).

        Args:
            numbers: the age classes of the landmarks, (landmarks,).
            covered: whether the bounds covered the wait.
            weight: what the job counts.
        """
        _learn(self.state.site, self.state.by_age, self.state.landmarks, numbers, covered, weight)


@njit(cache=True, nogil=True)
def _learn(site: Floats, by_age: Floats, landmarks: Floats, numbers: Ints, covered: Flags, weight: float) -> None:
    for landmark in range(len(numbers)):
        number = numbers[landmark]
        landmarks[number] += weight
        size = weight * (OLD_STEPS if number >= FIRST_SHIFTED_CLASS else 1.0)
        for place in range(QUANTILES):
            probability = PROBABILITIES[place]
            moved = size * STEPS[place] * (probability - 1.0 if covered[landmark, place] else probability)
            site[place] += SITE_SHARE * moved
            by_age[number, place] += moved


@njit(cache=True, nogil=True)
def _shifts(site: Floats, by_age: Floats, landmarks: Floats) -> Floats:
    """Return the shift of each bound by age class, (AGES, QUANTILES), each class combined with the younger ones."""
    found = by_age.copy()
    for number in range(1, len(found)):
        own = landmarks[number] / (landmarks[number] + OWN_LANDMARKS)
        for place in range(QUANTILES):
            found[number, place] = own * by_age[number, place] + (1.0 - own) * found[number - 1, place]
    return found + site


@njit(cache=True, nogil=True)
def _bounds(numbers: Ints, quantiles_s: Floats, estimates_s: Floats, shifts: Floats, found: Floats) -> None:
    for job in range(len(quantiles_s)):
        for place in range(QUANTILES):
            found[job, place] = seconds(scaled(max(quantiles_s[job, place], 0.0)) + shifts[numbers[job], place])
        found[job, MEDIAN] = estimates_s[job]
        if numbers[job] >= FIRST_SHIFTED_CLASS:
            shift = min(max(shifts[numbers[job], MEDIAN], 0.0), MAX_MEDIAN_SHIFT)
            found[job, MEDIAN] = seconds(scaled(max(estimates_s[job], 0.0)) + shift)
        for place in range(MEDIAN - 1, -1, -1):
            found[job, place] = min(found[job, place], found[job, place + 1])
        for place in range(MEDIAN + 1, QUANTILES):
            found[job, place] = max(found[job, place], found[job, place - 1], MIN_BOUND_S)
