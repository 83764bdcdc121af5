"""The share that a simulated schedule has of the median, by its recent errors."""

import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit
from models.waits.blend.mixture import seconds

SCHEDULE_SHARE, SCHEDULE_HARM, SCHEDULE_JOBS = 0.25, 1.03, 2000.0
"""The share of the median that a simulated schedule has, for any weights, while the mean error of the last
`SCHEDULE_JOBS` jobs in seconds is at most `SCHEDULE_HARM` times the error without it. The weights learn too little
about the strengths of such a schedule: long waits, since they compare on another scale, and queues that have just
changed."""

ALONE_HARM = 1.1
"""If a site reports its topology and run times are accurate, only later jobs can make the simulated schedule wrong. It
is then the median alone, while its own mean error is at most this factor of the mixture's."""


@njit(cache=True)
def share_of_median(errors: Floats) -> float:
    """Return the schedule's share of the median; 0 while it increases the mean error too much."""
    return SCHEDULE_SHARE if errors[0] <= SCHEDULE_HARM * errors[1] else 0.0


@njit(cache=True)
def is_near_mixture(errors: Floats) -> bool:
    """Return whether the mean error of the schedule alone is little more than the mixture's."""
    return bool(errors[2] <= ALONE_HARM * errors[1])


@njit(cache=True)
def first_schedule(medians: Floats, schedules: Ints) -> int:
    """Return the place of the first schedule with an estimate among these medians; -1 if there is none."""
    for place in schedules:
        if not np.isnan(medians[place]):
            return int(place)
    return -1


@njit(cache=True)
def score_schedule(errors: Floats, without: float, schedule: float, wait_s: float, weight: float) -> None:
    """Update the errors with the schedule's share of the median, without it, and of the schedule alone."""
    for place in range(3):
        value = without + SCHEDULE_SHARE * (schedule - without) if place == 0 else without if place == 1 else schedule
        errors[place] = errors[place] * (1.0 - weight / SCHEDULE_JOBS) + weight * abs(seconds(value) - wait_s)
