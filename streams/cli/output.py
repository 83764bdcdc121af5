"""What commands say: documents on stdout; lines and a progress bar on stderr."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

from streams.text.terminal import printable

SILENCE_S = 4.0
"""After how many seconds a command that waits for others says that nothing has come yet."""


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
    """Show a bar on stderr, where that is a terminal; gives a function that moves it on by one."""
    if not sys.stderr.isatty():
        yield lambda: None
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
