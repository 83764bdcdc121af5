"""Timers of jobs in a heap, whose stale entries are dropped lazily."""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

MIN_STALE_ENTRIES = 256
"""The stale entries are removed once the heap has doubled and has at least this many more."""

Entry = TypeVar("Entry", bound=tuple[Any, ...])


class Timers(Generic[Entry]):
    """Timers in the order of their times. O(log timers) each.

    An entry is a tuple that begins with its time. Setting a timer again adds an entry, so an earlier one may be stale.
    Stale entries are never returned: only the valid ones, which are derived from stored state, decide on the results.

    >>> due = {"a": 10.0, "b": 5.0}
    >>> timers = Timers(lambda entry: due[entry[1]] == entry[0])
    >>> for entry in [(10.0, "a"), (5.0, "b"), (7.0, "a")]:
    ...     timers.add(entry)
    >>> timers.next_before((8.0,)), timers.pop(), timers.next_before((8.0,))
    ((5.0, 'b'), (5.0, 'b'), None)

    Args:
        is_valid: return whether an entry is still valid. A stale entry must stay stale.
    """

    def __init__(self, is_valid: Callable[[Entry], bool]) -> None:
        self._is_valid = is_valid
        self._heap: list[Entry] = []
        self._most = MIN_STALE_ENTRIES

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry) -> None:
        """Add an entry."""
        heappush(self._heap, entry)
        if len(self._heap) > self._most:
            self.restore(filter(self._is_valid, self._heap))

    def restore(self, entries: Iterable[Entry]) -> None:
        """Replace all entries by these. O(entries)."""
        self._heap = [*entries]
        heapify(self._heap)
        self._most = 2 * len(self._heap) + MIN_STALE_ENTRIES

    def next_before(self, end: tuple[Any, ...]) -> Entry | None:
        """Return the first valid entry that is less than `end`; None if there is none."""
        while self._heap and self._heap[0] < end:
            if self._is_valid(self._heap[0]):
                return self._heap[0]
            heappop(self._heap)
        return None

    def pop(self) -> Entry:
        """Remove and return the first entry."""
        return heappop(self._heap)

    def replace(self, entry: Entry) -> None:
        """Remove the first entry, and add another one."""
        heapreplace(self._heap, entry)
