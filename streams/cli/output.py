"""What commands say: documents on stdout; lines and a progress bar on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any, cast

from streams.text.terminal import minute, printable

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
    sys.stdout.flush()


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
def progress(unit: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr, or a line a minute where that is no terminal; gives a function that moves it on by one.

    That function may be told which time of the log (Unix seconds) it has come to, which is shown too.
    """
    way = _Way(unit, total)
    if not sys.stderr.isatty():
        yield way.tell_now_and_then
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
    from rich.text import Text

    class Shown(ProgressColumn):
        def render(self, task: Task) -> Text:
            bar.update(task.id, completed=way.done)
            return Text(str(way))

    columns = (BarColumn(20), Shown(), TimeRemainingColumn()) if total else (Shown(),)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(unit, total=total)
        yield way.advance


class _Way:
    """How far a command is: so many of its units, and the time of the log that it has come to."""

    def __init__(self, unit: str, total: int | None) -> None:
        self.done, self._reached = 0, cast("float | None", None)
        self._unit, self._of = unit, "" if total is None else f" of {total:,}"
        self._begun = self._told = time.monotonic()

    def advance(self, reached: float | None = None) -> None:
        self.done, self._reached = self.done + 1, reached

    def tell_now_and_then(self, reached: float | None = None) -> None:
        self.advance(reached)
        if (now := time.monotonic()) - self._told >= TELL_S:
            self._told = now
            tell(str(self))

    def __str__(self) -> str:
        at = "" if self._reached is None else f", at {minute(self._reached)}"
        rate = self.done / max(time.monotonic() - self._begun, 1e-3)
        return f"{self.done:,}{self._of} {self._unit}, {rate:,.0f}/s{at}"
