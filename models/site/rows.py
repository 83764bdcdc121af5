"""Memory of a method: numbered rows that the stores keep for it, and values stored with live jobs."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from models.records import JobKey

T = TypeVar("T")


class Row(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An entry: its number, counted from 0, and its value, written by the method."""

    number: int
    value: bytes


class Rows:
    """The last `depth` rows of a method. The method appends rows; the engine stores the new ones, and restores them.

    >>> rows = Rows(2)
    >>> for value in (b"a", b"b", b"c"):
    ...     rows.append(value)
    >>> [row.value for row in rows.numbered], rows.oldest
    ([b'b', b'c'], 1)
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.count = 0
        self.first = 0
        self.values: deque[bytes] = deque(maxlen=depth)
        self._new: list[bytes] = []

    @property
    def numbered(self) -> list[Row]:
        """The rows with their numbers, the oldest first. O(rows)."""
        return self._numbered(self.values)

    def _numbered(self, last: Collection[bytes]) -> list[Row]:
        return [Row(number, value) for number, value in enumerate(last, self.count - len(last))]

    @property
    def oldest(self) -> int:
        """The number of the oldest row in memory."""
        return max(self.count - self.depth, self.first)

    def resize(self, depth: int) -> None:
        """Change the number of rows to keep; the oldest rows beyond it are dropped."""
        self.depth = depth
        self.values = deque(self.values, maxlen=depth)

    def append(self, value: bytes) -> None:
        """Add a row, in place of the oldest."""
        self.values.append(value)
        self._new.append(value)
        self.count += 1

    def take_changes(self) -> list[Row]:
        """Return the new rows since the last call."""
        new, self._new = self._new, []
        return self._numbered(new)

    def read(self, reader: Callable[[bytes], T]) -> Iterator[T]:
        """Yield the decoded rows, the oldest first.

        Raises:
            ValueError: the reader raised it; the number of the row is added.
        """
        for row in self.numbered:
            try:
                yield reader(row.value)
            except ValueError as error:
                raise ValueError(f"row {row.number}: {error}") from error

    def mark_all_new(self) -> None:
        """Mark all rows as new, so that they are stored again."""
        self._new = list(self.values)

    def restore(self, rows: Iterable[Row], count: int, oldest: int) -> None:
        """Restore rows `oldest`..`count`-1, in any order.

        Raises:
            ValueError: rows are missing.
        """
        self.count = count
        self.first = max(oldest, count - self.depth)
        found = {row.number: row for row in rows if self.first <= row.number < count}
        if len(found) < count - self.first:
            raise ValueError(f"{len(found)} rows; expected the last {count - self.first}")
        self.values = deque((found[number].value for number in sorted(found)), maxlen=self.depth)


V = TypeVar("V")


class PerJob(Generic[V]):
    """A method's values by job, for as long as the job is live.

    The engine stores each value with its job, and drops it when the job leaves.

    >>> waits = PerJob(float)
    >>> waits.put(("1", 0), 60.0)
    >>> waits.get(("1", 0)), waits.take_changed(), waits.take_changed()
    (60.0, {('1', 0)}, set())

    Args:
        kind: the type of the values, which msgspec can encode.
        check: raises ValueError if the method cannot read a restored value.
    """

    def __init__(self, kind: type[V], check: Callable[[V], None] | None = None) -> None:
        self._check = check
        self._values: dict[JobKey, V] = {}
        self._changed: set[JobKey] = set()
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[JobKey]:
        return iter(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: JobKey) -> V | None:
        """Return the value of a job; None if it has none."""
        return self._values.get(key)

    def put(self, key: JobKey, value: V) -> None:
        """Set the value of a job. Replace a value as a whole; do not modify it in place."""
        self._values[key] = value
        self._changed.add(key)

    def pop(self, key: JobKey) -> V | None:
        """Remove and return a job's value; None if it has none."""
        value = self._values.pop(key, None)
        if value is not None:
            self._changed.add(key)
        return value

    def replace(self, values: Mapping[JobKey, V]) -> None:
        """Replace all values. O(values)."""
        if values == self._values:
            return
        before, self._values = self._values, dict(values)
        self._changed.update(key for key, value in values.items() if before.get(key) != value)
        self._changed.update(before.keys() - values.keys())

    def take_changed(self) -> set[JobKey]:
        """Return the keys of the jobs whose value has changed since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def encoded(self, key: JobKey) -> bytes:
        """Return the stored form of a job's value."""
        return _encode(self._values[key])

    def restore(self, key: JobKey, encoded: bytes) -> None:
        """Restore the value of a job from its stored form.

        Raises:
            ValueError: the stored form is invalid.
        """
        try:
            value = self._decode(encoded)
            if self._check is not None:
                self._check(value)
        except ValueError as error:  # includes msgspec's errors
            raise ValueError(f"invalid per-job value: {error}") from error
        self._values[key] = value

    def clear(self) -> None:
        """Remove all values, when the method is reset."""
        self.replace({})


_encode = msgspec.msgpack.Encoder().encode
