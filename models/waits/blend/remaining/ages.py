"""Classes of ages: how long a job has waited, each class twice as old as the one before."""

from bisect import bisect_right
from typing import Final

import numpy as np

from models.arrays import Floats, Ints

FIRST_AGE_S: Final = 300.0
"""Upper end of class 0, in seconds waited."""

AGES: Final = 13
"""The number of classes; the last one begins after 7 days."""

LANDMARKS_S: Final = tuple(FIRST_AGE_S * 2.0**number for number in range(AGES - 1))
"""Lower ends of the classes from 1 on, in seconds."""

_LANDMARKS = np.array(LANDMARKS_S)


def age_class(age_s: float) -> int:
    """Return the class of an age in seconds.

    >>> [age_class(age_s) for age_s in (0.0, 299.0, 300.0, 600.0, 1e9)]
    [0, 0, 1, 2, 12]
    """
    return bisect_right(LANDMARKS_S, age_s)


def age_classes(ages_s: Floats) -> Ints:
    """Return the classes of ages in seconds, (jobs,)."""
    return _LANDMARKS.searchsorted(ages_s, side="right")
