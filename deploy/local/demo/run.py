"""Runs the demo, on a stack of its own or, where Kafka cannot be had, in this process."""

import select
import sys
from collections import deque
from contextlib import ExitStack

import msgspec
from rich.console import Console

from deploy.local.demo.progress import Board
from deploy.local.demo.records import Batches, applied, streamed
from deploy.local.demo.report import report
from deploy.local.demo.scenario import simulated, traced
from deploy.local.demo.view import Lines, Screen, View
from deploy.local.stack import LocalStack, Progress, StackUnavailable, fetch
from deploy.local.up import ServeProcess, WorkerProcess, progress, settings_in
from models.engine.engine import Settings as EngineSettings
from streams.errors import UserError
from streams.offline.replay import replay, settings_for
from streams.settings import Settings, TopicSettings
from streams.sources.swf import Trace
from streams.terminal import printable
from streams.topics import create_topics

STAY_S = 120.0
"""How long the page is there at the end, where somebody sits before it."""

LOGGED = 30
"""Lines of its log that are shown of a server that failed."""


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
