"""What a source of events is: `Source` says what one owes. How to write one, with an example: docs/howto/source.md."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, Self, TypeVar

import msgspec
from msgspec import Meta

from models.records import AnyEvent
from streams.errors import NotUnderstood, UserError

IDLE_S = 1.0  # seconds within which a live source gives its next step, whether anything has happened or not
HEAD_BYTES = 1 << 16  # the most of a file that is looked at to tell its format, bytes

MAX_EXAMPLE = 200  # characters of a record that is shown as an example

MAX_CURSOR_BYTES = 1 << 24
"""The largest cursor, bytes. It is written to a file up to once a second; most need less than 100 bytes.

One that has live jobs in it needs some 20 bytes for each, and comes once a poll."""

Cursor = bytes
"""A place in a source's input, just after the event that it comes with.

Bytes, because whoever keeps it need not know what is in it: the source alone reads it. A source encodes a small struct
as JSON (`encode_cursor`), so that a person can read the file it is kept in.
"""

Step = tuple[AnyEvent | None, Cursor | None]
"""An event, or None where there is none now, and the place after it, or None where one cannot begin after it."""


class Skipped(msgspec.Struct, frozen=True):
    """A part of the input that gave no event, and why. As text it is one line for the operator.

    Attributes:
        file: a path or an address.
        line: counts from 1; None where the input has no lines.
        field: the field that is wrong; None where the whole line is.
        found: what is there, cut short where it is long.
        expected: what should be there.
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


OnSkipped = Callable[[Skipped], None]
"""Told of each part of the input that is skipped; it may raise an error to stop the source."""


class CursorError(UserError):
    """A cursor is not one of this source's, or its place in the input is not there any more."""


def check_site(name: str) -> None:
    """Make sure that a site's name is one that events can carry. Raises UserError: it is not."""
    if not 1 <= len(name) <= 256:
        raise NotUnderstood(f"site {name[:40]!r}: a name has 1 to 256 characters")


def refuse(skipped: Skipped) -> None:
    """Stop at the first part of the input that cannot be read: raises a UserError that says where and what was
    expected.
    """
    raise UserError(str(skipped))


class LeftOut(Counter[str]):
    """Counts the records that give no event, by what they are, with the first of each kind as an example.

    >>> left_out = LeftOut()
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
    """How often a source called something outside, such as a command, and what that took there, in seconds."""

    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    last_s: float = 0.0


class Source(ABC):
    """Events of one scheduler or file, each with the cursor from which to go on after it.

    Attributes:
        name: the source's name, as in the registry and in the names of the files that keep its cursors.
        of_span: True where the input tells of the jobs that were there in a span of time, as an accounting does that is
            asked for one. Of those submitted before it then has those alone that were not over when it began.
        live: True where the input goes on for ever (a log that grows), False where it ends (a trace).
        sites: the sites whose events it gives, known as soon as it is open; events of other sites are not given.
        records: how many records of its input (lines, rows, jobs) it has read so far; 0 where it does not count them.
        left_out: how many of these give no event by their nature and not by a mistake, by what they are, in words:
            {"job steps": 12}. A source that counts makes a dictionary of its own.
        lag: how much of its input is there and not read yet, by the unit: {"bytes": 512}. Empty where it cannot tell.
        calls: what it calls to read its input, by name, such as {"squeue": Calls(…)}. Another thread looks at these.
        share_told: of the records of which all are read before any is told, the share that `together` has told; None
            where they are told as they are read.
        reached: where a live source of the same name goes on after what `together` has read with this one as the first;
            None where none can.
    """

    name: ClassVar[str]
    of_span: ClassVar[bool] = False
    live: bool = False
    sites: tuple[str, ...]
    records: int = 0
    left_out: Mapping[str, int] = MappingProxyType({})
    lag: Mapping[str, float] = MappingProxyType({})
    calls: Mapping[str, Calls] = MappingProxyType({})
    share_told: float | None = None
    reached: Cursor | None = None

    def __init__(self, location: str, site: str | None = None, on_skipped: OnSkipped = refuse) -> None:
        """Open it. Further parameters of a source's own are keyword arguments with defaults.

        Parameters:
            location: a path or an address.
            site: the name of the site; without it the location or the input says it.
            on_skipped: told of what is skipped, now or while events are read.

        Raises:
            UserError: the location cannot be read, or is not what this source reads.
        """
        name = location if site is None else site
        check_site(name)
        self.sites, self._location, self._on_skipped = (name,), location, on_skipped
        self.records, self._left_out = 0, LeftOut()
        self.left_out = self._left_out

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file whose first `HEAD_BYTES`, unzipped, are these is one for this source; False where it reads
        none.

        It is cheap, never fails, and is sure: of all sources one recognises a file. The last line may be cut.
        """
        return False

    def whole(self) -> Iterator[AnyEvent]:
        """The events of the whole input as it is now, in its order; it ends there, live or not.

        For logs read in bulk, which no one follows: a last line without its end counts too where it can be read. What
        is given here comes as from `events` where nothing else is written.
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
    def keep_last(cls, sources: Sequence[Self], jobs: int) -> int:
        """Have `together` pass over jobs that were over before the last so many were submitted, or more.

        For a source that can tell which these are much faster than it reads them.

        Returns:
            How many jobs there are; 0 where none is passed over.
        """
        return 0

    @classmethod
    def together(cls, sources: Sequence[Self]) -> Iterator[tuple[Self, AnyEvent]]:
        """The events of files of one site's log, as `whole`, each with the source that it is from.

        Here one file after the other. Where one file ends what another one begins, or where files overlap, a source
        puts them together.
        """
        for source in sources:
            for event in source.whole():
                yield source, event

    @abstractmethod
    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """The events after the cursor's place, in the order of the input, each with the cursor after it.

        - **Going on.** From the cursor that came with an event follows exactly what would have followed that
          event: the same events, to the byte, with the same cursors. Nothing of what was read before may be needed that
          is not in the cursor. Without a cursor it begins at the beginning of the input.
        - **No cursor.** An event may come with None: one cannot begin after it. The last cursor before it counts, and
          the events in between will be given again. None must not go on for long.
        - **No event.** A live source gives a step at least every `IDLE_S` seconds. Where nothing has happened the event
          is None and the cursor is the place reached so far. So whoever reads can keep cursors and stop in time. A
          source may also give such a step after input that holds no event. Two in a row with the same cursor mean that
          there was nothing to read.
        - **The end.** A live source never ends by itself. Another ends after its last event.
        - **What cannot be read** is passed to `on_skipped`, and reading goes on. No input makes a source crash.
        - The iterator can be closed at any step and lets go of its files then. Iterators do not disturb each other.

        Raises:
            CursorError: the cursor is not of this source, or of another input.
            UserError: the input cannot be read any more.
        """


class RecordedCursor(msgspec.Struct):
    """Where to go on in what is recorded: after so many events of the log with this fingerprint."""

    log: str
    events: Annotated[int, Meta(ge=0)]


def counted(
    after: Callable[[int], Iterable[AnyEvent]], fingerprint: str, name: str, cursor: Cursor | None
) -> Iterator[Step]:
    """The events of an input that is all there, each with a cursor that counts those up to it. Raises CursorError: it
    is not of this input.

    `after` gives the events but the first so many, in time order. `fingerprint` is of all that they are made from: a
    cursor of another input means nothing here. Errors call the input by `name`.
    """
    place = RecordedCursor(fingerprint, 0) if cursor is None else decode_cursor(cursor, RecordedCursor)
    if place.log != fingerprint:
        raise CursorError(f"{name}: the cursor is of another log, or of another part of this one")
    for number, event in enumerate(after(place.events), place.events + 1):
        yield event, encode_cursor(RecordedCursor(fingerprint, number))


C = TypeVar("C", bound=msgspec.Struct)


def encode_cursor(place: msgspec.Struct) -> Cursor:
    """A place as a cursor: JSON."""
    return msgspec.json.encode(place)


def steps_of(events: Sequence[AnyEvent], cursor: Cursor | None) -> Iterator[Step]:
    """Events that were found together, the last one with the cursor; a cursor alone where there is no event."""
    for event in events[:-1]:
        yield event, None
    if events or cursor is not None:
        yield (events[-1] if events else None), cursor


def decode_cursor(cursor: Cursor, kind: type[C]) -> C:
    """The place that a cursor tells. Raises CursorError: it does not tell one."""
    try:
        return msgspec.json.decode(cursor, type=kind)
    except ValueError as error:  # msgspec's, and of bytes that are no UTF-8
        raise CursorError(f"the cursor {cursor[:80]!r} is not one of this source: {error}") from None
