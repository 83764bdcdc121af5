"""Quantiles of the wait, given that a part of it has passed."""

import numpy as np

from models.arrays import Floats
from models.kernels import njit
from models.waits.blend.mixture import scaled, seconds

MIN_TAIL = 0.25
"""Minimum distance, on the scale, from the last bound to the median of the waits above it."""


@njit(cache=True, nogil=True)
def waits_after(waited_s: Floats, probabilities: Floats, bounds_s: Floats, wanted: Floats) -> Floats:
    """Return quantiles of the whole waits, given the time already waited.

    Between its bounds, a wait's distribution is linear on the scale of `scaled`. Beyond the last bound, each halving of
    the remaining probability adds the same distance as the last halving before it.

    Args:
        waited_s: time that each job has waited, (jobs,) in seconds.
        probabilities: those of the bounds.
        bounds_s: the bounds, (jobs, probabilities) in seconds; nan if a job has none.
        wanted: the probabilities to return.

    Returns:
        The quantiles, (jobs, wanted) in seconds; nan where the bounds are.
    """
    jobs, last = bounds_s.shape[0], len(probabilities)
    shares, values, found = np.zeros(last + 1), np.zeros(last + 1), np.full((jobs, len(wanted)), np.nan)
    shares[1:] = probabilities
    halvings = np.log2((1.0 - shares[last - 1]) / (1.0 - shares[last]))
    for job in range(jobs):
        if np.isnan(bounds_s[job, 0]):
            continue
        for place in range(last):
            values[place + 1] = scaled(bounds_s[job, place])
        halving = max((values[last] - values[last - 1]) / halvings, MIN_TAIL)
        passed = _share(scaled(max(waited_s[job], 0.0)), shares, values, halving)
        for place in range(len(wanted)):
            share = passed + (1.0 - passed) * wanted[place]
            found[job, place] = max(seconds(_value(share, shares, values, halving)), waited_s[job])
    return found


def in_force(waited_s: Floats, probabilities: Floats, bounds_s: Floats, median: int) -> Floats:
    """Return the quantiles of whole waits as they stand while jobs wait, (jobs, probabilities) in seconds.

    They are as published until the estimate has passed, then those of the rest of the distribution. None lies in the
    past.

    Args:
        waited_s: how long each job has waited, (jobs,).
        bounds_s: as published, (jobs, probabilities); nan stays nan.
        median: the place of the estimate among the probabilities.
    """
    passed = bounds_s[:, median] <= waited_s
    found = np.maximum(bounds_s, waited_s[:, None])
    if passed.any():
        found[passed] = waits_after(waited_s[passed], probabilities, bounds_s[passed], probabilities)
    return found


@njit(cache=True, nogil=True)
def _share(value: float, shares: Floats, values: Floats, halving: float) -> float:
    """Return the share of waits that are shorter."""
    place = 0
    while place < len(values) and values[place] < value:
        place += 1
    if place == 0:
        return 0.0
    if place == len(values):
        return float(1.0 - (1.0 - shares[-1]) * 2.0 ** (-(value - values[-1]) / halving))
    part = (value - values[place - 1]) / (values[place] - values[place - 1])
    return float(shares[place - 1] + (shares[place] - shares[place - 1]) * part)


@njit(cache=True, nogil=True)
def _value(share: float, shares: Floats, values: Floats, halving: float) -> float:
    """Return the value with this share of shorter waits: the inverse of `_share`."""
    place = 0
    while place < len(shares) and shares[place] <= share:
        place += 1
    if place == len(shares):
        return float(values[-1] + halving * np.log2((1.0 - shares[-1]) / max(1.0 - share, 1e-12)))
    part = (share - shares[place - 1]) / (shares[place] - shares[place - 1])
    return float(values[place - 1] + (values[place] - values[place - 1]) * part)
