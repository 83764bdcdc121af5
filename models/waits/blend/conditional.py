"""What is left of a wait of which the quantiles were told, when a part of it has passed."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from models.waits.blend.mixture import scaled, seconds

MIN_TAIL = 0.1
"""How far, on the scale, the wait that half of the longest waits exceed lies beyond the last bound, at least."""


class Told:
    """The distribution of a wait, from its bounds by probability: straight between them on the scale of `scaled`.

    Beyond the last bound, half of the waits are longer by what the bounds grew for the last halving before, and so on.

    >>> told = Told({"0.1": 0.0, "0.5": 150.0, "0.9": 3600.0, "0.95": 7200.0})
    >>> round(told.after(0.0, [0.5])[0]), round(told.after(150.0, [0.5])[0]), told.after(7200.0, [0.5])[0] > 7200.0
    (150, 1447, True)
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
