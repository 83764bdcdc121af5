"""Runs the demo, on a stack of its own or, where Kafka cannot be had, in this process."""

import math
import select
import sys
import time
from collections import deque
from contextlib import ExitStack

import msgspec
from rich.console import Console

from deploy.local.demo.progress import DemoProgress
from deploy.local.demo.records import RecordBatches, records_from_topics, records_in_process
from deploy.local.demo.scenario import simulated_scenario, traced_scenario
from deploy.local.stack import LocalStack, Progress, StackUnavailable, fetch
from deploy.local.up import ServeProcess, WorkerProcess, settings_in, startup_progress
from models.engine.settings import EngineSettings
from streams.broker.admin import create_topics
from streams.errors import UserError
from streams.offline.replay import replay, settings_for
from streams.settings import Settings, TopicSettings
from streams.sources.swf import Trace
from streams.text.terminal import printable, show_accuracy, show_named, show_table, show_wrapped

PAGE_STAYS_S = 120.0
"""How long the page is there at the end, where somebody sits before it."""

SHOW_EVERY_S = 5.0

MEASURES = ("AAE", "median_min", "x2", "10min", "cov_0.9", "jobs")
"""What the table at the end has of each method."""

LEGEND = (
    "The mean error of each method (zero and median are trivial rules) is shown once the history is filled; predicted, "
    "90 % (its bound) and waited are of the latest job that left the queue, > where it was given up."
)

LOG_LINES = 30
"""Lines that are shown of a failed server's log."""


def demo(base: Settings, trace: Trace | None, jobs: int, seconds: float) -> None:
    """Play the grid, or a trace, show it live, and print how good the predictions were; leaves nothing behind.

    Parameters:
        base: the settings in force; only those of the engine are used.
        jobs: about how many jobs all sites have; of a trace, at most.
        seconds: how long the measured part takes.

    Raises:
        UserError: the worker or a server failed.
        StackError: a server could not be started.
    """
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    scenario = simulated_scenario(jobs) if trace is None else traced_scenario(trace, jobs)
    engine = settings_for(base.engine, ())
    progress = DemoProgress(scenario, engine)
    try:
        with startup_progress() as on_progress:
            fetch(on_progress)
    except StackUnavailable as reason:
        console.print(f"Without Kafka, in this process alone: {reason}")
        _in_process(engine, progress, seconds)
        _report(progress)
    else:
        _on_stack(console, msgspec.structs.replace(base, engine=engine), progress, seconds)
        console.print("Kafka, Redis and the worker are stopped, and their data removed.")


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
            show_table(*progress.table())


def _report(progress: DemoProgress) -> None:
    """Print the measures of each method at each site, the trivial rules beside."""
    for name, site in progress.sites.items():
        rows = site.scores.rows().items()
        show_accuracy({method: {key: row[key] for key in MEASURES if key in row} for method, row in rows}, name)
    show_wrapped(progress.summary())
