"""Counts of waits by their length, from which medians are told; bounded, and the same whatever the machine."""

from bisect import bisect_right
from collections.abc import Iterator

RATIO = 1.25992104989487  # of a class's length to that of the one before it, from a minute on
LONGEST_S = 3 * 365 * 86_400


def _begins() -> Iterator[int]:
    """When each class begins but the first, in whole seconds, so that no rounding of a machine's changes a count."""
    yield from (1, 15, 30, 45)
    at = 60.0
    while at < LONGEST_S:
        yield round(at)
        at *= RATIO


BEGINS = tuple(_begins())


class WaitCounts:
    """How many waits lie in each of some 60 classes; those that hold none take no room."""

    def __init__(self, counts: dict[int, int] | None = None) -> None:
        self.counts = counts or {}

    def add(self, wait_s: float) -> None:
        """Count a wait."""
        place = bisect_right(BEGINS, wait_s)
        self.counts[place] = self.counts.get(place, 0) + 1

    def median_s(self) -> float | None:
        """The median wait within its class as if its waits lay evenly there; None where there is none.

        Off by less than a tenth from a minute on, by less than 8 s below.
        """
        left = sum(self.counts.values()) / 2
        for place, count in sorted(self.counts.items()):
            if count >= left:
                begin, end = (BEGINS[at] if 0 <= at < len(BEGINS) else 0 for at in (place - 1, place))
                return float(begin + max(end - begin, 0) * left / count) if place else 0.0
            left -= count
        return None
