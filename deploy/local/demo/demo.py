"""Runs the demo, with a worker on a stack of its own or, where Kafka cannot be had, with engines in this process."""

import math
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
from kafka import KafkaConsumer
from rich.console import Console

from deploy.local.demo.scenario import DAY_S, Scenario, schedule, simulated_scenario, traced_scenario
from deploy.local.stack import LocalStack, Progress, StackUnavailable, fetch
from deploy.local.stack.process import Server
from deploy.local.up import ServeProcess, WorkerProcess, settings_in, startup_progress
from models.durations import counted
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.method_registry import TRIVIAL
from models.records import AnyEvent, Capacity, Outcome, Prediction, Submit
from streams.broker.admin import create_topics
from streams.client.watch import kinds
from streams.errors import UserError
from streams.offline.replay import replay, settings_for
from streams.offline.replay_scores import ReplayScores
from streams.process.early_start import compiling_early
from streams.settings import Settings, TopicSettings
from streams.sources.publisher import OutgoingEvent, publish
from streams.sources.swf import Trace
from streams.text.terminal import printable, show_accuracy, show_named, show_table, show_wrapped, span


class SiteProgress:
    """Progress of a site: its live jobs, the latest outcome, the accuracy of each method."""

    def __init__(self, method: str, measured_from: float) -> None:
        self.scores = ReplayScores()
        self.queued = 0
        self.running = 0
        self.latest: Outcome | None = None
        self._method, self._measured_from = method, measured_from

    def add(self, record: Prediction | Outcome) -> None:
        """Add a record; only records of the default method change the number of live jobs."""
        if isinstance(record, Outcome) and record.made_at >= self._measured_from:
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


class DemoProgress:
    """Progress of all sites."""

    def __init__(self, scenario: Scenario, engine: EngineSettings) -> None:
        self.scenario = scenario
        self.method = engine.method
        self.sites = {name: SiteProgress(engine.method, scenario.measured_from) for name in scenario.sites}
        self.records = 0
        self.predicted = 0
        self.time = scenario.begin

    def add(self, record: Record) -> None:
        """Add a record. The prediction of a job comes before its outcome, with rare exceptions.

        Later estimates of a pending job are not counted, because their number cannot be known in advance.
        """
        if isinstance(record, Prediction) and record.waited_s is not msgspec.UNSET:
            return
        if isinstance(record, Prediction | Outcome):
            self.records += 1
            self.sites[record.site].add(record)
        if isinstance(record, Prediction):
            self.predicted += record.method == self.method
            self.time = max(self.time, record.made_at)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the heads and rows of the progress table, one row a site.

        A row has the live jobs, the mean error of each method, and the prediction and wait of the latest job.
        """
        begin, end = self.scenario.begin, self.scenario.last
        day = f"day {int((self.time - begin) / DAY_S) + 1} of {int((end - begin) / DAY_S) + 1}"
        methods = dict.fromkeys((self.method, *TRIVIAL))
        rows = []
        for name, site in self.sites.items():
            errors = {method: 3600 * row["AAE"] for method, row in site.scores.rows().items()}
            live = [str(max(count, 0)) for count in (site.queued, site.running)]
            rows.append([name, *live, *(span(errors.get(method)) for method in methods), *_came_true(site.latest)])
        return [day, "queued", "running", *methods, "predicted", "90 %", "waited"], rows

    @property
    def is_measured(self) -> bool:
        """Return whether any site has a measured error; without one the table would hold only dashes."""
        return any(site.scores.counted.accuracy for site in self.sites.values())

    def verdict(self) -> str:
        """Compare the mean error with that of the better baseline over all sites, in words."""
        jobs, errors_h = 0, dict.fromkeys((self.method, *TRIVIAL), 0.0)
        for site in self.sites.values():
            rows = site.scores.rows()
            measured = int(rows.get(self.method, {}).get("jobs", 0))
            jobs += measured
            for method in errors_h:
                errors_h[method] += measured * rows.get(method, {}).get("AAE", 0.0)
        if not jobs:
            return "No job was measured."
        ours_s, *rules_s = (3600 * total / jobs for total in errors_h.values())
        rule_s = min(rules_s)
        errors = f"Mean error over {jobs:,} jobs: queuecast {span(ours_s)}, better baseline {span(rule_s)}"
        if not rule_s:
            return f"{errors}."
        change = 100 * (ours_s / rule_s - 1)
        return f"{errors}. The error of queuecast is {abs(change):.0f} % {'smaller' if change < 0 else 'larger'}."

    def summary(self) -> str:
        """Describe which jobs are measured."""
        first = int((self.scenario.measured_from - self.scenario.begin) / DAY_S) + 1
        text = (
            f"Measured: jobs submitted from day {first} on; earlier ones fill the history. AAE is the mean absolute "
            "error; x2 and 10min are the shares predicted within a factor of 2 or 10 min; cov 0.9 is the share that "
            "started within the bound of 90 %."
        )
        if self.predicted < self.scenario.jobs:
            text += f" Slow machine: only {self.predicted} of {self.scenario.jobs} jobs were played."
        return text


def _came_true(outcome: Outcome | None) -> list[str]:
    """Return the prediction, the bound and the wait of a job; `>` marks the wait of a cancelled job."""
    if outcome is None:
        return ["–"] * 3
    bound_s = (outcome.bounds or {}).get("0.9")
    longer = ">" if outcome.censored else ""
    return [span(outcome.predicted_wait_s), span(bound_s), longer + span(outcome.actual_wait_s)]


PAGE_STAYS_S = 120.0  # how long the page stays up at the end of an interactive demo
SHOW_EVERY_S = 5.0
MEASURES = ("AAE", "median_min", "x2", "10min", "cov_0.9", "jobs")  # columns of the final table

LEGEND = (
    "The mean error of each method (zero and median are baselines) is shown once the history is filled; predicted, "
    "90 % (the bound) and waited are those of the latest job that left the queue; > marks a cancelled job."
)

NEXT = (
    "Next: evaluate queuecast on a log of your site with `queuecast replay LOG --html report.html`, "
    "or follow docs/tutorial.md."
)

LOG_LINES = 30  # last lines of a failed server's log to show
MAX_SILENCE_S = 60.0  # seconds without a record, after all events were sent, until the demo gives up

RecordBatches = Iterator[list[Record]]
"""Batches of records; an empty batch refreshes the view."""


def demo(base: Settings, trace: Trace | None, jobs: int, seconds: float) -> None:
    """Play the simulated grid or a trace, show it live, and print the accuracy. Leaves no files or processes.

    Args:
        base: the settings in force; only those of the engine are used.
        trace: the trace to play; None for the simulated grid.
        jobs: the approximate number of jobs at all sites; of a trace, the maximum.
        seconds: how long the measured part takes.

    Raises:
        UserError: the worker or a server failed, or could not be started.
    """
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    scenario = simulated_scenario(jobs) if trace is None else traced_scenario(trace, jobs)
    engine = settings_for(base.engine, ())
    progress = DemoProgress(scenario, engine)
    with ExitStack() as early:
        early.enter_context(compiling_early(engine))
        try:
            with startup_progress() as on_progress:
                fetch(on_progress)
        except StackUnavailable as reason:
            early.close()
            console.print(f"Running without Kafka, in this process: {reason}")
            _in_process(engine, progress, seconds)
            _report(progress)
            return
        _on_stack(console, msgspec.structs.replace(base, engine=engine), progress, seconds)
        console.print("Stopped Kafka, Redis and the worker, and removed their data.")


def _in_process(engine: EngineSettings, progress: DemoProgress, seconds: float) -> None:
    with startup_progress() as on_progress:
        on_progress(Progress("compiling"))
        deque(replay(simulated_scenario(60).events, engine), maxlen=0)
    _watch(records_in_process(engine, progress, seconds), progress)


def _on_stack(console: Console, base: Settings, progress: DemoProgress, seconds: float) -> None:
    with ExitStack() as running:
        with startup_progress() as on_progress:
            stack = running.enter_context(
                LocalStack(locked=True, redis_keys=f"{base.redis.prefix}:*", on_progress=on_progress)
            )
            one = msgspec.structs.replace(base.worker, processes=1)  # enough for three sites, and sooner there
            small = msgspec.structs.replace(base, topics=TopicSettings(partitions=4), worker=one)
            settings = settings_in(stack, small)
            create_topics(settings)
            worker = running.enter_context(WorkerProcess(stack.data_dir / "worker", settings, on_progress=on_progress))
            serve = running.enter_context(ServeProcess(stack.data_dir / "serve", settings, on_progress=on_progress))
        console.print(f"The page, where sites can be compared for a job of yours: {serve.url}")
        servers = (worker, serve, stack.kafka, stack.redis)
        try:
            _watch(records_from_topics(settings, progress, seconds, servers), progress)
        except UserError:
            failed = next((server for server in servers if not server.running), worker)
            logged = failed.log.read_text(errors="replace").splitlines()
            sys.stderr.write("\n".join(map(printable, logged[-LOG_LINES:])) + "\n")
            raise
        _report(progress)
        if console.is_terminal and sys.stdin.isatty():
            console.print(
                f"The page stays at {serve.url} until you press Enter, {PAGE_STAYS_S / 60:g} minutes at most."
            )
            select.select([sys.stdin], [], [], PAGE_STAYS_S)


def _watch(batches: RecordBatches, progress: DemoProgress) -> None:
    show_named(progress.scenario.sites.items())
    show_wrapped(LEGEND)
    shown = -math.inf
    for batch in batches:
        for record in batch:
            progress.add(record)
        if progress.records and time.monotonic() > shown + SHOW_EVERY_S:
            shown = time.monotonic()
            heads, rows = progress.table()
            if progress.is_measured:
                show_table(heads, rows)
            else:
                show_wrapped(f"{heads[0]}: {counted(progress.predicted, 'job')} so far, which fill the history")


def _report(progress: DemoProgress) -> None:
    for name, site in progress.sites.items():
        rows = site.scores.rows().items()
        show_accuracy({method: {key: row[key] for key in MEASURES if key in row} for method, row in rows}, name)
    show_wrapped(progress.summary())
    sys.stdout.write("\n")
    show_wrapped(progress.verdict())
    show_wrapped(NEXT)


class Feeder(threading.Thread):
    """Sends the events to Kafka, and counts the records that have to come back."""

    def __init__(self, settings: Settings, progress: DemoProgress, seconds: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self.stop = threading.Event()
        self.error: Exception | None = None
        self.submits = 0
        self.expected = 0
        self._settings = settings
        self._progress = progress
        self._seconds = seconds

    def run(self) -> None:
        """Send all events, or until `stop` is set; an error is kept in `error`."""
        events = schedule(
            self._progress.scenario, self._seconds, lambda: self.submits - self._progress.predicted, self.stop
        )
        try:
            publish(self._settings, map(OutgoingEvent, events), self._count, lambda *_: None)
        except Exception as error:
            self.error = error

    def _count(self, event: AnyEvent) -> None:
        """Count the records to expect: one of every method for each step of a job."""
        self.submits += isinstance(event, Submit)
        if not isinstance(event, Capacity):
            self.expected += len(self._settings.engine.methods)


def records_from_topics(
    settings: Settings, progress: DemoProgress, seconds: float, servers: Iterable[Server]
) -> RecordBatches:
    """Yield the worker's records from its topics while the events are sent.

    Raises:
        UserError: a server ended, or the events cannot be sent.
    """
    decoders = {topic: msgspec.json.Decoder(kind) for topic, kind in kinds(settings, outcomes=True).items()}
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    feeder = Feeder(settings, progress, seconds)
    consumer = KafkaConsumer(*decoders, **settings.kafka.client_options(), **options)
    try:
        feeder.start()
        last_record_at = time.monotonic()
        while feeder.is_alive() or (
            progress.records < feeder.expected and time.monotonic() < last_record_at + MAX_SILENCE_S
        ):
            polled = consumer.poll(timeout_ms=100, max_records=2000)
            last_record_at = time.monotonic() if polled or feeder.is_alive() else last_record_at
            yield [decoders[one.topic].decode(one.value) for messages in polled.values() for one in messages]
            _check(feeder, servers)
        if progress.records < feeder.expected:
            raise UserError(f"the worker stopped at {progress.records} of {feeder.expected} records; see its log above")
    finally:
        feeder.stop.set()
        feeder.join(5.0)
        consumer.close()


def _check(feeder: Feeder, servers: Iterable[Server]) -> None:
    for server in servers:
        if not server.running:
            raise UserError(f"{server.name} ended; see its last log lines above")
    if feeder.error is not None:
        raise feeder.error


def records_in_process(engine: EngineSettings, progress: DemoProgress, seconds: float) -> RecordBatches:
    """Yield the records of engines in this process."""
    batch: list[Record] = []
    shown = time.monotonic()
    for record in replay(schedule(progress.scenario, seconds, lambda: 0, threading.Event()), engine):
        batch.append(record)
        if time.monotonic() > shown + 0.1:
            yield batch
            batch, shown = [], time.monotonic()
    yield batch
