"""A log that was read whole, as a source: its events in the order of time, each with a cursor."""

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Self

import msgspec
from msgspec import Meta

from models.records import AnyEvent, Capacity, JobEvent, Start, Submit
from streams.bulk.event_log import EventLog
from streams.errors import UserError
from streams.sources.contract import (
    Cursor,
    CursorError,
    OnSkipped,
    Recorded,
    Step,
    decode_cursor,
    encode_cursor,
    refuse,
)


class _Place(msgspec.Struct):
    """Where to go on: after so many events of the log with this fingerprint."""

    log: str
    events: Annotated[int, Meta(ge=0)]


class SortedSource(Recorded):
    """The events of one site's log.

    Parameters:
        name: the format that it was read as.
        log: it lasts as long as its file does.
        jobs: the first jobs alone, and what became of them.
    """

    def __init__(self, name: str, log: EventLog, jobs: int | None = None) -> None:
        self.name = name  # type: ignore[misc]  # of its cursors: those of another format are not this one's
        self.sites = (log.site,)
        self._log, self._jobs = log, jobs
        self._names = None if jobs is None else frozenset(islice(_submitted(log), jobs))

    @classmethod
    def open(cls, location: str, site: str | None = None, on_skipped: OnSkipped = refuse) -> Self:
        """A log is read by `streams.bulk.reading.read_log`, which keeps its file.

        Raises:
            UserError: always.
        """
        raise UserError(f"{location}: a log is read by `read_log`")

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return self._log.begin

    @property
    def guessed(self) -> Capacity | None:
        """The machine, where the log does not say it: what was in use."""
        return self._log.capacity.get(self._log.site)

    @property
    def count(self) -> int:
        """How many events it has."""
        return self._log.count if self._names is None else sum(1 for _ in self._events(0))

    def first(self, jobs: int) -> Self:
        """The source with its first jobs alone, and what became of them."""
        return type(self)(self.name, self._log, jobs)

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """The events in time order, each with its cursor, which counts those before.

        Raises:
            CursorError: the cursor is of another log, or of another part of this one.
        """
        mine = f"{self._log.fingerprint}{'' if self._jobs is None else f' {self._jobs}'}"
        place = _Place(mine, 0) if cursor is None else decode_cursor(cursor, _Place)
        if place.log != mine:
            raise CursorError("the cursor is of another log, or of another part of this one")
        for number, event in enumerate(self._events(place.events), place.events + 1):
            yield event, encode_cursor(_Place(mine, number))

    def _events(self, passed: int) -> Iterator[AnyEvent]:
        if self._names is None:
            return self._log.events(passed)
        return islice(filter(self._is_chosen, self._log.events()), passed, None)

    def _is_chosen(self, event: AnyEvent) -> bool:
        """Whether it is of one of the first jobs, a task of such an array, or the machine's."""
        assert self._names is not None
        if not isinstance(event, JobEvent):
            return True
        return event.job in self._names or (isinstance(event, Start) and event.array in self._names)


def _submitted(log: EventLog) -> Iterator[str]:
    return (event.job for event in log.events() if isinstance(event, Submit))
