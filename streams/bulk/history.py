"""A site's history: what its scheduler told before its events are followed, sent once, and where a source begins.

The jobs are `past`: all is learnt from them, and nothing is told of them. Only the last jobs are sent, and only the
last of these are predicted: what others would teach, the methods have forgotten by its end. Two kinds of history end so
that the live source goes on exactly there, by the cursor that is left for it:

- **A dump of an accounting** (`sacct`) is put in the order of time. The cursor has the time of its end, and the jobs
  that were live then, as they were told; the live source asks for what has changed since.
- **A log that is followed** is read as the live source reads it, up to its present end, and the cursor is kept on the
  way: where this is interrupted, it goes on there.

Whatever else has been recorded, such as rows of finished jobs, is put in the order of time, and leaves no cursor.
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
from streams.bulk.event_log import EventLog, Passed, Shown, silent
from streams.bulk.ingest import SortedSource
from streams.bulk.reading import read_log
from streams.errors import NotUnderstood, UserError
from streams.settings import Settings
from streams.sources.contract import OnSkipped, Source
from streams.sources.publisher import OutgoingEvent, from_source
from streams.sources.registry import format_of, options_for, source_named
from streams.sources.run import cursor_file

MARGIN = 1.2
"""More jobs are sent, and predicted, than methods know: the first of them come to a site of which little is known."""


def needed(settings: EngineSettings, site: str) -> Memory:
    """How many of a site's last jobs it is worth to send, and of these to have predicted; None: all.

    By what the methods say that they know (`Method.memory`); what earlier ones would teach, they have forgotten. Raises
    UserError: the settings name a method or a parameter that there is not here.
    """
    try:
        known = SiteMethods(site, settings).memory
    except ValueError as error:
        raise NotUnderstood(f"engine: {error}") from None
    return Memory(*(None if jobs is None else round(MARGIN * jobs) for jobs in known))


def as_past(event: AnyEvent) -> AnyEvent:
    """An event as one of a site's history."""
    return msgspec.structs.replace(event, historical=True) if isinstance(event, Submit | Requeue) else event


def marked(steps: Iterable[OutgoingEvent], predicted: int | None) -> Iterator[OutgoingEvent]:
    """Steps with events as those of a site's history, which go together, in their order and with their cursors.

    The last `predicted` submissions are predicted (None: all are), but for late ones. Those before them are marked as
    old. The steps of so many jobs are held back meanwhile.
    """
    held, submitted = deque[OutgoingEvent](), 0
    for step in steps:
        event = None if step.event is None else as_past(step.event)
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
    """The steps after all but so many submissions, and before them what there is left by then. Holds 1.8 kB a job."""
    held, submitted, passed, has_passed = deque[OutgoingEvent](), 0, Passed(), False
    for step in steps:
        held.append(step)
        submitted += isinstance(step.event, Submit)
        while submitted > jobs or (has_passed and held and not isinstance(held[0].event, Submit)):
            event, has_passed = held.popleft().event, True
            if event is not None:
                passed.add(event)
            submitted -= isinstance(event, Submit)
    begin = next((step.event.time for step in held if step.event is not None), 0.0)
    yield from map(OutgoingEvent, passed.left(begin))
    yield from held


def until_now(source: Source, steps: Iterator[OutgoingEvent]) -> Iterator[OutgoingEvent]:
    """A source's steps up to the present end of its input: two in a row that have nothing and the same cursor."""
    reached: OutgoingEvent | None = None
    for step in steps:
        if source.live and step.event is None and step == reached:
            return
        reached = step
        yield step


class OpenHistory:
    """A site's history, open as long as the stack is.

    Parameters:
        files: of one site, in any order; of a log that is followed, its one location.
        directory: where the live source keeps its cursor; None to leave none, and to read all as recorded.
        options: `NAME=VALUE` for the source, such as its time zone.
        needed: how many of the last jobs are to be sent, and predicted; None: all.
        shown: shows how far the reading is.

    Attributes:
        site: whose it is.
        events: how many are sent; None where that is not known.
        jobs: how many there are; of a log that is followed it is known with the first step, else None.
        begin: Unix time of the first; None where that is not known.
        follows: whether a live source will go on where it ends.

    Raises:
        UserError: a file cannot be read, or a live source has begun already.
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
                raise NotUnderstood(f"{kind.name} follows one log; name the folder, or a pattern in quotes")
            self._source: Source = kind(str(files[0]), site, on_skipped, **options_for(kind, options))
            self._reached, self.follows = None, True
        else:
            log, report = stack.enter_context(read_log(files, site, kind.name, on_skipped, options, shown, needed.seen))
            self._source, self._reached, self._log = SortedSource(kind.name, log), report.reached, log
            self.jobs, self._skipped = max(report.jobs, log.jobs), max(log.jobs - (needed.seen or log.jobs), 0)
            self.begin, self.events = log.begin, None if self._skipped else log.count
            self.follows = directory is not None and report.reached is not None
        if self.follows:
            assert directory is not None
            self._file = stack.enter_context(cursor_file(settings, self._source, directory))
            if self._reached is not None and self._file.cursor is not None:
                raise UserError(f"{self._file.path}: the source has begun already; its history comes before it")

    def steps(self) -> Iterator[OutgoingEvent]:
        """The events with the cursors that are to be kept behind them."""
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
