"""A site's history: past events that are sent once, and the cursor at which a source continues.

The jobs are historical: the methods learn from them, and no prediction is published. Only the last jobs are sent, and
only the last of these are predicted, because the methods forget what earlier jobs teach. Two kinds of history end where
the live source continues, by the cursor that is left for it:

- **A dump of an accounting log** (`sacct`) is sorted by time. The cursor holds the time of its end and the jobs that
  were live then; the live source queries the changes since.
- **A log that is followed** is read as the live source reads it, up to its present end. The cursor is saved on the
  way, so an interrupted run resumes there.

Any other recorded input, such as rows of finished jobs, is sorted by time and leaves no cursor.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from models.engine.methods import SiteMethods
from models.engine.settings import EngineSettings
from models.method import Memory
from models.records import AnyEvent, Requeue, Submit
from streams.bulk.event_log import EventLog, Shown, silent
from streams.bulk.ingest import SortedSource
from streams.bulk.live_events import LogPrefixState
from streams.bulk.reading import read_log
from streams.errors import InvalidInput, UserError
from streams.settings import Settings
from streams.sources.contract import OnSkipped, Source
from streams.sources.live_source import cursor_file
from streams.sources.publisher import OutgoingEvent, from_source
from streams.sources.source_registry import format_of, options_for, source_named

MARGIN = 1.2
"""Factor on the methods' memory: the first jobs sent meet a site with little history, so more are needed."""


def needed(settings: EngineSettings, site: str) -> Memory:
    """Return the number of a site's last jobs to send, and of these to predict; None means all.

    It follows from the memory of the methods (`Method.memory`): they forget what earlier jobs teach.

    Raises:
        UserError: the settings name a method or a parameter that does not exist here.
    """
    try:
        known = SiteMethods(site, settings).memory
    except ValueError as error:
        raise InvalidInput(f"engine: {error}") from None
    return Memory(*(None if jobs is None else round(MARGIN * jobs) for jobs in known))


def as_historical(event: AnyEvent) -> AnyEvent:
    """Mark an event as historical."""
    return msgspec.structs.replace(event, historical=True) if isinstance(event, Submit | Requeue) else event


def marked(steps: Iterable[OutgoingEvent], predicted: int | None) -> Iterator[OutgoingEvent]:
    """Mark the events of steps as historical and as one batch, keeping their order and cursors.

    The last `predicted` submissions that are not late are predicted (None: all are); earlier ones are marked as old.
    The steps of `predicted` jobs are buffered.
    """
    held, submitted = deque[OutgoingEvent](), 0
    for step in steps:
        event = None if step.event is None else as_historical(step.event)
        held.append(step._replace(event=event, together=True))
        submitted += isinstance(event, Submit) and not event.late
        while held and (predicted is None or submitted > predicted):
            first = held.popleft()
            if predicted is not None and isinstance(first.event, Submit) and not first.event.late:
                submitted -= 1
                first = first._replace(event=msgspec.structs.replace(first.event, old=True))
            yield first
    yield from held


def last(steps: Iterable[OutgoingEvent], jobs: int) -> Iterator[OutgoingEvent]:
    """Yield the steps of the last `jobs` submissions, preceded by the state before them.

    Memory: 1.8 kB for each buffered job.
    """
    held, submitted, passed, has_passed = deque[OutgoingEvent](), 0, LogPrefixState(), False
    for step in steps:
        held.append(step)
        submitted += isinstance(step.event, Submit)
        while submitted > jobs or (has_passed and held and not isinstance(held[0].event, Submit)):
            event, has_passed = held.popleft().event, True
            if event is not None:
                passed.add(event)
            submitted -= isinstance(event, Submit)
    begin = next((step.event.time for step in held if step.event is not None), 0.0)
    yield from map(OutgoingEvent, passed.live_events(begin))
    yield from held


def until_now(source: Source, steps: Iterator[OutgoingEvent]) -> Iterator[OutgoingEvent]:
    """Yield the steps up to the present end of the input: two empty steps in a row with the same cursor."""
    reached: OutgoingEvent | None = None
    for step in steps:
        if source.live and step.event is None and step == reached:
            return
        reached = step
        yield step


class OpenHistory:
    """A site's history, open as long as the exit stack.

    Args:
        stack: closes the files.
        files: of one site, in any order; for a log that is followed, its one location.
        site: name of the site.
        settings: of the deployment.
        directory: where the live source keeps its cursor; None leaves no cursor and reads everything as recorded.
        format_name: name of the source; None detects the format.
        on_skipped: receives each skipped part of the input.
        options: `NAME=VALUE` for the source, such as its time zone.
        needed: number of last jobs to send, and to predict; None: all.
        shown: shows progress.
        heartbeat_s: add heartbeats in silences of so many seconds; 0 adds none.

    Attributes:
        site: name of the site.
        events: number of events to send; None if unavailable.
        jobs: number of jobs; for a log that is followed it is available from the first step on, else None.
        begin: Unix time of the first event; None if unavailable.
        follows: True if a live source can continue at the end.

    Raises:
        UserError: a file cannot be read, or a live source has already started.
    """

    def __init__(
        self,
        stack: ExitStack,
        files: Sequence[Path],
        site: str,
        settings: Settings,
        directory: Path | None,
        format_name: str | None,
        on_skipped: OnSkipped,
        options: Sequence[str],
        needed: Memory,
        shown: Shown = silent,
        heartbeat_s: float = 0.0,
    ) -> None:
        kind: type[Source] = source_named(format_name) if format_name else format_of(files[0])
        self.site, self._file, self._needed = site, None, needed
        self._log: EventLog | None = None
        self._skipped = 0
        self.events: int | None = None
        self.jobs: int | None = None
        self.begin: float | None = None
        if directory is not None and kind.live and not kind.of_span:
            if len(files) > 1:
                raise InvalidInput(f"{kind.name} follows one log; give the directory, or a pattern in quotes")
            self._source: Source = kind(str(files[0]), site, on_skipped, **options_for(kind, options))
            self._reached, self.follows = None, True
        else:
            read = read_log(files, site, kind.name, on_skipped, options, shown, needed.seen, heartbeat_s)
            log, report = stack.enter_context(read)
            self._source, self._reached, self._log = SortedSource(kind.name, log), report.reached, log
            self.jobs, self._skipped = max(report.jobs, log.jobs), max(log.jobs - (needed.seen or log.jobs), 0)
            self.begin, self.events = log.begin, None if self._skipped else log.count
            self.follows = directory is not None and report.reached is not None
        if self.follows:
            assert directory is not None
            self._file = stack.enter_context(cursor_file(settings, self._source, directory))
            if self._reached is not None and self._file.cursor is not None:
                raise UserError(f"{self._file.path}: the source has already started; its history must be sent before")

    def steps(self) -> Iterator[OutgoingEvent]:
        """Yield the events with the cursors to save behind them."""
        if self._log is None:
            steps = self._counted(until_now(self._source, from_source(self._source, self._file)))
            steps = steps if self._needed.seen is None else last(steps, self._needed.seen)
        else:
            steps = map(OutgoingEvent, self._log.after(self._skipped))
        yield from marked(steps, self._needed.predicted)
        yield OutgoingEvent(None, self._reached, self._file)

    def _counted(self, steps: Iterable[OutgoingEvent]) -> Iterator[OutgoingEvent]:
        jobs = 0
        for step in steps:
            jobs += isinstance(step.event, Submit)
            yield step
        self.jobs = jobs
