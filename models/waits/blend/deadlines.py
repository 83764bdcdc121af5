"""Times at which it becomes known of queued jobs that they wait longer than was said."""

from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heappush
from math import inf, nextafter

from models.records import JobKey

Deadline = tuple[float, JobKey, int]
"""When (Unix seconds), of which job, and which of its bounds."""

MAX_TAKEN = 200
"""Deadlines that are taken at once, at most, lest an event after a long silence takes long: 5 ms."""

_FIRST: tuple[JobKey, int] = ("", -1), -1
"""Before all deadlines of the same time."""


class Deadlines:
    """The bounds of queued jobs, by the time at which they are exceeded; O(log n) each.

    They are taken in their order, so `reached`, the place up to which they have been, tells of each whether it was.

    >>> deadlines = Deadlines()
    >>> deadlines.add([(10.0, ("1", 0), 2), (5.0, ("2", 0), 1)])
    >>> list(deadlines.until(7.0, {("1", 0), ("2", 0)})), deadlines.reached[0]
    ([(5.0, ('2', 0), 1)], 7.0)
    """

    def __init__(self) -> None:
        self.reached: Deadline = 0.0, *_FIRST
        """Those before it have been taken."""
        self._heap: list[Deadline] = []

    @property
    def begin(self) -> float:
        """The first time (Unix seconds) of which none has been taken: from then on new ones are watched."""
        return self.reached[0] if self.reached[1:] == _FIRST else nextafter(self.reached[0], inf)

    def add(self, deadlines: Iterable[Deadline]) -> None:
        """Watch these, but for those before `begin`: nobody would know whether they had been taken."""
        begin = self.begin
        for deadline in deadlines:
            if deadline[0] >= begin:
                heappush(self._heap, deadline)

    def until(self, now: float, jobs: Container[JobKey]) -> Iterator[Deadline]:
        """Those of these jobs before `now`, which are no longer watched; of too many the first `MAX_TAKEN`.

        The others have their turn the next times. Those of other jobs are as if they had never been.
        """
        end, taken = max(self.reached, (now, *_FIRST)), 0
        while self._heap and self._heap[0] < end:
            if self._heap[0][1] not in jobs:
                heappop(self._heap)
                continue
            if taken == MAX_TAKEN:
                end = self._heap[0]
                break
            taken += 1
            yield heappop(self._heap)
        self.reached = end

    def restore(self, reached: Deadline, deadlines: Iterable[Deadline]) -> None:
        """Go on from `reached`; of these `deadlines`, the ones before it were taken."""
        self.reached = reached
        self._heap = [deadline for deadline in deadlines if deadline >= reached]
        heapify(self._heap)
