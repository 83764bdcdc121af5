"""Times at which it becomes known of queued jobs that they wait longer than was said."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf

from models.records import JobKey

Deadline = tuple[float, JobKey, int]
"""When (Unix seconds), of which job, and which of its bounds."""


MAX_TAKEN = 200
"""Deadlines that are taken at once, at most, lest an event after a long silence takes long: 5 ms."""


class Deadlines:
    """The bounds of queued jobs, by the time at which they are exceeded; O(log n) each.

    >>> deadlines = Deadlines()
    >>> deadlines.add([(10.0, ("1", 0), 2), (5.0, ("2", 0), 1)])
    >>> list(deadlines.until(7.0)), deadlines.passed
    ([(5.0, ('2', 0), 1)], 7.0)
    """

    def __init__(self) -> None:
        self.passed = 0.0
        """Up to when they have been taken."""
        self._heap: list[Deadline] = []

    def add(self, deadlines: Iterable[Deadline]) -> None:
        """Watch these, but for those that were before `passed`: nobody would know whether they had been taken."""
        for deadline in deadlines:
            if deadline[0] >= self.passed:
                heappush(self._heap, deadline)

    def until(self, now: float) -> Iterator[Deadline]:
        """Those before `now`, which are no longer watched; where they are too many, the first `MAX_TAKEN` of them.

        The others have their turn the next times. Those of one time are taken together, as `restore` needs it.
        """
        taken, last, passed = 0, -inf, max(self.passed, now)
        while self._heap and self._heap[0][0] < passed:
            if taken >= MAX_TAKEN and self._heap[0][0] > last:
                passed = self._heap[0][0]
                break
            last, taken = self._heap[0][0], taken + 1
            yield heappop(self._heap)
        self.passed = passed

    def restore(self, passed: float, deadlines: Iterable[Deadline]) -> None:
        """Go on from there; of these `deadlines`, the ones before it were taken."""
        self.passed = passed
        self._heap = [deadline for deadline in deadlines if deadline[0] >= passed]
        heapify(self._heap)
