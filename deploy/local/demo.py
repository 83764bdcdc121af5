"""The demo: a grid of sites streamed through a local stack, its predictions beside what then happened.

The grid is simulated, or it is one trace. Where Kafka cannot be had, the engine runs in this process instead.
"""

import heapq
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any, NamedTuple, Protocol, Self

import msgspec
from kafka import KafkaConsumer
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.local.stack import LocalStack, Progress, StackUnavailable, fetch
from deploy.local.stack.process import Server
from deploy.local.up import ServeProcess, WorkerProcess, progress, settings_in
from models.engine.engine import Record
from models.engine.engine import Settings as EngineSettings
from models.records import AnyEvent, Capacity, Outcome, Prediction, Submit
from models.simulation import generate, run
from streams.client.watch import Skipped, Wanted, read
from streams.errors import UserError
from streams.offline.replay import Scores, replay, settings_for
from streams.settings import Settings, TopicSettings
from streams.sources.feed import Source, feed, paced
from streams.sources.swf import Trace
from streams.terminal import duration, printable
from streams.topics import Topics, create_topics

DAY = 86_400.0
MONDAY = 1_699_833_600
"""Unix time at which the simulated grid begins: a Monday, 0:00 UTC."""

FILL = 1 / 3
"""The share of the jobs that are sent as fast as they are taken, to fill the history. They are not measured."""

MOST_BEHIND = 300
"""Predictions that may be outstanding before the next event has to wait: the worker sets the pace where it is slow."""

LATE_S = 40.0
"""What filling the history may take, and being late after it; what has not been sent by then is left out."""

SILENCE_S = 15.0
"""Seconds without a record, once all is sent, after which none is waited for any longer."""

STAY_S = 120.0
"""How long the page is there at the end, where somebody sits before it."""

LOGGED = 30
"""Lines of its log that are shown of a server that failed."""


class SimulatedSite(NamedTuple):
    """A site of the grid; `share` is its part of all jobs, so that the sites last about equally long."""

    name: str
    cpus: int
    load: float
    policy: str
    share: float
    seed: int


GRID = (
    SimulatedSite("alder", 512, 0.75, "easy", 0.36, seed=3),
    SimulatedSite("birch", 128, 0.70, "easy", 0.41, seed=3),
    SimulatedSite("cedar", 256, 0.40, "fcfs", 0.23, seed=3),
)


class Play(msgspec.Struct, frozen=True):
    """What is played: the sites, described by name, and their events by time.

    Jobs submitted before `measured_from` fill the history; `last` is when the last one is submitted (Unix seconds).
    """

    sites: dict[str, str]
    events: list[AnyEvent]
    jobs: int
    measured_from: float
    last: float

    @classmethod
    def of(cls, sites: dict[str, str], streams: Iterable[Iterable[AnyEvent]]) -> "Play":
        """The sites' events, each site's in order, interleaved by their times."""
        events = list(heapq.merge(*streams, key=lambda event: event.time))
        submits = [event.time for event in events if isinstance(event, Submit)]
        return cls(sites, events, len(submits), submits[int(len(submits) * FILL)], submits[-1])

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return self.events[0].time

    def speed(self, seconds: float) -> float:
        """How many times faster than it happened the measured part is, if it takes so many seconds."""
        return max(self.last - self.measured_from, 1.0) / seconds


def simulated(jobs: int) -> Play:
    """The grid, with about so many jobs in all; its sites end together."""
    loads = [generate(s.seed, max(round(jobs * s.share), 1), s.cpus, s.load, start_time=MONDAY) for s in GRID]
    end = min(load[-1].submit for load in loads)
    kept = [[job for job in load if job.submit <= end] for load in loads]
    sites = {s.name: f"{s.cpus} cpus, load {s.load:.0%}, {s.policy.upper()}" for s in GRID}
    return Play.of(sites, [run(load, s.cpus, s.name, s.policy) for load, s in zip(kept, GRID, strict=True)])


def traced(trace: Trace, jobs: int) -> Play:
    """The first jobs of a trace, as one site."""
    source = Source(trace, trace.site).first(jobs)
    cpus = f"{trace.cpus} cpus, " if trace.cpus else ""
    return Play.of({source.site: f"{cpus}{trace.path.name}"}, [(event for _, event in source.events())])


def schedule(
    play: Play,
    seconds: float,
    behind: Callable[[], int],
    stop: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[AnyEvent]:
    """The events when they are due: those that fill the history at once, then what is measured within `seconds`.

    What happens after the last submission comes at once again. Ends early when `stop` is set, or far too late.

    Parameters:
        behind: how many predictions are outstanding.
    """

    def sleep(pause_s: float) -> None:
        stop.wait(pause_s)

    filling = [event for event in play.events if event.time < play.measured_from]
    measured = play.events[len(filling) :]
    due = ((min(event.time, play.last) - play.measured_from, event) for event in measured)
    limit: float | None = None
    for event in chain(filling, paced(due, play.speed(seconds), clock, sleep)):
        limit = clock() + seconds + LATE_S if limit is None else limit
        while behind() > MOST_BEHIND and not stop.is_set() and clock() < limit:
            stop.wait(0.01)
        if stop.is_set() or clock() >= limit:
            return
        yield event


class Site:
    """What has been heard of a site: its live jobs, the latest outcome, the accuracy of each method."""

    def __init__(self, method: str, measured_from: float) -> None:
        self.scores = Scores(lambda outcome: outcome.made_at >= measured_from)
        self.queued = 0
        self.running = 0
        self.latest: Outcome | None = None
        self._method = method

    def add(self, record: Prediction | Outcome) -> None:
        """Take in a record; those of the method that counts tell what becomes of the jobs."""
        if isinstance(record, Outcome):
            self.scores.add(record)
        if record.method != self._method:
            return
        if isinstance(record, Prediction):
            self.queued += 1
        elif record.actual_run_s is not None:
            self.running -= 1
        else:
            self.queued -= 1
            self.running += not record.censored
            self.latest = record


class Board:
    """What has been heard of all sites."""

    def __init__(self, play: Play, engine: EngineSettings) -> None:
        self.play = play
        self.method = engine.method
        self.sites = {name: Site(engine.method, play.measured_from) for name in play.sites}
        self.records = 0
        self.predicted = 0
        self.time = play.begin

    def add(self, record: Record | Skipped) -> None:
        """Take in a record; predictions come before what becomes of them, but for a moment."""
        if isinstance(record, Prediction | Outcome):
            self.records += 1
            self.sites[record.site].add(record)
        if isinstance(record, Prediction):
            self.predicted += record.method == self.method
            self.time = max(self.time, record.made_at)

    @property
    def measuring(self) -> bool:
        """Whether the history has been filled."""
        return self.time >= self.play.measured_from

    def errors(self, site: Site) -> dict[str, str]:
        """A site's mean errors so far, the method that counts first."""
        rows = site.scores.rows()
        return {name: duration(rows[name]["AAE"] * 3600) for name in sorted(rows, key=lambda name: name != self.method)}

    @property
    def day(self) -> str:
        """How far it is."""
        begin, end = self.play.begin, self.play.last
        return f"day {int((self.time - begin) / DAY) + 1} of {int((end - begin) / DAY) + 1}"


# How it is shown.


class View(Protocol):
    """Shows a board while it changes."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self) -> None:
        """Show how things stand, if it is time to."""


class Lines:
    """For a file or a pipe: every few seconds one line a site."""

    def __init__(self, console: Console, board: Board, every_s: float = 5.0) -> None:
        self._console = console
        self._board = board
        self._every_s = every_s
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self) -> None:
        """Print the lines, if it is time to."""
        if time.monotonic() < self._due or not self._board.records:
            return
        self._due = time.monotonic() + self._every_s
        for name, site in self._board.sites.items():
            errors = ", ".join(f"{method} {error}" for method, error in self._board.errors(site).items())
            state = f"mean error {errors}" if errors else "filling the history"
            latest = f"; job {site.latest.job} {_story(site.latest)}" if site.latest else ""
            live = f"{max(site.queued, 0)} queued, {max(site.running, 0)} running"
            self._console.print(printable(f"{self._board.day}  {name}: {live}; {state}{latest}"), soft_wrap=True)


class Screen:
    """For a terminal: a panel a site, redrawn a few times a second."""

    FRAME_S = 0.25
    ROW_S = 0.75
    """How often a further outcome is shown, out of the many: as fast as one can read."""

    def __init__(self, console: Console, board: Board, speed: float) -> None:
        self._board = board
        self._speed = speed
        room = (console.height - 3) // len(board.sites) - 3
        self._latest: dict[str, deque[Outcome]] = {name: deque(maxlen=min(max(room, 1), 12)) for name in board.sites}
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._frame_due = self._row_due = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self) -> None:
        """Draw, if it is time to."""
        now = time.monotonic()
        if now >= self._row_due:
            self._row_due = now + self.ROW_S
            for name, site in self._board.sites.items():
                if site.latest and site.latest not in self._latest[name]:
                    self._latest[name].append(site.latest)
        if now >= self._frame_due:
            self._frame_due = now + self.FRAME_S
            self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        return Group(self._head(), *(self._panel(name) for name in self._board.sites))

    def _head(self) -> Text:
        board = self._board
        state = f"{self._speed:,.0f} times real time" if board.measuring else "filling the history"
        state = state if board.records else "waiting for the worker's first prediction"
        return Text.assemble(
            ("queuecast", "bold"), f"  {board.day}, {board.predicted:,} of {board.play.jobs:,} jobs predicted, {state}"
        )

    def _panel(self, name: str) -> Panel:
        site = self._board.sites[name]
        state = Text(f"{max(site.queued, 0)} queued, {max(site.running, 0)} running", "cyan")
        errors = self._board.errors(site)
        for place, (method, error) in enumerate(errors.items()):
            state.append(
                f"{'' if place else '   mean error:'}  {method} {error}", "default" if place else "default bold"
            )
        rows = Table.grid(padding=(0, 2))
        for outcome in self._latest[name]:
            close = _within_factor_2(outcome)
            job, story = Text(f"job {printable(outcome.job)}", "dim"), Text(_story(outcome))
            rows.add_row(job, story, Text(_off(outcome), "green" if close else "red"))
        title = Text.assemble((printable(name), "bold"), f"  {printable(self._board.play.sites[name])}")
        height = (self._latest[name].maxlen or 0) + 3
        return Panel(Group(state, rows), title=title, title_align="left", height=height, box=box.ROUNDED)


def _story(outcome: Outcome) -> str:
    """What was said and what happened."""
    said = "no estimate" if outcome.predicted_wait_s is None else f"predicted {duration(outcome.predicted_wait_s)}"
    bound_s = (outcome.bounds or {}).get("0.9")
    bound = "" if bound_s is None else f" (90 % within {duration(bound_s)})"
    return f"{said}{bound}, {'given up after' if outcome.censored else 'waited'} {duration(outcome.actual_wait_s)}"


def _off(outcome: Outcome) -> str:
    return f"off by {duration(abs(outcome.error_s))}"


def _within_factor_2(outcome: Outcome) -> bool:
    """As the measure x2 has it, waits floored at a minute."""
    low, high = sorted((max(outcome.predicted_wait_s or 0.0, 60.0), max(outcome.actual_wait_s, 60.0)))
    return high <= 2 * low


# What the records come from.

Batches = Iterator[list[Record | Skipped]]
"""Records as they come, and how far that is; now and then an empty batch, so that time is seen to pass."""


class Feeder(threading.Thread):
    """Sends the events to Kafka, and counts the records that have to come back."""

    def __init__(self, settings: Settings, board: Board, seconds: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self.stop = threading.Event()
        self.error: Exception | None = None
        self.submits = 0
        self.expected = 0
        self._settings = settings
        self._board = board
        self._seconds = seconds

    def run(self) -> None:
        """Send until all is sent or `stop` is set; an error is kept in `error`."""
        events = schedule(self._board.play, self._seconds, lambda: self.submits - self._board.predicted, self.stop)
        try:
            feed(self._settings, events, self._count, lambda *_: None)
        except Exception as error:
            self.error = error

    def _count(self, event: AnyEvent) -> None:
        """Every method says something about every step of a job."""
        self.submits += isinstance(event, Submit)
        if not isinstance(event, Capacity):
            self.expected += len(self._settings.engine.methods)


def streamed(settings: Settings, board: Board, seconds: float, servers: Iterable[Server]) -> Batches:
    """What the worker says to the events, from its topics.

    Raises:
        UserError: a server has ended, or the events could not be sent.
    """
    topics = Topics(settings.kafka.prefix)
    kinds: dict[str, type[Prediction] | type[Outcome]] = {topics.predictions: Prediction, topics.outcomes: Outcome}
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    feeder = Feeder(settings, board, seconds)
    consumer = KafkaConsumer(*kinds, **settings.kafka.client_options(), **options)
    try:
        feeder.start()
        heard = time.monotonic()
        while feeder.is_alive() or (board.records < feeder.expected and time.monotonic() < heard + SILENCE_S):
            polled = consumer.poll(timeout_ms=100, max_records=2000)
            heard = time.monotonic() if polled or feeder.is_alive() else heard
            yield [record for record, *_ in read(chain.from_iterable(polled.values()), kinds, Wanted())]
            _check(feeder, servers)
        if board.records < feeder.expected:
            raise UserError(f"the worker fell silent at {board.records} of {feeder.expected} records; above is its log")
    finally:
        feeder.stop.set()
        feeder.join(5.0)
        consumer.close()


def _check(feeder: Feeder, servers: Iterable[Server]) -> None:
    for server in servers:
        if not server.running:
            raise UserError(f"{server.name} has ended; above is what it logged last")
    if feeder.error is not None:
        raise feeder.error


def applied(engine: EngineSettings, board: Board, seconds: float) -> Batches:
    """What engines in this process say to the events."""
    batch: list[Record | Skipped] = []
    shown = time.monotonic()
    for record in replay(schedule(board.play, seconds, lambda: 0, threading.Event()), engine):
        batch.append(record)
        if time.monotonic() > shown + 0.1:
            yield batch
            batch, shown = [], time.monotonic()
    yield batch


# The whole of it.


def demo(base: Settings, trace: Trace | None, jobs: int, seconds: float) -> None:
    """Play the grid, or a trace, show it live, and print how good the predictions were; leaves nothing behind.

    Parameters:
        base: the settings in force; what they say of the engine counts.
        jobs: how many there are in all, at most.
        seconds: how long the measured part takes.

    Raises:
        UserError: the worker or a server failed.
        StackError: a server could not be started.
    """
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    play = simulated(jobs) if trace is None else traced(trace, jobs)
    engine = settings_for(base.engine, ())
    board = Board(play, engine)
    view: View = Screen(console, board, play.speed(seconds)) if console.is_terminal else Lines(console, board)
    try:
        with progress() as on_progress:
            fetch(on_progress)
    except StackUnavailable as reason:
        console.print(f"Without Kafka, in this process alone: {reason}")
        _in_process(engine, board, view, seconds)
        report(console, board)
    else:
        _on_stack(console, msgspec.structs.replace(base, engine=engine), board, view, seconds)
        console.print("Kafka, Redis and the worker are stopped, and their data removed.")


def _in_process(engine: EngineSettings, board: Board, view: View, seconds: float) -> None:
    with progress() as on_progress:
        on_progress(Progress("compiling"))
        deque(replay(simulated(60).events, engine), maxlen=0)
    _watch(applied(engine, board, seconds), board, view)


def _on_stack(console: Console, base: Settings, board: Board, view: View, seconds: float) -> None:
    with ExitStack() as running:
        with progress() as on_progress:
            stack = running.enter_context(LocalStack(on_progress=on_progress))
            settings = settings_in(stack, msgspec.structs.replace(base, topics=TopicSettings(partitions=4)))
            create_topics(settings)
            worker = running.enter_context(WorkerProcess(stack.data_dir / "worker", settings, on_progress=on_progress))
            serve = running.enter_context(ServeProcess(stack.data_dir / "serve", settings, on_progress=on_progress))
        console.print(f"The page, where sites can be compared for a job of yours: {serve.url}")
        servers = (worker, serve, stack.kafka, stack.redis)
        try:
            _watch(streamed(settings, board, seconds, servers), board, view)
        except UserError:
            failed = next((server for server in servers if not server.running), worker)
            logged = failed.log.read_text(errors="replace").splitlines()
            sys.stderr.write("\n".join(map(printable, logged[-LOGGED:])) + "\n")
            raise
        report(console, board)
        if console.is_terminal and sys.stdin.isatty():
            console.print(f"The page stays at {serve.url} until you press Enter, {STAY_S / 60:g} minutes at most.")
            select.select([sys.stdin], [], [], STAY_S)


def _watch(batches: Batches, board: Board, view: View) -> None:
    with view:
        for batch in batches:
            for record in batch:
                board.add(record)
            view.show()


# The table at the end.


class Figure(NamedTuple):
    """A measure in the table: the head of its column, its decimals, and whether more of it is better."""

    head: str
    decimals: int
    more: bool = False


FIGURES = {
    "AAE": Figure("AAE h", 3),
    "median_min": Figure("median min", 1),
    "PPE600": Figure("PPE600", 3),
    "x2": Figure("x2", 3, more=True),
    "10min": Figure("10min", 3, more=True),
}

LEGEND = (
    "AAE, median: mean and median error of the predicted wait. PPE600: that error as a share of the response time, at "
    "least 600 s. x2, 10min: share of jobs predicted within a factor of 2 (waits floored at 60 s) and within 10 "
    "minutes. in 90 %: share of jobs that waited no longer than the 90 % bound, where a method gives one."
)


def report(console: Console, board: Board) -> None:
    """Print the measures of each method at each site, and where the method that counts won and lost."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", max_width=20, overflow="fold")
    for head in ("jobs", *(figure.head for figure in FIGURES.values()), "in 90 %"):
        table.add_column(Text(head), justify="right", no_wrap=True)
    verdicts: dict[str, list[str]] = {"+": [], "=": [], "-": []}
    for name, site in board.sites.items():
        rows = site.scores.rows()
        marks = compared(rows, board.method)
        for measure, mark in marks.items():
            verdicts[mark].append(f"{name} {FIGURES[measure].head}")
        table.add_row(Text(printable(name), "bold"))
        for method, row in rows.items():
            ours = method == board.method
            table.add_row(f"  {method}", *_cells(row, marks if ours else {}), style="bold" if ours else "")
        table.add_section()
    console.print(table)
    console.print(_summary(board, verdicts))


def _cells(row: Mapping[str, float], marks: Mapping[str, str]) -> Iterator[str]:
    yield f"{row['jobs']:d}"
    for name, figure in FIGURES.items():
        yield f"{row[name]:.{figure.decimals}f}{marks.get(name, ' ')}"
    yield f"{row['cov_0.9']:.3f}" if "cov_0.9" in row else ""


def compared(rows: Mapping[str, Mapping[str, float]], method: str) -> dict[str, str]:
    """A method's figures against the best of the others', as printed: + better, = even, - worse."""
    others = [row for name, row in rows.items() if name != method]
    if method not in rows or not others:
        return {}
    marks = {}
    for name, (_, decimals, more) in FIGURES.items():
        ours, *theirs = (round(row[name] if more else -row[name], decimals) for row in (rows[method], *others))
        marks[name] = "=" if ours == max(theirs) else "+" if ours > max(theirs) else "-"
    return marks


def _summary(board: Board, verdicts: Mapping[str, list[str]]) -> str:
    first = int((board.play.measured_from - board.play.begin) / DAY) + 1
    won, even, lost = (verdicts[mark] for mark in "+=-")
    total = len(won) + len(even) + len(lost)
    measured = f"Measured: jobs submitted from day {first} on; those before filled the history."
    if board.predicted < board.play.jobs:
        measured += f" This machine was slow, so {board.predicted} of {board.play.jobs} jobs were played."
    lines = [
        measured,
        LEGEND,
        f"{board.method} against the best of the others (+ better, = even, - worse): "
        f"of {total} figures {len(won)} won, {len(even)} even, {len(lost)} lost{':' if lost else '.'}",
    ]
    if lost:
        lines.append("lost: " + ", ".join(map(printable, lost)))
    return "\n".join(lines)
