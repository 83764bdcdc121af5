"""Bounds of remaining waits with the right coverage at every age."""

from typing import Final, NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit
from models.waits.blend.mixture import SITE_SHARE, scaled, seconds
from models.waits.blend.mixture_snapshot import MEDIAN, PROBABILITIES, QUANTILES
from models.waits.blend.remaining.ages import AGES

STEPS: Final = (0.03, 0.015, 0.05, 0.05)
"""Step of one landmark for the shift of each bound, on the scale of `mixture.scaled`."""

FIRST_SHIFTED_CLASS: Final = 6
"""The median is shifted too, from this age class on (2.7 h): an estimate stays in force for some time, and the
remaining time of a long wait shrinks more slowly than that time passes."""

MAX_MEDIAN_SHIFT: Final = 1.0
"""Maximum shift of the median, which is upwards only: the jobs of a burst all miss it together."""

OWN_LANDMARKS: Final = 30.0
"""Landmarks of a class after which its own shift counts as much as that of the class before it. Few jobs reach the old
classes."""

OLD_STEPS: Final = 4.0
"""Factor of the steps from `FIRST_SHIFTED_CLASS` on: with few landmarks, smaller steps are too slow."""

FIRST_SHIFT: Final = 5.0
"""Initial shift of the upper bounds from `FIRST_SHIFTED_CLASS` on: the first jobs that grow old wait for longer than
the forests have learned yet."""

MIN_BOUND_S: Final = 120.0
"""Minimum of the upper bounds: a scheduler takes a minute or two to start a job."""

FAR: Final = 0.35
"""Before `FIRST_SHIFTED_CLASS`, a bound does not count if the shift has moved by more than this since, and with the
current shift it would have covered a wait that it missed, or the reverse. All jobs of a burst exceed the same bound:
each would move the shift further, although the first few were enough."""


class BoundsInForce(NamedTuple):
    """Bounds of a job that were in force at the end of age classes.

    Attributes:
        made_in: the classes in which they were made, (n,).
        bounds_s: the bounds, (n, QUANTILES) seconds.
        shifts: the shifts of these classes then, (n, QUANTILES) on the scale; nan: not known.
    """

    made_in: Ints
    bounds_s: Floats
    shifts: Floats


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

    >>> calibration, missed_s = Calibration(), np.full((1, 4), 60.0)
    >>> for _ in range(50):
    ...     missed = BoundsInForce(np.array([2]), missed_s, calibration.shift(2).reshape(1, 4))
    ...     calibration.learn(np.array([2]), missed, wait_s=3600.0)
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
        state = self.state
        _bounds(state.site, state.by_age, state.landmarks, numbers, quantiles_s, estimates_s, found)
        return found

    def shift(self, number: int) -> Floats:
        """Return the current shift of each bound of an age class, (QUANTILES,) on the scale."""
        return np.asarray(_shifts(self.state.site, self.state.by_age, self.state.landmarks)[number])

    def learn(self, numbers: Ints, in_force: BoundsInForce, wait_s: float, weight: float = 1.0) -> None:
        """Learn whether each of the bounds in force covered the wait of a job.

        Args:
            numbers: the age classes for which they count, (n,).
            in_force: the bounds.
            wait_s: the wait, in seconds.
            weight: what the job counts.
        """
        state = self.state
        _learn(state.site, state.by_age, state.landmarks, numbers, *in_force, wait_s, weight)


@njit(cache=True, nogil=True)
def _learn(
    site: Floats,
    by_age: Floats,
    landmarks: Floats,
    numbers: Ints,
    made_in: Ints,
    bounds_s: Floats,
    shifts: Floats,
    wait_s: float,
    weight: float,
) -> None:
    now = _shifts(site, by_age, landmarks)
    for nth in range(len(numbers)):
        number = numbers[nth]
        landmarks[number] += weight
        size = weight * (OLD_STEPS if number >= FIRST_SHIFTED_CLASS else 1.0)
        for place in range(QUANTILES):
            probability, bound_s = PROBABILITIES[place], bounds_s[nth, place]
            covered, moved = wait_s <= bound_s, now[made_in[nth], place] - shifts[nth, place]
            is_young = number < FIRST_SHIFTED_CLASS and place != MEDIAN
            now_s = seconds(scaled(max(bound_s, 0.0)) + moved)
            if is_young and abs(moved) > FAR and covered != (wait_s <= now_s):
                continue
            step = size * STEPS[place] * (probability - 1.0 if covered else probability)
            by_age[number, place] += step
            if number > 0:  # in the first class, most bounds in force are those of the first prediction
                site[place] += SITE_SHARE * step


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
def _bounds(
    site: Floats,
    by_age: Floats,
    landmarks: Floats,
    numbers: Ints,
    quantiles_s: Floats,
    estimates_s: Floats,
    found: Floats,
) -> None:
    shifts = _shifts(site, by_age, landmarks)
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
