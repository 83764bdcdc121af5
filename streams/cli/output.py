"""What commands say: documents on stdout; lines and a progress bar on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, Timer
from typing import Any

from models.durations import duration
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
def progress(
    unit: str,
    total: int | None,
    share: Callable[[], float | None] = lambda: None,
    left: Callable[[], float | None] | None = None,
) -> Iterator[Callable[..., None]]:
    """Show a bar on stderr, or a line a minute where that is no terminal; gives a function that moves it on by one.

    That function may be told which time (Unix seconds) it has come to, and of which of several logs, which is shown
    too. Where the total is not known, `share` tells how much of the work is done. Where the time left does not follow
    from that, `left` does.
    """
    way = _Way(unit, total, share, left)
    if not sys.stderr.isatty():
        done = Event()
        Thread(target=way.tell_until, args=(done,), daemon=True).start()
        try:
            yield way.advance
        finally:
            done.set()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.text import Text

    class Shown(ProgressColumn):
        def render(self, task: Task) -> Text:
            bar.update(task.id, completed=way.done)
            return Text(str(way))

    columns = (BarColumn(20), Shown()) if total else (Shown(),)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        bar.add_task(unit, total=total)
        yield way.advance


class _Way:
    """How far a command is: so many of its units, the time of the log that it has come to, and how long it still takes.

    The last from what share of the work took how long so far, where nobody tells it.
    """

    def __init__(
        self,
        unit: str,
        total: int | None,
        share: Callable[[], float | None],
        left: Callable[[], float | None] | None = None,
    ) -> None:
        self.done = 0
        self._reached: float | None = None
        self._log: str | None = None
        self._unit, self._total, self._share, self._left = unit, total, share, left
        self._begun = time.monotonic()

    def advance(self, reached: float | None = None, log: str | None = None) -> None:
        self.done, self._reached, self._log = self.done + 1, reached, log

    def tell_until(self, done: Event) -> None:
        while not done.wait(TELL_S):
            tell(str(self))

    def __str__(self) -> str:
        took_s = max(time.monotonic() - self._begun, 1e-3)
        share = self.done / self._total if self._total else self._share()
        of = f" of {self._total:,}" if self._total else ""
        if share and not self._total and not self.done:  # such as rows, which are put together before they are told
            parts = [f"{share:.0%} of the reading"]
        else:
            parts = [f"{self.done:,}{of} {self._unit}", f"{self.done / took_s:,.0f}/s"]
        where = f" of {self._log}" if self._log else ""
        parts += [] if self._reached is None else [f"at {minute(self._reached)}{where}"]
        left_s = None if self._left is None else self._left()
        if share and share < 1:
            parts += [] if self._total or not self.done else [f"{share:.0%} of the reading"]
            left_s = took_s * (1 / share - 1) if left_s is None else left_s
        parts += [] if left_s is None else [f"{duration(left_s)} left"]
        return ", ".join(parts)
