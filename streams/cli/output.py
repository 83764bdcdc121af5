"""What commands say: documents on stdout; lines and a progress bar on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from streams.text.terminal import printable

SILENCE_S = 4.0
"""After how many seconds a command that waits for others says that nothing has come yet."""

TELL_S = 60.0
"""Seconds between two lines of how far a long command is."""


def tell(message: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(printable(message) + "\n")


def print_json(document: Any) -> None:
    """Write a document to stdout as JSON, in one line."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")


@contextmanager
def told_if_silent(message: str, seconds: float = SILENCE_S) -> Iterator[Callable[[], None]]:
    """Write a line to stderr if nothing has come for so long; gives a function that says that something has."""
    timer = Timer(seconds, tell, (message,))
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()


@contextmanager
def progress(unit: str, total: int | None) -> Iterator[Callable[[], None]]:
    """Show a bar on stderr, or a line a minute where that is no terminal; gives a function that moves it on by one."""
    if not sys.stderr.isatty():
        yield _told_now_and_then(unit, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{unit}, {task.speed or 0:,.0f}/s")

    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, done = bar.add_task(unit, total=total), 0
        step = 200 if total is None or total > 1000 else 1

        def advance() -> None:
            nonlocal done
            done += 1
            if done % step == 0:
                bar.update(task, completed=done)

        yield advance


def _told_now_and_then(unit: str, total: int | None) -> Callable[[], None]:
    begun = told = time.monotonic()
    done = 0

    def advance() -> None:
        nonlocal told, done
        done += 1
        if (now := time.monotonic()) - told >= TELL_S:
            told = now
            of = "" if total is None else f" of {total:,}"
            tell(f"{done:,}{of} {unit}, {done / (now - begun):,.0f}/s")

    return advance
