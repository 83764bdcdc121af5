"""What a method remembers of single jobs, as numbered rows that the stores keep for it."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Row(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One entry: its number, counted from 0, and what the method wrote into it."""

    number: int
    value: bytes


class Rows:
    """The last `depth` rows of a method. It appends; the engine has new ones stored, and brings them back.

    >>> rows = Rows(2)
    >>> for value in (b"a", b"b", b"c"):
    ...     rows.append(value)
    >>> [row.value for row in rows.kept], rows.oldest
    ([b'b', b'c'], 1)
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.count = 0
        self.first = 0
        self.values: deque[bytes] = deque(maxlen=depth)
        self._new: list[bytes] = []

    @property
    def kept(self) -> list[Row]:
        """The rows with their numbers, the oldest first; O(rows)."""
        return self._numbered(self.values)

    def _numbered(self, last: Collection[bytes]) -> list[Row]:
        return [Row(number, value) for number, value in enumerate(last, self.count - len(last))]

    @property
    def oldest(self) -> int:
        """The number of the oldest row that is kept."""
        return max(self.count - self.depth, self.first)

    def resize(self, depth: int) -> None:
        """Keep so many rows from now on; those that are too many leave."""
        self.depth = depth
        self.values = deque(self.values, maxlen=depth)

    def append(self, value: bytes) -> None:
        """Add a row; the oldest leaves."""
        self.values.append(value)
        self._new.append(value)
        self.count += 1

    def take_changes(self) -> list[Row]:
        """The rows that are new since this was last called."""
        new, self._new = self._new, []
        return self._numbered(new)

    def read(self, reader: Callable[[bytes], T]) -> Iterator[T]:
        """What the rows say, the oldest first. Raises ValueError: as the reader does, with the number of the row."""
        for row in self.kept:
            try:
                yield reader(row.value)
            except ValueError as error:
                raise ValueError(f"row {row.number}: {error}") from error

    def store_anew(self) -> None:
        """Have all rows that are kept stored once more."""
        self._new = list(self.values)

    def restore(self, rows: Iterable[Row], count: int, oldest: int) -> None:
        """Take back the rows, in any order, from `oldest` and before `count`. Raises ValueError: rows are missing."""
        self.count = count
        self.first = max(oldest, count - self.depth)
        found = {row.number: row for row in rows if self.first <= row.number < count}
        if len(found) < count - self.first:
            raise ValueError(f"{len(found)} of the last {count - self.first} rows")
        self.values = deque((found[number].value for number in sorted(found)), maxlen=self.depth)
