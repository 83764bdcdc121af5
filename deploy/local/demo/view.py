"""How the demo is shown while it runs: panels in a terminal, else lines."""

import time
from collections import deque
from typing import Protocol, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from deploy.local.demo.progress import DemoProgress
from models.durations import duration
from models.records import Outcome
from streams.text.terminal import printable


class DemoView(Protocol):
    """Shows the progress while it changes."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self) -> None:
        """Show the progress, if it is time to."""


class LineView:
    """For a file or a pipe: every few seconds one line a site."""

    def __init__(self, console: Console, progress: DemoProgress, every_s: float = 5.0) -> None:
        self._console = console
        self._progress = progress
        self._every_s = every_s
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self) -> None:
        """Print the lines, if it is time to."""
        if time.monotonic() < self._due or not self._progress.records:
            return
        self._due = time.monotonic() + self._every_s
        for name, site in self._progress.sites.items():
            errors = ", ".join(f"{method} {error}" for method, error in self._progress.errors(site).items())
            state = f"mean error {errors}" if errors else "filling the history"
            latest = f"; job {site.latest.job} {_prediction_and_wait(site.latest)}" if site.latest else ""
            live = f"{max(site.queued, 0)} queued, {max(site.running, 0)} running"
            self._console.print(printable(f"{self._progress.day}  {name}: {live}; {state}{latest}"), soft_wrap=True)


class PanelView:
    """For a terminal: a panel a site, redrawn a few times a second."""

    FRAME_S = 0.25
    ROW_S = 0.75
    """How often a further outcome is shown, out of the many: as fast as one can read."""

    def __init__(self, console: Console, progress: DemoProgress, speed: float) -> None:
        self._progress = progress
        self._speed = speed
        room = (console.height - 3) // len(progress.sites) - 3
        self._latest: dict[str, deque[Outcome]] = {name: deque(maxlen=min(max(room, 1), 12)) for name in progress.sites}
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
            for name, site in self._progress.sites.items():
                if site.latest and site.latest not in self._latest[name]:
                    self._latest[name].append(site.latest)
        if now >= self._frame_due:
            self._frame_due = now + self.FRAME_S
            self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        return Group(self._head(), *(self._panel(name) for name in self._progress.sites))

    def _head(self) -> Text:
        progress = self._progress
        state = f"{self._speed:,.0f} times real time" if progress.measuring else "filling the history"
        state = state if progress.records else "waiting for the worker's first prediction"
        return Text.assemble(
            ("queuecast", "bold"),
            f"  {progress.day}, {progress.predicted:,} of {progress.scenario.jobs:,} jobs predicted, {state}",
        )

    def _panel(self, name: str) -> Panel:
        site = self._progress.sites[name]
        state = Text(f"{max(site.queued, 0)} queued, {max(site.running, 0)} running", "cyan")
        errors = self._progress.errors(site)
        for place, (method, error) in enumerate(errors.items()):
            state.append(
                f"{'' if place else '   mean error:'}  {method} {error}", "default" if place else "default bold"
            )
        rows = Table.grid(padding=(0, 2))
        for outcome in self._latest[name]:
            close = _within_factor_2(outcome)
            job, story = Text(f"job {printable(outcome.job)}", "dim"), Text(_prediction_and_wait(outcome))
            rows.add_row(job, story, Text(_error_text(outcome), "green" if close else "red"))
        title = Text.assemble((printable(name), "bold"), f"  {printable(self._progress.scenario.sites[name])}")
        height = (self._latest[name].maxlen or 0) + 3
        return Panel(Group(state, rows), title=title, title_align="left", height=height, box=box.ROUNDED)


def _prediction_and_wait(outcome: Outcome) -> str:
    """What was predicted and what happened."""
    said = "no estimate" if outcome.predicted_wait_s is None else f"predicted {duration(outcome.predicted_wait_s)}"
    bound_s = (outcome.bounds or {}).get("0.9")
    bound = "" if bound_s is None else f" (90 % within {duration(bound_s)})"
    return f"{said}{bound}, {'given up after' if outcome.censored else 'waited'} {duration(outcome.actual_wait_s)}"


def _error_text(outcome: Outcome) -> str:
    return f"off by {duration(abs(outcome.error_s))}"


def _within_factor_2(outcome: Outcome) -> bool:
    """As the measure x2 has it, waits floored at a minute."""
    low, high = sorted((max(outcome.predicted_wait_s or 0.0, 60.0), max(outcome.actual_wait_s, 60.0)))
    return high <= 2 * low
