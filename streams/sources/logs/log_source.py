"""Base class of sources that read a text log: files and lines below it, one scheduler's records above.

A scheduler's module defines the look of its log with `LogSource.first_time` and `recognises`, and the conversion of
lines to events with a `Records`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from models.records import AnyEvent, Submit
from streams.errors import InvalidInput
from streams.sources import contract
from streams.sources.logs.fields import BadRecord
from streams.sources.logs.lifecycles import Known, LifecycleTracker, as_late
from streams.sources.logs.lines import LinePosition, LineReader
from streams.sources.logs.log_files import LogFiles, written

STEPS_WITHOUT_EVENT = 1000  # lines without an event after which the place is yielded, so that the reader can stop

EVENTS_PER_KNOWN = 16
"""A cursor comes once in as many events as there are known jobs divided by this: writing it is O(known jobs)."""


class LinesRead(msgspec.Struct, omit_defaults=True):
    """State of the lines read that later lines need.

    `offset` is the site's time minus UTC (seconds) according to the log's own records. `has_ads` is True if requests
    come in records of their own (HTCondor), and `held` is a submission that waits for such a record. `last` is the last
    time that was stated without a year, Unix seconds.
    """

    known: Known = {}
    offset: int = 0
    has_ads: bool = False
    held: Submit | None = None
    last: float = 0.0


class _Cursor(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    place: LinePosition
    memory: LinesRead


class Records(ABC):
    """Makes events of the lines of one log, in their order.

    Attributes:
        memory: what is kept with the place.
        is_whole: True where a log is read whole, and events need not come in the order of its lines.
        file: the file that is read.
        line: the line of it that was taken last.
        lines_before: how many lines of the record come before the last line that was taken.
        left_out: counts the records that give no event by their nature, by what they are.
    """

    is_whole = False
    file = Path()
    line = ""
    lines_before = 0

    def __init__(self, site: str, memory: LinesRead, zone: ZoneInfo | None, left_out: contract.IgnoredRecords) -> None:
        self.site, self.memory, self.zone, self.left_out = site, memory, zone, left_out
        self.lifecycles = LifecycleTracker(site, memory.known)
        self._lines: list[str] = []

    @property
    def is_open(self) -> bool:
        """True if a record of several lines has begun and is incomplete: reading cannot resume there."""
        return bool(self._lines)

    def _taken(self) -> list[str]:
        """The lines of the record, which is complete, or given up."""
        lines, self._lines = self._lines, []
        return lines

    @abstractmethod
    def take(self, line: str) -> list[AnyEvent]:
        """The events of the next line. Raises BadRecord: the record that it belongs to is wrong."""

    def rest(self) -> list[AnyEvent]:
        """Return the events of buffered records at the end of the input."""
        return []

    def leave_out(self, what: str) -> list[AnyEvent]:
        """Count a record that gives no event."""
        self.left_out.add(what, self.line)
        return []


class LogSource(contract.Source):
    """The events of one scheduler's text log.

    Attributes:
        first: finds the first record of such a log; its first group is the time, Unix seconds. Where times are written
            otherwise, `first_time` is a source's own.
    """

    live: bool = True
    first: ClassVar[re.Pattern[bytes]]
    records_of: type[Records]

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: contract.OnSkipped = contract.refuse,
        timezone: str | None = None,
        pause_s: float = contract.IDLE_S,
    ) -> None:
        """Open a log.

        Args:
            location: a file, together with its rotated files; a folder with a file a day; or a pattern such as
                `/var/log/condor/EventLog*`.
            site: name of the site; by default the name in the log, else that of the file or folder.
            timezone: time zone of times without one, such as Europe/Paris; by default the zone that the log itself
                shows, else UTC.
            pause_s: seconds between two polls for new data.

        Raises:
            UserError: there is no such file, it cannot be read, or there is no such time zone.
        """
        self._zone, self._pause_s = zone_of(timezone), pause_s
        self.files = LogFiles(location, self.first_time)
        name = site or self.site_of(self.files.first_head()) or Path(location).name or "site"
        super().__init__(location, name, on_skipped)

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """Return the time of the first record in a file with this beginning, Unix seconds; None if it is not such a
        log.
        """
        found = cls.first.search(head)
        return None if found is None else float(found[1])

    @classmethod
    def site_of(cls, head: bytes) -> str | None:
        """Return the site name that a log with this beginning states, if any."""
        return None

    @classmethod
    def offset_of(cls, head: bytes) -> int:
        """The site's time minus UTC (seconds), where a log that begins so shows it."""
        return 0

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Check if a file with this beginning is such a log."""
        return cls.first_time(head) is not None

    def events(self, cursor: contract.Cursor | None = None) -> Iterator[contract.Step]:
        """Yield the events of the log as it grows, without delay; with many live jobs, cursors come only periodically.

        A submission that is missing in the log before the job's start or end is marked as late.
        """
        at = None if cursor is None else contract.decode_cursor(cursor, _Cursor)
        lines = LineReader(self.files, self._on_skipped, True, self._pause_s)
        memory = self._fresh() if at is None else at.memory
        records = self.records_of(self.sites[0], memory, self._zone, self._left_out)
        last = cursor or _encoded(lines, memory)
        since = quiet = 0  # events and lines without any, since the last cursor
        is_new = cursor is None  # something was read since then, or it is the beginning
        for raw in lines.read(at.place if at is not None else None):
            self.note_read(at_end=raw is None)
            events = [] if raw is None else as_late(self._events_of(raw, records, lines))
            is_new = is_new or raw is not None
            quiet = 0 if events else quiet + 1
            since += len(events)
            if raw is None:
                is_due = is_new
            elif events:
                is_due = since * EVENTS_PER_KNOWN >= len(memory.known)
            else:
                is_due = quiet >= STEPS_WITHOUT_EVENT
            if is_due and not records.is_open:
                last, since, quiet, is_new = _encoded(lines, memory), 0, 0, False
                yield from contract.steps_of(events, last)
            else:
                yield from contract.steps_of(events, last if raw is None else None)

    def read_all(self) -> Iterator[AnyEvent]:
        """Yield the events of the log as it is now, none as late; if the location is a file, of this one alone.

        The events of one job are in order, those of different jobs in any order.
        """
        return (event for _, event in self.read_merged([self]))

    @classmethod
    def read_merged(cls, sources: Sequence[Self]) -> Iterator[tuple[Self, AnyEvent]]:
        """Yield the events of files of one log, in the order of their first records: a job may continue in a later
        file.
        """
        records: Records | None = None
        for source in sorted(sources, key=LogSource.place_in_log):
            fresh = source._fresh()
            if records is None:
                records = source.records_of(source.sites[0], fresh, source._zone, source._left_out)
                records.is_whole = True
            records.left_out = source._left_out
            records.memory.offset = fresh.offset or records.memory.offset
            for event in source._read_whole(records):
                yield source, event
        if records is not None:
            rest = records.rest()
            source.records += bool(rest)
            yield from ((source, event) for event in rest)

    def _read_whole(self, records: Records) -> Iterator[AnyEvent]:
        lines = LineReader(self.files, self._on_skipped, False)
        for raw in lines.read():
            assert raw is not None  # nothing is waited for
            yield from self._events_of(raw, records, lines)

    def _events_of(self, raw: bytes, records: Records, lines: LineReader) -> list[AnyEvent]:
        records.file = lines.path
        try:
            records.line = raw.decode("utf-8", "replace").rstrip("\r").removeprefix("\ufeff")
            events = records.take(records.line)
        except BadRecord as bad:
            events = []
            self._on_skipped(bad.skipped(str(lines.path), lines.line - records.lines_before))
        self.records += not records.is_open
        return events

    def place_in_log(self) -> tuple[float, int]:
        """Return the sort key of a log's files: the time of the first record, and the last modification."""
        return self.first_time(self.files.first_head()) or 0.0, written(str(self.files.location))

    def _fresh(self) -> LinesRead:
        return LinesRead(known={}, offset=self.offset_of(self.files.first_head()))


def _encoded(lines: LineReader, memory: LinesRead) -> contract.Cursor:
    return contract.encode_cursor(_Cursor(place=lines.place(), memory=memory))


def zone_of(timezone: str | None) -> ZoneInfo | None:
    """Return a time zone by its name.

    Raises:
        UserError: there is no such zone.
    """
    try:
        return ZoneInfo(timezone) if timezone else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput(f"there is no time zone {timezone!r}; expected one such as Europe/Paris or UTC") from None
