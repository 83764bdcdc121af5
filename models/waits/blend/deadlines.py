"""Times at which queued jobs exceed their predicted waits."""

from collections.abc import Container, Iterable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from math import inf, nextafter
from struct import Struct

from models.records import JobKey

Deadline = tuple[float, JobKey, int]  # the time (Unix seconds), the job, and which of its bounds
MAX_TAKEN = 200  # maximum number of deadlines per call, so that an event after a long pause does not take long
_FIRST: tuple[JobKey, int] = ("", -1), -1  # before all deadlines of the same time

_LATER = Struct("<dB")  # the time and the place of a later deadline of a job

_Entry = tuple[float, JobKey, int, bytes]
"""A job's next deadline, and its later ones, in their order: a fifth of the memory of separate entries."""


class Deadlines:
    """The bounds of queued jobs, by the time at which they are exceeded; O(log jobs) each.

    Deadlines are taken in order. The position of the last one, `reached`, therefore determines for each deadline
    whether it was taken.

    >>> deadlines = Deadlines()
    >>> deadlines.add(("1", 0), [10.0])
    >>> deadlines.add(("2", 0), [20.0, 5.0])
    >>> list(deadlines.until(7.0, {("1", 0), ("2", 0)})), deadlines.reached[0]
    ([(5.0, ('2', 0), 1)], 7.0)
    """

    def __init__(self) -> None:
        self.reached: Deadline = 0.0, *_FIRST  # those before it have been taken
        self._heap: list[_Entry] = []

    @property
    def begin(self) -> float:
        """First time (Unix seconds) at which no deadline has been taken: new ones are watched from then on."""
        return self.reached[0] if self.reached[1:] == _FIRST else nextafter(self.reached[0], inf)

    def add(self, key: JobKey, times: Iterable[float]) -> None:
        """Add a job's deadlines, by their places (nan: none).

        Deadlines before `begin` are skipped: it would be unclear whether they had been taken.
        """
        begin = self.begin
        if (entry := _entry(key, [(at, place) for place, at in enumerate(times) if at >= begin])) is not None:
            heappush(self._heap, entry)

    def until(self, now: float, jobs: Container[JobKey]) -> Iterator[Deadline]:
        """Yield and remove the deadlines of these jobs before `now`, `MAX_TAKEN` at most.

        The others follow in the next calls. Deadlines of other jobs are dropped.
        """
        end, taken = max(self.reached, (now, *_FIRST)), 0
        while self._heap and self._heap[0] < end:
            at, key, place, later = self._heap[0]
            if key not in jobs:
                heappop(self._heap)
                continue
            if taken == MAX_TAKEN:
                end = at, key, place
                break
            taken += 1
            if later:
                heapreplace(
                    self._heap, (_LATER.unpack_from(later)[0], key, later[_LATER.size - 1], later[_LATER.size :])
                )
            else:
                heappop(self._heap)
            yield at, key, place
        self.reached = end

    def restore(self, reached: Deadline, jobs: Iterable[tuple[JobKey, Iterable[float]]]) -> None:
        """Resume from `reached` with the deadlines of `jobs`, as in `add`, that are not before it."""
        self.reached = reached
        left = (
            _entry(key, ((at, place) for place, at in enumerate(times) if (at, key, place) >= reached))
            for key, times in jobs
        )
        self._heap = [entry for entry in left if entry is not None]
        heapify(self._heap)


def _entry(key: JobKey, deadlines: Iterable[tuple[float, int]]) -> _Entry | None:
    """A job with these deadlines, times and places."""
    first = sorted(deadlines)
    if not first:
        return None
    return first[0][0], key, first[0][1], b"".join([_LATER.pack(at, place) for at, place in first[1:]])
