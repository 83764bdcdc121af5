"""Histogram of waits for computing medians; bounded, and identical on every machine."""

from bisect import bisect_right
from collections.abc import Iterator

RATIO = 1.25992104989487  # of the widths of adjacent classes, from a minute on
LONGEST_S = 3 * 365 * 86_400


def _begins() -> Iterator[int]:
    """Yield the lower edge of each class except the first, in whole seconds, so that rounding cannot change a count."""
    yield from (1, 15, 30, 45)
    at = 60.0
    while at < LONGEST_S:
        yield round(at)
        at *= RATIO


BEGINS = tuple(_begins())


class WaitCounts:
    """The number of waits in each of some 60 classes; empty classes need no memory."""

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts or {}

    def add(self, wait_s: float) -> None:
        """Count a wait."""
        place = bisect_right(BEGINS, wait_s)
        self.counts[place] = self.counts.get(place, 0) + 1

    def median_s(self) -> float | None:
        """Return the median wait, interpolated within its class; None without waits.

        The error is less than a tenth from a minute on, and less than 8 s below.
        """
        remaining = sum(self.counts.values()) / 2
        for place, count in sorted(self.counts.items()):
            if count >= remaining:
                begin, end = (BEGINS[at] if 0 <= at < len(BEGINS) else 0 for at in (place - 1, place))
                return float(begin + max(end - begin, 0) * remaining / count) if place else 0.0
            remaining -= count
        return None
