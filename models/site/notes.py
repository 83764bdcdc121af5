"""Notes of a method on each job at its submission, to learn from at its start. They are stored as rows."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from models.records import JobKey
from models.site.rows import Rows

Check = Callable[[bytes, int], None]
Pair = tuple[bytes, bytes]  # a started job: its note, and the value added when it was settled


class _Note(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=0):
    id: str
    attempt: int
    value: bytes


class _SettledJob(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """Contains the key of its job, because row numbers change after a loss of rows (`models.engine.salvage`)."""

    id: str
    attempt: int
    value: bytes


class _ExtraRow(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    kind: int
    value: bytes


class JobNotes:
    """Notes of a method in its last rows, each written at the submission of a job and settled at its start.

    A method assigns these to its `rows`. The rows contain the complete state: a checkpoint stores none of it, whatever
    the number of live jobs, and `load` rebuilds it from the restored rows.

    >>> notes = JobNotes(100)
    >>> notes.note(("1", 0), b"features")
    >>> notes.settle(("1", 0), b"wait")
    b'features'
    >>> list(notes.settled())
    [(b'features', b'wait')]

    Args:
        depth_rows: number of rows that count: a job takes two, a `put` value one.
        behind_rows: number of older rows to keep, so that `settled` can return an earlier state.
        check_note: checks the value of a restored note, given the number of rows; raises ValueError if it is invalid.
        check_settled: checks the value added to a settled note in the same way.
    """

    def __init__(
        self, depth_rows: int, behind_rows: int = 0, check_note: Check | None = None, check_settled: Check | None = None
    ) -> None:
        self._checks = {_Note: check_note, _SettledJob: check_settled}
        self.behind_rows = behind_rows
        self.rows = Rows(depth_rows + behind_rows)
        self._depth = depth_rows
        self._pending: dict[JobKey, bytes] = {}  # rows of unsettled notes
        self._latest: dict[int, int] = {}  # row number of the latest value by kind
        self.jobs = 0  # number of settled jobs whose second rows are still kept

    @property
    def count(self) -> int:
        """The total number of rows ever written."""
        return self.rows.count

    def note(self, key: JobKey, value: bytes) -> None:
        """Write the note of a submitted job."""
        self._append(_encode(_Note(*key, value)))
        self._pending[key] = self.rows.values[-1]

    def settle(self, key: JobKey, value: bytes) -> bytes | None:
        """Settle a started job and return its note; None if the note is no longer kept."""
        if key not in self._pending:
            return None
        self._append(_encode(_SettledJob(*key, value)))
        self.jobs += 1
        note = self._pending.pop(key, None)  # None if appending this row has dropped it
        return None if note is None else _read(note).value

    def forget(self, key: JobKey) -> None:
        """Drop the note of a job that left the queue without a start."""
        self._pending.pop(key, None)

    def settled(self, count: int | None = None) -> Iterator[Pair]:
        """Yield the settled jobs in that order whose notes are among the last rows.

        It copies the rows immediately, and reads them later, possibly in another thread.

        Args:
            count: the number of rows at the time to return; by default all.
        """
        return pairs(*self.as_of(self.count if count is None else count))

    def as_of(self, count: int) -> tuple[list[bytes], int]:
        """Return the stored rows as of `count` rows, and how many of the first ones no longer count; see `pairs`."""
        first = self._first
        return list(islice(self.rows.values, max(count - first, 0))), max(count - self._depth - first, 0)

    def put(self, kind: int, value: bytes) -> None:
        """Store another value, such as a model; the latest of each kind is kept regardless of its age.

        Raises:
            ValueError: there are as many kinds as rows.
        """
        if len(self._latest.keys() | {kind}) >= self.rows.depth:
            raise ValueError(f"{self.rows.depth} rows are too few for {kind} and the other kinds")
        self._append(_encode(_ExtraRow(kind, value)))
        self._is_latest(kind, self.count - 1)

    def _is_latest(self, kind: int, number: int) -> None:
        """Mark a row as the latest of its kind, and drop the value of the previous one."""
        before = self._latest.get(kind, -1)
        if before >= self._first:
            self.rows.values[before - self._first] = _encode(_ExtraRow(kind, b""))
        self._latest[kind] = number

    @property
    def _first(self) -> int:
        return self.count - len(self.rows.values)

    def latest(self, kind: int) -> bytes | None:
        """Return the latest value of this kind; None if there is none."""
        number = self._latest.get(kind)
        return None if number is None else _read(self.rows.values[number - self._first]).value

    def load(self) -> None:
        """Rebuild the state from the restored rows; notes of forgotten jobs are pending again, until they leave.

        Raises:
            ValueError: a row is invalid.
        """
        self._pending, self._latest, self.jobs = {}, {}, 0
        for number, row in enumerate([*self.rows.values], self._first):
            try:
                entry = _read(row)
                if (check := self._checks.get(type(entry))) is not None:
                    check(entry.value, self.count)
            except ValueError as error:  # includes msgspec's errors
                raise ValueError(f"row {number}: not a job's note: {error}") from error
            if isinstance(entry, _Note):
                self._pending[entry.id, entry.attempt] = row
            elif isinstance(entry, _ExtraRow):
                self._is_latest(entry.kind, number)
            else:
                self.jobs += 1
                self._pending.pop((entry.id, entry.attempt), None)

    def _append(self, value: bytes) -> None:
        """Append a row, after moving up the rows that it displaces although they are the latest of their kind."""
        kept = self.rows.values
        while len(kept) == self.rows.depth and (again := self._leave(kept[0])) is not None:
            self.rows.append(_exact(_encode(again)))
            self._latest[again.kind] = self.count - 1
        self.rows.append(_exact(value))

    def _leave(self, row: bytes) -> _ExtraRow | None:
        """Drop the oldest row; return its value if it must be kept."""
        entry = _read(row)
        if isinstance(entry, _ExtraRow):
            return entry if self._latest[entry.kind] == self._first else None
        if isinstance(entry, _SettledJob):
            self.jobs -= 1
        elif self._pending.get((entry.id, entry.attempt)) is row:
            del self._pending[entry.id, entry.attempt]
        return None


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Note | _SettledJob | _ExtraRow] = msgspec.msgpack.Decoder(
    _Note | _SettledJob | _ExtraRow
)
_read = _decoder.decode


def _exact(encoded: bytes) -> bytes:
    """Copy the bytes without unused memory: the encoder allocates more than it needs and keeps it."""
    return bytes(memoryview(encoded))


def pairs(rows: Iterable[bytes], skipped: int) -> Iterator[Pair]:
    """Yield the settled jobs in the rows of `JobNotes.as_of`, without those noted in the `skipped` first rows."""
    notes: dict[JobKey, tuple[int, bytes]] = {}
    for place, row in enumerate(rows):
        entry = _read(row)
        if isinstance(entry, _Note):
            notes[entry.id, entry.attempt] = place, entry.value
        elif isinstance(entry, _SettledJob):
            noted, note = notes.pop((entry.id, entry.attempt), (-1, b""))
            if noted >= skipped:
                yield note, entry.value
