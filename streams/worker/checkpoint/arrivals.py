"""When a site's events come to the broker, and after how long without one the site is stale."""

import msgspec

MIN_STALE_S = 600.0
"""No site is stale whose last event came less than this many seconds ago."""

MAX_STALE_S = 86_400.0
"""A site whose last event came longer ago than this is stale, however rare its events are."""

USUAL_GAPS = 2.0
"""A site is stale after this many times the longest time that usually passes between two of its events."""

WINDOW_EVENTS = 256
"""The longest time between two events is that of the last 256 to 511 events."""


class Arrivals(msgspec.Struct, array_like=True):
    """When a site's events came to the broker (Unix seconds), as far as it tells how often they come.

    `longest_s` is the longest time between two of the last `count` events, `before_s` of the 256 before these.

    The median time between events is no measure of it: of 20 times the median, five workload traces would have made a
    site stale a hundred times a week. Of twice the longest of the last 256 it is two to five times a week.

    >>> arrivals = Arrivals()
    >>> for stamp in (0.0, 400.0, 500.0):
    ...     arrivals.add(1e9 + stamp)
    >>> arrivals.bound_s
    800.0
    """

    last: float = 0.0
    longest_s: float = 0.0
    before_s: float = 0.0
    count: int = 0

    def add(self, stamp: float) -> None:
        """An event came at `stamp` (0: unknown). A time without events that was itself too long counts as the bound."""
        if not stamp:
            return
        if self.last:
            self.longest_s = max(self.longest_s, min(stamp - self.last, self.bound_s))
        self.last = stamp
        self.count += 1
        if self.count == WINDOW_EVENTS:
            self.count, self.before_s, self.longest_s = 0, self.longest_s, 0.0

    @property
    def bound_s(self) -> float:
        """Seconds after its last event at which the site is stale."""
        return min(max(USUAL_GAPS * max(self.longest_s, self.before_s), MIN_STALE_S), MAX_STALE_S)
