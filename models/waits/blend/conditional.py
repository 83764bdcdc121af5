"""What is left of a wait of which the quantiles were told, when a part of it has passed."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit

from models.waits.blend.mixture import Floats, scaled, seconds

MIN_TAIL = 0.25
"""How far, on the scale, the wait that half of the longest waits exceed lies beyond the last bound, at least."""


class Told:
    """The distribution of a wait, from its bounds by probability: straight between them on the scale of `scaled`.

    Beyond the last bound, half of the waits are longer by what the bounds grew for the last halving before, and so on.

    >>> told = Told({"0.1": 0.0, "0.5": 150.0, "0.9": 3600.0, "0.95": 7200.0})
    >>> round(told.after(0.0, [0.5])[0]), round(told.after(150.0, [0.5])[0]), told.after(7200.0, [0.5])[0] > 7200.0
    (150, 1583, True)
    """

    def __init__(self, bounds: Mapping[str, float]) -> None:
        known = sorted((float(probability), float(scaled(bound_s))) for probability, bound_s in bounds.items())
        self._shares: list[float] = [0.0, *(probability for probability, _ in known)]
        self._values: list[float] = [0.0, *(value for _, value in known)]
        (before, low), (last, high) = known[-2:]
        halvings = math.log2((1.0 - before) / (1.0 - last))
        self._halving: float = max((high - low) / halvings, MIN_TAIL)

    def after(self, waited_s: float, probabilities: Sequence[float]) -> list[float]:
        """The whole wait's quantiles, seconds, given that it is at least so long."""
        passed = self._share(scaled(max(waited_s, 0.0)))
        left = (passed + (1.0 - passed) * probability for probability in probabilities)
        return [max(float(seconds(self._value(share))), waited_s) for share in left]

    def _share(self, value: float) -> float:
        """The share of waits that are shorter."""
        place = bisect_left(self._values, value)
        if place == 0:
            return 0.0
        if place == len(self._values):
            halvings = (value - self._values[-1]) / self._halving
            return 1.0 - (1.0 - self._shares[-1]) * math.exp2(-halvings)
        low, high = self._values[place - 1], self._values[place]
        below, above = self._shares[place - 1], self._shares[place]
        return below + (above - below) * (value - low) / (high - low)

    def _value(self, share: float) -> float:
        """The inverse."""
        place = bisect_right(self._shares, share)
        if place == len(self._shares):
            return self._values[-1] + self._halving * math.log2((1.0 - self._shares[-1]) / max(1.0 - share, 1e-12))
        below, above = self._shares[place - 1], self._shares[place]
        low, high = self._values[place - 1], self._values[place]
        return low + (high - low) * (share - below) / (above - below)


@njit(cache=True, nogil=True)
def medians_after(waited_s: Floats, probabilities: Floats, bounds_s: Floats) -> Floats:
    """What `Told.after` says of a half, of many waits, (jobs,), from their bounds, (jobs, probabilities); 0.2 µs each.

    Where bounds are nan, so is what is said.
    """
    jobs, last = bounds_s.shape[0], len(probabilities)
    shares, values, found = np.zeros(last + 1), np.zeros(last + 1), np.empty(jobs)
    shares[1:] = probabilities
    halvings = np.log2((1.0 - shares[last - 1]) / (1.0 - shares[last]))
    for job in range(jobs):
        for place in range(last):
            values[place + 1] = scaled(bounds_s[job, place])
        halving = max((values[last] - values[last - 1]) / halvings, MIN_TAIL)
        value, place = scaled(max(waited_s[job], 0.0)), 0
        while place <= last and values[place] < value:
            place += 1
        if place == 0:
            passed = 0.0
        elif place > last:
            passed = 1.0 - (1.0 - shares[last]) * 2.0 ** (-(value - values[last]) / halving)
        else:
            part = (value - values[place - 1]) / (values[place] - values[place - 1])
            passed = shares[place - 1] + (shares[place] - shares[place - 1]) * part
        share, place = passed + (1.0 - passed) * 0.5, 0
        while place <= last and shares[place] <= share:
            place += 1
        if place > last:
            value = values[last] + halving * np.log2((1.0 - shares[last]) / max(1.0 - share, 1e-12))
        else:
            part = (share - shares[place - 1]) / (shares[place] - shares[place - 1])
            value = values[place - 1] + (values[place] - values[place - 1]) * part
        known = not np.isnan(bounds_s[job, 0])
        found[job] = max(seconds(value), waited_s[job]) if known else np.nan
    return found
