"""The contract of an event source: the class `Source`. docs/howto/source.md shows how to write one."""

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, Self, TypeVar

import msgspec
from msgspec import Meta

from models.records import AnyEvent
from streams.errors import InvalidInput, UserError

IDLE_S = 1.0  # maximum seconds between two steps of a live source, also without events
HEAD_BYTES = 1 << 16  # bytes of a file that are read to detect its format

MAX_EXAMPLE = 200  # characters of a record that is shown as an example

MAX_CURSOR_BYTES = 1 << 24
"""Maximum size of a cursor, bytes. It is written to a file up to once a second; most need less than 100 bytes.

A cursor with live jobs needs some 20 bytes for each, and is written once a poll."""

Cursor = bytes
"""A place in a source's input, directly after the event that it comes with.

It is opaque bytes that only the source interprets. A source encodes a small struct as JSON (`encode_cursor`), so that a
person can read the file.
"""

Step = tuple[AnyEvent | None, Cursor | None]
"""An event (None if there is none now), and the cursor after it (None if the source cannot resume there)."""


class SkippedPart(msgspec.Struct, frozen=True):
    """A part of the input that gave no event, with the reason. As text it is one line for the operator.

    Attributes:
        file: a path or an address.
        line: line number from 1; None if the input has no lines.
        field: the wrong field; None if the whole line is wrong.
        found: the actual value, truncated.
        expected: the expected value.
    """

    file: str
    line: int | None
    field: str | None
    found: str
    expected: str

    def __str__(self) -> str:
        line = "" if self.line is None else f", line {self.line}"
        found = self.found if self.field is None else f"{self.field} is {self.found}"
        return f"{self.file}{line}: {found}; expected {self.expected}"


OnSkipped = Callable[[SkippedPart], None]
"""Receives each skipped part of the input; it may raise an error to stop the source."""


class CursorError(UserError):
    """A cursor is not one of this source's, or its place in the input is not there any more."""


def check_site(name: str) -> None:
    """Check that events can carry this site name.

    Raises:
        UserError: the name is too short or too long.
    """
    if not 1 <= len(name) <= 256:
        raise InvalidInput(f"site {name[:40]!r}: a name has 1 to 256 characters")


def refuse(skipped: SkippedPart) -> None:
    """Stop at the first part of the input that cannot be read.

    Raises:
        UserError: always; it names the place and the expected value.
    """
    raise UserError(str(skipped))


class IgnoredRecords(Counter[str]):
    """Count the records that give no event, by kind, with the first of each kind as an example.

    >>> left_out = IgnoredRecords()
    >>> left_out.add("job steps", "7.batch|COMPLETED")
    >>> dict(left_out), left_out.examples
    ({'job steps': 1}, {'job steps': '7.batch|COMPLETED'})
    """

    def __init__(self) -> None:
        super().__init__()
        self.examples: dict[str, str] = {}

    def add(self, what: str, example: str = "") -> None:
        """Count a record of this kind."""
        self[what] += 1
        if example and what not in self.examples:
            self.examples[what] = " ".join(example.split())[:MAX_EXAMPLE]


class Calls(msgspec.Struct):
    """Statistics of a source's external calls, such as a command: their number and duration in seconds."""

    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    last_s: float = 0.0


class Source(ABC):
    """Events of one scheduler or file, each with a cursor to resume after it.

    Attributes:
        name: name of the source, as in the registry and in the names of its cursor files.
        of_span: True if the input covers the jobs of a time span, as the result of an accounting query does. Of
            the jobs submitted before the span it contains only those that had not ended when the span began.
        live: True if the input grows without end (a log), False if it ends (a trace).
        sites: the sites of its events, set as soon as it is open; events of other sites are omitted.
        records: number of records of its input (lines, rows, jobs) read so far; 0 if the source does not count
            them.
        left_out: number of records that give no event by their nature and not by a mistake, by a description:
            {"job steps": 12}. A source that counts creates its own dictionary.
        lag: the input that exists but is not read yet, by unit: {"bytes": 512}. Empty if it is not available.
        calls: statistics of the calls that read its input, such as {"squeue": Calls(…)}. Another thread reads
            them.
        share_told: the share of the records that `read_merged` has processed, if it reads all records before it
            yields events; None if it yields events while it reads.
        reached: the cursor at which a live source of the same name resumes after `read_merged`, whose first source
            is this one; None if none can.
        read_until: Unix time, by this machine's clock, up to which a live source has yielded all events; None if
            it cannot state this. The site is silent since its last event then, and heartbeats are sent.
    """

    name: ClassVar[str]
    of_span: ClassVar[bool] = False
    live: bool = False
    sites: tuple[str, ...]
    records: int = 0
    left_out: Mapping[str, int] = MappingProxyType({})
    lag: Mapping[str, float] = MappingProxyType({})
    calls: Mapping[str, Calls] = MappingProxyType({})
    progress: float | None = None
    reached: Cursor | None = None
    read_until: float | None = None
    _idle_at: float | None = None

    def __init__(self, location: str, site: str | None = None, on_skipped: OnSkipped = refuse) -> None:
        """Open the source. A source's own options are keyword arguments with defaults.

        Args:
            location: a path or an address.
            site: name of the site; by default from the location or the input.
            on_skipped: receives each skipped part, now or while events are read.

        Raises:
            UserError: the location cannot be read, or is not an input of this source.
        """
        name = location if site is None else site
        check_site(name)
        self.sites, self._location, self._on_skipped = (name,), location, on_skipped
        self.records, self._left_out = 0, IgnoredRecords()
        self.left_out = self._left_out

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Detect a file of this source from its first `HEAD_BYTES`, uncompressed; False if the source reads no files.

        The check is fast, never fails, and is unambiguous: exactly one source recognises a file. The last line may be
        cut.
        """
        return False

    def read_all(self) -> Iterator[AnyEvent]:
        """Yield the events of the whole input as it is now, in its order; end there, even if the source is live.

        For bulk reading, where the log is not followed: a last line without a line end counts too if it can be read. By
        default the events are those of `events`.
        """
        reached: Cursor | None = None
        steps = self.events()
        try:
            for event, cursor in steps:
                if event is not None:
                    yield event
                elif cursor is not None and cursor == reached:
                    return  # live, and there is nothing more to read
                reached = cursor
        finally:
            if isinstance(steps, Generator):
                steps.close()

    @classmethod
    def limit_to_last(cls, sources: Sequence[Self], jobs: int) -> int:
        """Let `read_merged` skip jobs that ended before the last `jobs` submissions.

        For a source that can detect such jobs much faster than it reads them.

        Returns:
            The number of jobs; 0 if none is skipped.
        """
        return 0

    @classmethod
    def read_merged(cls, sources: Sequence[Self]) -> Iterator[tuple[Self, AnyEvent]]:
        """Yield the merged events of several files of one site's log, as `read_all`, each with its source.

        By default one file after the other. A source whose files continue each other or overlap merges them.
        """
        for source in sources:
            for event in source.read_all():
                yield source, event

    def note_read(self, at_end: bool) -> None:
        """Record that something was read, or that the end of a live input was reached; this sets `read_until`.

        At the second end in a row, everything up to the time of the first one was read.
        """
        if not at_end:
            self._idle_at = None
            return
        if self._idle_at is not None:
            self.read_until = self._idle_at
        self._idle_at = time.time()

    @abstractmethod
    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield the events after the cursor, in the order of the input, each with the cursor after it.

        - **Resume.** From an event's cursor the source yields exactly the events that followed that event: identical
          to the byte, with the same cursors. All state that this needs is in the cursor. Without a cursor the source
          starts at the beginning of the input.
        - **No cursor.** An event may come with None: the source cannot resume after it. It resumes at the last cursor
          before the event, and yields the events in between again. Such a run of events must be short.
        - **No event.** A live source yields a step at least every `IDLE_S` seconds. If nothing has happened the event
          is None and the cursor is the current place. So the reader can save cursors and stop in time. A source may
          also yield such a step after input without an event. Two in a row with the same cursor mean that there was
          nothing to read.
        - **The end.** A live source never ends by itself. Other sources end after their last event.
        - **Invalid input** is passed to `on_skipped`, and reading continues. No input makes a source crash.
        - The iterator can be closed at any step and then closes its files. Iterators are independent of each other.

        Raises:
            CursorError: the cursor is of another source, or of another input.
            UserError: the input can no longer be read.
        """


class RecordedCursor(msgspec.Struct):
    """Cursor of a recorded log: the number of events read, and the fingerprint of the log."""

    log: str
    events: Annotated[int, Meta(ge=0)]


def counted(
    after: Callable[[int], Iterable[AnyEvent]], fingerprint: str, name: str, cursor: Cursor | None
) -> Iterator[Step]:
    """Yield the events of a complete input, each with a cursor that holds its number.

    Args:
        after: returns the events after the first N, in time order.
        fingerprint: hash of all input data; a cursor of another input is rejected.
        name: name of the input in errors.
        cursor: where to resume.

    Raises:
        CursorError: the cursor is of another input.
    """
    place = RecordedCursor(fingerprint, 0) if cursor is None else decode_cursor(cursor, RecordedCursor)
    if place.log != fingerprint:
        raise CursorError(f"{name}: the cursor is of another log, or of another part of this one")
    for number, event in enumerate(after(place.events), place.events + 1):
        yield event, encode_cursor(RecordedCursor(fingerprint, number))


C = TypeVar("C", bound=msgspec.Struct)


def encode_cursor(place: msgspec.Struct) -> Cursor:
    """Encode a place as a cursor: JSON."""
    return msgspec.json.encode(place)


def steps_of(events: Sequence[AnyEvent], cursor: Cursor | None) -> Iterator[Step]:
    """Yield events that were read together, the last one with the cursor; without events, the cursor alone."""
    for event in events[:-1]:
        yield event, None
    if events or cursor is not None:
        yield (events[-1] if events else None), cursor


def decode_cursor(cursor: Cursor, kind: type[C]) -> C:
    """Decode the place in a cursor.

    Raises:
        CursorError: the cursor is invalid.
    """
    try:
        return msgspec.json.decode(cursor, type=kind)
    except ValueError as error:  # msgspec's, and of bytes that are no UTF-8
        raise CursorError(f"the cursor {cursor[:80]!r} is not one of this source: {error}") from None
