"""Publish traces and other logs to the events topic: several sites in parallel, at real-time speed or faster."""

import heapq
import math
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from models.records import AnyEvent, Capacity
from streams.bulk.event_log import EventLog
from streams.errors import InvalidInput
from streams.settings import Settings
from streams.sources.contract import Cursor, Source, Step, counted
from streams.sources.cursors import CursorFile
from streams.sources.live_source import cursor_file
from streams.sources.publisher import OutgoingEvent, from_source


class SortedSource(Source):
    """The events of one site's log while `read_log` keeps its file; `name` is the format that was read."""

    def __init__(self, name: str, log: EventLog) -> None:
        self.name = name  # type: ignore[misc]  # of its cursors: those of another format are not this one's
        self.site, self._log = log.site, log
        self.sites = (log.site,)

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return self._log.begin

    @property
    def seconds(self) -> float:
        """Seconds from the first event to the last."""
        return self._log.surveys[self.site].end - self.begin

    @property
    def guessed(self) -> Capacity | None:
        """The inferred machine if the log does not state its size; it is the first of the events."""
        return self._log.capacity.get(self.site)

    @property
    def count(self) -> int:
        """Number of events."""
        return self._log.count

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """Yield the events in time order, each with a cursor that counts the events so far."""
        return counted(self._log.events, self._log.fingerprint, self.site, cursor)


T = TypeVar("T")


def timeline(
    sources: Iterable[SortedSource], files: Sequence[CursorFile] = ()
) -> Iterator[tuple[float, OutgoingEvent]]:
    """The events of all sources, from the places in their files if any, by the seconds since each one's beginning."""
    return heapq.merge(*(_dated(source, file) for source, file in zip_longest(sources, files)), key=itemgetter(0))


def _dated(source: SortedSource, file: CursorFile | None) -> Iterator[tuple[float, OutgoingEvent]]:
    begin = source.begin
    for outgoing in from_source(source, file):
        assert outgoing.event is not None  # its input is all there
        yield outgoing.event.time - begin, outgoing


class PacedIterator(Iterator[T]):
    """Yield steps when they are due, at `speed` times the pace of the log; infinity means no pauses.

    The first step is due immediately, whether it is the beginning or the point of a resumed run. `seconds` is the time
    of the last step since the beginning.
    """

    def __init__(
        self,
        steps: Iterable[tuple[float, T]],
        speed: float,
        seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._steps, self._speed, self._seconds = iter(steps), speed, seconds
        self._clock, self._sleep = clock, sleep
        self._began = self._first = math.nan
        self._at = 0.0

    def __next__(self) -> T:
        self._at, step = next(self._steps)
        if math.isnan(self._first):
            self._began, self._first = self._clock(), self._at
        ahead_s = (self._at - self._first) / self._speed - (self._clock() - self._began)
        if ahead_s > 0:
            self._sleep(ahead_s)
        return step

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the last step is due; None where there is no waiting."""
        return max(self._seconds - self._at, 0.0) / self._speed if math.isfinite(self._speed) else None


def first_seconds(steps: Iterable[tuple[float, T]], seconds: float) -> Iterator[tuple[float, T]]:
    """Yield the steps of the first `seconds`."""
    for since_s, step in steps:
        if since_s > seconds:
            return
        yield since_s, step


def without(
    steps: Iterable[tuple[float, OutgoingEvent]], events: Container[AnyEvent | None]
) -> Iterator[tuple[float, OutgoingEvent]]:
    """Yield the steps without those of the given events."""
    return ((since_s, step) for since_s, step in steps if step.event is None or step.event not in events)


@contextmanager
def cursor_files(settings: Settings, sources: Sequence[SortedSource], directory: Path) -> Iterator[list[CursorFile]]:
    """The files that keep the sources' cursors, open for this process. Raises as `cursor_file` and `CursorFile`."""
    with ExitStack() as stack:
        yield [stack.enter_context(cursor_file(settings, source, directory)) for source in sources]


def names_of(usual: Sequence[str], sites: Sequence[str]) -> list[str]:
    """Return the site names: the given ones, one for each input in order, else the default ones.

    Raises:
        UserError: the number of names differs from the number of inputs, or two names are equal.
    """
    names = list(sites) or list(usual)
    if len(names) != len(usual):
        raise InvalidInput(f"{len(names)} sites for {len(usual)} traces; name one for each, in their order, or none")
    if twice := {name for name in names if names.count(name) > 1}:
        raise InvalidInput(f"two traces for site {', '.join(sorted(twice))}; name the sites with --site")
    return names
