r"""What a source of events is, and how to write one.

A source reads what one scheduler, or one file format, writes and gives it as events. One source is one class in a file
of its own, a scheduler's in `schedulers/`, or a class in a package of yours. What it owes is in `Source`; one test, the
class `SourceContract` in tests/support/source_contract.py, holds every source to it.

How to add a source
-------------------

1. Write a subclass of `Source` in `streams/sources/schedulers/NAME.py`. The example below is a whole one; begin with
   it. For a text log derive from `LogSource` (`logs/source.py`) instead: files, rotation and cursors are done there.
2. Name it in `streams/sources/registry.py`: `"NAME": "streams.sources.schedulers.NAME:YourClass"`. A package of your
   own names it in its pyproject.toml instead, and nothing of queuecast has to be changed:

       [project.entry-points."queuecast.sources"]
       NAME = "your_package.your_module:YourClass"

3. Derive a test class from `SourceContract`: it says how to write a small input and which of its lines are bad. Make
   the input by hand in the test; a log of a real site does not belong into the repository.
4. Where it reads files, write `recognises`, so that nobody has to name the format. Where its log can be read faster
   whole than followed, write `whole` too.

What schedulers do to a reader
------------------------------

- **A line that is not whole yet.** Without its end of line it is not there yet: wait, and read it again.
- **Rotation.** Keep in the cursor which file it was (its inode, or the date in its name), read that file to its end,
  then go on with the next. Where that file is gone, report it as skipped and go on with the oldest that is there.
- **Records twice, and a finish before its start.** Pass them on. The engine passes over what it has seen and knows
  what to do with disorder.
- **Records held back**, to put them in order or to join two of them. The cursor says where the oldest record begins
  that is still held, and how many events after that place were given already.
- **Polling.** A source that compares snapshots keeps in its cursor what it needs of the last one. Give a cursor with
  the last event that a comparison yields, and None with those before it.
- **Times.** An event's time is the scheduler's, never this machine's clock: what is sent a second time must be the same
  bytes. Turn local times into Unix seconds with the site's time zone.
- **A job that runs again** is a new attempt. Where the scheduler does not count attempts, count them in the cursor.

An example
----------

A scheduler that appends lines `TIME JOB submit|start|end` to a file. The cursor says at which byte and after which line
to go on.

>>> import tempfile, time
>>> from pathlib import Path
>>> from models.records import End, Start, Submit
>>> KINDS = {"submit": Submit, "start": Start, "end": End}
>>> class Place(msgspec.Struct):
...     byte: int = 0
...     line: int = 0
>>> class PlainLog(Source):
...     name = "plain-log"
...     live = True
...
...     def __init__(self, path, site, on_skipped, pause_s=1.0):
...         self.path, self.sites, self.on_skipped, self.pause_s = path, (site,), on_skipped, pause_s
...
...     @classmethod
...     def open(cls, location, site=None, on_skipped=refuse):
...         return cls(Path(location), site or Path(location).stem, on_skipped)
...
...     def events(self, cursor=None):
...         place = Place() if cursor is None else decode_cursor(cursor, Place)
...         with self.path.open("rb") as file:
...             file.seek(place.byte)
...             while True:
...                 line = file.readline()
...                 if line.endswith(b"\n"):
...                     place = Place(place.byte + len(line), place.line + 1)
...                     yield self.event(line.decode(errors="replace"), place.line), encode_cursor(place)
...                 else:  # nothing new, or a line that is not whole yet
...                     file.seek(place.byte)
...                     yield None, encode_cursor(place)
...                     time.sleep(self.pause_s)
...
...     def event(self, line, number):
...         fields = line.split()
...         if len(fields) != 3 or fields[2] not in KINDS:
...             self.on_skipped(Skipped(str(self.path), number, None, repr(line.strip()), "TIME JOB submit|start|end"))
...             return None
...         try:
...             return KINDS[fields[2]](site=self.sites[0], time=float(fields[0]), job=fields[1])
...         except ValueError:
...             self.on_skipped(Skipped(str(self.path), number, "field 1 (time)", repr(fields[0]), "Unix seconds"))
...             return None

Two lines are there, the second of them is bad, and a third is not whole yet:

>>> path = Path(tempfile.mkdtemp()) / "ctc.log"
>>> _ = path.write_text("100 7 submit\nsoon 7 start\n160 7 sta")
>>> source = PlainLog.open(str(path), on_skipped=lambda skipped: print(str(skipped).removeprefix(f"{path.parent}/")))
>>> steps = source.events()
>>> event, cursor = next(steps)
>>> event.kind, event.job, cursor
('submit', '7', b'{"byte":13,"line":1}')
>>> next(steps)
ctc.log, line 2: field 1 (time) is 'soon'; expected Unix seconds
(None, b'{"byte":26,"line":2}')
>>> next(steps)
(None, b'{"byte":26,"line":2}')

The program ends here, the third line is completed, and another program goes on:

>>> steps.close()
>>> with path.open("a") as file:
...     _ = file.write("rt\n")
>>> next(source.events(b'{"byte":26,"line":2}'))[0].kind
'start'
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Self, TypeVar

import msgspec

from models.records import AnyEvent, Capacity
from streams.errors import NotUnderstood, UserError

IDLE_S = 1.0
"""Seconds within which a live source gives its next step, whether anything has happened or not."""

HEAD_BYTES = 1 << 16
"""The most of a file that is looked at to tell its format, bytes."""

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
    """Make sure that a site's name is one that events can carry.

    Raises:
        UserError: it is not.
    """
    if not 1 <= len(name) <= 256:
        raise NotUnderstood(f"site {name[:40]!r}: a name has 1 to 256 characters")


def refuse(skipped: Skipped) -> None:
    """Stop at the first part of the input that cannot be read.

    Raises:
        UserError: always; the message says where it is and what was expected.
    """
    raise UserError(str(skipped))


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
    reached: Cursor | None = None

    @classmethod
    @abstractmethod
    def open(cls, location: str, site: str | None = None, on_skipped: OnSkipped = refuse) -> Self:
        """Open a source. Further parameters of its own are keyword arguments with defaults.

        Parameters:
            location: a path or an address.
            site: the name of the site; without it the location or the input says it.
            on_skipped: told of what is skipped, now or while events are read.

        Raises:
            UserError: the location cannot be read, or is not what this source reads.
        """

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Whether a file that begins so looks like what this source reads. False where it reads no files.

        It is cheap, never fails, and is sure: of all sources one recognises a file.

        Parameters:
            head: the first `HEAD_BYTES` of the file, unzipped; a longer file's last line may be cut.
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


class Recorded(Source):
    """A source of one site whose input is all there, and can be sent at the pace at which it happened."""

    @property
    def site(self) -> str:
        """The site whose events these are."""
        return self.sites[0]

    @property
    @abstractmethod
    def begin(self) -> float:
        """Unix time at which it begins."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many events it has."""

    @property
    def guessed(self) -> Capacity | None:
        """The machine, where the input does not say it and it is guessed; one of its events."""
        return None

    @abstractmethod
    def first(self, jobs: int) -> Self:
        """The source with its first `jobs` jobs alone, and what became of them."""


_Place = TypeVar("_Place", bound=msgspec.Struct)


def encode_cursor(place: msgspec.Struct) -> Cursor:
    """A place as a cursor: JSON."""
    return msgspec.json.encode(place)


def steps_of(events: Sequence[AnyEvent], cursor: Cursor | None) -> Iterator[Step]:
    """Events that were found together, the last one with the cursor; a cursor alone where there is no event."""
    for event in events[:-1]:
        yield event, None
    if events or cursor is not None:
        yield (events[-1] if events else None), cursor


def decode_cursor(cursor: Cursor, kind: type[_Place]) -> _Place:
    """The place that a cursor tells.

    Raises:
        CursorError: it does not tell one.
    """
    try:
        return msgspec.json.decode(cursor, type=kind)
    except ValueError as error:  # msgspec's, and of bytes that are no UTF-8
        raise CursorError(f"the cursor {cursor[:80]!r} is not one of this source: {error}") from None
