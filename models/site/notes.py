"""What a method noted of each job at its submission, to learn from when the job starts: as rows, not in checkpoints."""

from collections.abc import Iterator

import msgspec

from models.records import JobKey
from models.site.rows import Row, Rows

Pair = tuple[bytes, bytes]
"""A job that started: its note, and what was added when it was settled."""


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
    live jobs, and `load` lays out what came back. Each call takes 2 µs. A job in the rows takes some 500 bytes beside
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
    """

    def __init__(self, depth_rows: int, behind_rows: int = 0) -> None:
        self.behind_rows = behind_rows
        self.rows = Rows(depth_rows + behind_rows)
        self._depth = depth_rows
        self._pending: dict[JobKey, Row] = {}
        self._settled: dict[int, tuple[Row, Row]] = {}  # by the number of the note, in the order of settling
        self._latest: dict[int, Row] = {}

    @property
    def count(self) -> int:
        """How many rows there have ever been."""
        return self.rows.count

    @property
    def jobs(self) -> int:
        """How many jobs are settled, of those whose notes are still kept."""
        return len(self._settled)

    def note(self, key: JobKey, value: bytes) -> None:
        """A job was submitted."""
        self._append(_encode(_Note(*key, value)))
        self._pending[key] = self.rows.kept[-1]

    def settle(self, key: JobKey, value: bytes) -> bytes | None:
        """A job started; gives its note, None where there is none any more."""
        if key not in self._pending:
            return None
        self._append(_encode(_Settled(*key, value)))
        note = self._pending.pop(key, None)
        if note is None:  # it has just left, for this row's sake
            return None
        self._settled[note.number] = note, self.rows.kept[-1]
        return _read(note.value).value

    def forget(self, key: JobKey) -> None:
        """A job left the queue without a start."""
        self._pending.pop(key, None)

    def peek(self, key: JobKey) -> bytes | None:
        """The note of a job that is neither settled nor forgotten."""
        note = self._pending.get(key)
        return None if note is None else _read(note.value).value

    def take(self, key: JobKey) -> bytes | None:
        """The note of a job that left the queue, where only that is wanted: as `settle`, without a row."""
        note = self._pending.pop(key, None)
        return None if note is None else _read(note.value).value

    def pending(self) -> Iterator[tuple[JobKey, bytes]]:
        """The notes of jobs that are neither settled nor forgotten, in the order in which they were made."""
        return ((key, _read(row.value).value) for key, row in self._pending.items())

    def settled(self, count: int | None = None) -> Iterator[Pair]:
        """The jobs that were settled, in that order, of which the note was among the last rows; 4 µs a job.

        What it goes through is copied at once (0.01 µs a job) and read later, which another thread may do.

        Parameters:
            count: as it was when there were so many rows; by default now.
        """
        return map(read_pair, self.settled_rows(count))

    def settled_rows(self, count: int | None = None) -> Iterator[Pair]:
        """As `settled`, but the rows as they are stored, for `read_pair`: 0.1 µs a job."""
        count = self.count if count is None else count
        first, pairs = count - self._depth, tuple(self._settled.values())
        return (
            (note.value, settled.value) for note, settled in pairs if note.number >= first and settled.number < count
        )

    def put(self, kind: int, value: bytes) -> None:
        """Keep something else, such as a model; the latest of each kind stays, however old it is.

        Raises:
            ValueError: there are as many kinds as rows.
        """
        if len(self._latest.keys() | {kind}) >= self.rows.depth:
            raise ValueError(f"{self.rows.depth} rows are too few for {kind} and the other kinds")
        self._append(_encode(_Other(kind, value)))
        self._latest[kind] = self.rows.kept[-1]

    def latest(self, kind: int) -> bytes | None:
        """What was last put of this kind; None where there is nothing."""
        row = self._latest.get(kind)
        return None if row is None else _read(row.value).value

    def load(self) -> None:
        """Lay out the rows that have been restored. Notes of forgotten jobs are pending again, till they leave.

        Raises:
            ValueError: they are none of these.
        """
        self._pending, self._settled, self._latest = {}, {}, {}
        for row in self.rows.kept:
            try:
                said = _read(row.value)
            except msgspec.MsgspecError as error:
                raise ValueError(f"row {row.number}: not a job's note: {error}") from error
            if isinstance(said, _Note):
                self._pending[said.id, said.attempt] = row
            elif isinstance(said, _Other):
                self._latest[said.kind] = row
            elif (note := self._pending.pop((said.id, said.attempt), None)) is not None:
                self._settled[note.number] = note, row

    def _append(self, value: bytes) -> None:
        """Append a row, and before it those that leave for it though they are the latest of their kind."""
        kept = self.rows.kept
        while len(kept) == self.rows.depth and (again := self._leave(kept[0])) is not None:
            self.rows.append(_exact(_encode(again)))
            self._latest[again.kind] = kept[-1]
        self.rows.append(_exact(value))

    def _leave(self, row: Row) -> _Other | None:
        """Forget the oldest row; gives what it says where that has to stay."""
        said = _read(row.value)
        if isinstance(said, _Other):
            return said if self._latest[said.kind] is row else None
        self._settled.pop(row.number, None)
        if isinstance(said, _Note) and self._pending.get((said.id, said.attempt)) is row:
            del self._pending[said.id, said.attempt]
        return None


_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[_Note | _Settled | _Other] = msgspec.msgpack.Decoder(_Note | _Settled | _Other)
_read = _decoder.decode


def _exact(encoded: bytes) -> bytes:
    """The same in no more memory than it needs: the encoder takes some more, 150 bytes a job, and keeps it."""
    return bytes(memoryview(encoded))


def read_pair(rows: Pair) -> Pair:
    """A job's note, and what it was settled with, from its two rows."""
    note, settled = rows
    return _read(note).value, _read(settled).value
