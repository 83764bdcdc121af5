"""What a method noted of each job at its submission, to learn from when the job starts: as rows, not in checkpoints."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

from models.records import JobKey
from models.site.rows import Rows

Check = Callable[[bytes, int], None]
Pair = tuple[bytes, bytes]  # a job that started: its note, and what was added when it was settled


class _Note(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=0):
    id: str
    attempt: int
    value: bytes


class _Settled(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """Names its job, not the number of the note: numbers change where rows are lost (`models.engine.salvage`)."""

    id: str
    attempt: int
    value: bytes


class _Other(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    kind: int
    value: bytes


class JobNotes:
    """Notes of a method, each made of a job at its submission and settled at its start, in the last rows.

    A method sets its `rows` to these. They hold everything: a checkpoint stores none of it, whatever the number of
    live jobs, and `load` lays out what came back. Each call takes 2 µs. A job in the rows takes some 120 bytes beside
    what was noted.

    >>> notes = JobNotes(100)
    >>> notes.note(("1", 0), b"features")
    >>> notes.settle(("1", 0), b"wait")
    b'features'
    >>> list(notes.settled())
    [(b'features', b'wait')]

    Parameters:
        depth_rows: how many rows count: a job takes two, a value that was `put` one.
        behind_rows: rows that are kept beyond these, so that `settled` can tell what was, so many rows ago.
        check_note, check_settled: raise ValueError where a restored note, or what was added to it, is something else;
            they are given its value and how many rows there are.
    """

    def __init__(
        self, depth_rows: int, behind_rows: int = 0, check_note: Check | None = None, check_settled: Check | None = None
    ) -> None:
        self._checks = {_Note: check_note, _Settled: check_settled}
        self.behind_rows = behind_rows
        self.rows = Rows(depth_rows + behind_rows)
        self._depth = depth_rows
        self._pending: dict[JobKey, bytes] = {}  # their rows
        self._latest: dict[int, int] = {}  # the number of its row
        self.jobs = 0  # how many jobs are settled, of those whose second rows are still kept

    @property
    def count(self) -> int:
        """How many rows there have ever been."""
        return self.rows.count

    def note(self, key: JobKey, value: bytes) -> None:
        """A job was submitted."""
        self._append(_encode(_Note(*key, value)))
        self._pending[key] = self.rows.values[-1]

    def settle(self, key: JobKey, value: bytes) -> bytes | None:
        """A job started; gives its note, None where there is none any more."""
        if key not in self._pending:
            return None
        self._append(_encode(_Settled(*key, value)))
        self.jobs += 1
        note = self._pending.pop(key, None)  # None where it has just left, for this row's sake
        return None if note is None else _read(note).value

    def forget(self, key: JobKey) -> None:
        """A job left the queue without a start."""
        self._pending.pop(key, None)

    def settled(self, count: int | None = None) -> Iterator[Pair]:
        """The jobs that were settled, in that order, of which the note was among the last rows; 4 µs a job.

        It copies at once what it reads later, maybe in another thread: the rows as when there were `count` of them.
        """
        return pairs(*self.as_of(self.count if count is None else count))

    def as_of(self, count: int) -> tuple[list[bytes], int]:
        """The rows as they are stored, as they were when there were `count`, and how many of them, the first, do not
        count any more: for `pairs`. 0.05 µs a row.
        """
        first = self._first
        return list(islice(self.rows.values, max(count - first, 0))), max(count - self._depth - first, 0)

    def put(self, kind: int, value: bytes) -> None:
        """Keep something else, such as a model; the latest of each kind stays, however old it is. Raises ValueError:
        there are as many kinds as rows.
        """
        if len(self._latest.keys() | {kind}) >= self.rows.depth:
            raise ValueError(f"{self.rows.depth} rows are too few for {kind} and the other kinds")
        self._append(_encode(_Other(kind, value)))
        self._is_latest(kind, self.count - 1)

    def _is_latest(self, kind: int, number: int) -> None:
        """A row is the latest of its kind: what the one before it says, such as a model, is let go here."""
        before = self._latest.get(kind, -1)
        if before >= self._first:
            self.rows.values[before - self._first] = _encode(_Other(kind, b""))
        self._latest[kind] = number

    @property
    def _first(self) -> int:
        return self.count - len(self.rows.values)

    def latest(self, kind: int) -> bytes | None:
        """What was last put of this kind; None where there is nothing."""
        number = self._latest.get(kind)
        return None if number is None else _read(self.rows.values[number - self._first]).value

    def load(self) -> None:
        """Lay out the rows that have been restored; notes of forgotten jobs are pending again, till they leave. Raises
        ValueError: they are none of these.
        """
        self._pending, self._latest, self.jobs = {}, {}, 0
        for number, row in enumerate([*self.rows.values], self._first):
            try:
                said = _read(row)
                if (check := self._checks.get(type(said))) is not None:
                    check(said.value, self.count)
            except ValueError as error:  # msgspec's errors are such too
                raise ValueError(f"row {number}: not a job's note: {error}") from error
            if isinstance(said, _Note):
                self._pending[said.id, said.attempt] = row
            elif isinstance(said, _Other):
                self._is_latest(said.kind, number)
            else:
                self.jobs += 1
                self._pending.pop((said.id, said.attempt), None)

    def _append(self, value: bytes) -> None:
        """Append a row, and before it those that leave for it though they are the latest of their kind."""
        kept = self.rows.values
        while len(kept) == self.rows.depth and (again := self._leave(kept[0])) is not None:
            self.rows.append(_exact(_encode(again)))
            self._latest[again.kind] = self.count - 1
        self.rows.append(_exact(value))

    def _leave(self, row: bytes) -> _Other | None:
        """Forget the oldest row; gives what it says where that has to stay."""
        said = _read(row)
        if isinstance(said, _Other):
            return said if self._latest[said.kind] == self._first else None
        if isinstance(said, _Settled):
            self.jobs -= 1
        elif self._pending.get((said.id, said.attempt)) is row:
            del self._pending[said.id, said.attempt]
        return None


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Note | _Settled | _Other] = msgspec.msgpack.Decoder(_Note | _Settled | _Other)
_read = _decoder.decode


def _exact(encoded: bytes) -> bytes:
    """The same in no more memory than it needs: the encoder takes some more, 150 bytes a job, and keeps it."""
    return bytes(memoryview(encoded))


def pairs(rows: Iterable[bytes], skipped: int) -> Iterator[Pair]:
    """The settled jobs among rows of `JobNotes.as_of`, in the order of settling, but for those noted in the first."""
    notes: dict[JobKey, tuple[int, bytes]] = {}
    for place, row in enumerate(rows):
        said = _read(row)
        if isinstance(said, _Note):
            notes[said.id, said.attempt] = place, said.value
        elif isinstance(said, _Settled):
            noted, note = notes.pop((said.id, said.attempt), (-1, b""))
            if noted >= skipped:
                yield note, said.value
