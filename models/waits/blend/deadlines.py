"""Times at which queued jobs exceed their predicted waits."""

from collections.abc import Container, Iterable, Iterator
from math import inf, nextafter
from struct import Struct

from models.records import JobKey
from models.timers import Timers

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

    >>> deadlines = Deadlines({("1", 0), ("2", 0)})
    >>> deadlines.add(("1", 0), [10.0])
    >>> deadlines.add(("2", 0), [20.0, 5.0])
    >>> list(deadlines.take_due(7.0)), deadlines.reached[0]
    ([(5.0, ('2', 0), 1)], 7.0)

    Args:
        jobs: the jobs whose deadlines are valid; those of other jobs are dropped.
    """

    def __init__(self, jobs: Container[JobKey]) -> None:
        self.reached: Deadline = 0.0, *_FIRST  # those before it have been taken
        self._timers = Timers[_Entry](lambda entry: entry[1] in jobs)

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
            self._timers.add(entry)

    def take_due(self, now: float) -> Iterator[Deadline]:
        """Yield and remove the deadlines before `now`, `MAX_TAKEN` at most. The others follow in the next calls."""
        end, taken = max(self.reached, (now, *_FIRST)), 0
        while (entry := self._timers.next_before(end)) is not None:
            at, key, place, later = entry
            if taken == MAX_TAKEN:
                end = at, key, place
                break
            taken += 1
            if later:
                self._timers.replace((_LATER.unpack_from(later)[0], key, later[_LATER.size - 1], later[_LATER.size :]))
            else:
                self._timers.pop()
            yield at, key, place
        self.reached = end

    def restore(self, reached: Deadline, jobs: Iterable[tuple[JobKey, Iterable[float]]]) -> None:
        """Resume from `reached` with the deadlines of `jobs`, as in `add`, that are not before it."""
        self.reached = reached
        entries = (
            _entry(key, ((at, place) for place, at in enumerate(times) if (at, key, place) >= reached))
            for key, times in jobs
        )
        self._timers.restore(entry for entry in entries if entry is not None)


def _entry(key: JobKey, deadlines: Iterable[tuple[float, int]]) -> _Entry | None:
    """A job with these deadlines, times and places."""
    first = sorted(deadlines)
    if not first:
        return None
    return first[0][0], key, first[0][1], b"".join([_LATER.pack(at, place) for at, place in first[1:]])
