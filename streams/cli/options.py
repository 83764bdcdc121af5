"""Shared parts of the commands: option types, and output of documents on stdout and lines on stderr."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event, Thread, Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.durations import duration
from streams.errors import UserError, in_words, place_and_problem
from streams.text.terminal import minute, printable

if TYPE_CHECKING:
    from streams.settings import Settings
    from streams.sources.swf import Trace

SILENCE_S = 4.0  # seconds without data after which a waiting command prints a notice
PROGRESS_S = 60.0  # seconds between two lines of how far a long command is


def opt(description: str, *words: str, **more: Any) -> Any:
    """An option: what it is, its names where these are not its parameter's, and what stands for its value in the help;
    more as `typer.Option` takes it.
    """
    names = [word for word in words if word.startswith("--")]
    return typer.Option(
        *names, metavar=next((word for word in words if word not in names), None), help=description, **more
    )


def flag(name: str, description: str, **more: Any) -> Any:
    """An option that is given or not."""
    return typer.Option(name, help=description, **more)


def arg(description: str, metavar: str | None = None, **more: Any) -> Any:
    """An argument, as an option."""
    return typer.Argument(metavar=metavar, help=description, **more)


def warn(message: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(printable(message) + "\n")


def print_json(document: Any) -> None:
    """Write a document to stdout as JSON, in one line."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
    sys.stdout.flush()


@contextmanager
def warned_if_silent(message: str | Callable[[], str], seconds: float = SILENCE_S) -> Iterator[Callable[[], None]]:
    """Write a line to stderr after a period without progress; yield a function that records progress.

    A function as `message` runs in a thread of its own, and only if the line is needed.
    """
    timer = Timer(seconds, lambda: warn(message if isinstance(message, str) else message()))
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
    remaining: Callable[[], float | None] | None = None,
) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr, or a line a minute without a terminal; yield a function that advances it by one.

    That function accepts the time reached (Unix seconds) and the name of the log, which are shown too.

    Args:
        unit: what is counted.
        total: the total count; None if it is not known in advance.
        share: returns the share of the work that is done, if there is no total.
        remaining: returns the seconds left, if they do not follow from the share.
    """
    way = _Progress(unit, total, share, remaining)
    if not sys.stderr.isatty():
        done = Event()
        Thread(target=way.show_until, args=(done,), daemon=True).start()
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


class _Progress:
    """Progress of a command: the units done, the log time reached, and the time left.

    Without `remaining`, the time left is extrapolated from the share of the work and the time it took.
    """

    def __init__(
        self,
        unit: str,
        total: int | None,
        share: Callable[[], float | None],
        remaining: Callable[[], float | None] | None = None,
    ) -> None:
        self.done = 0
        self._log_time: float | None = None
        self._log: str | None = None
        self._unit, self._total, self._share, self._remaining = unit, total, share, remaining
        self._started = time.monotonic()

    def advance(self, reached: float | None = None, log: str | None = None) -> None:
        self.done, self._log_time, self._log = self.done + 1, reached, log

    def show_until(self, done: Event) -> None:
        while not done.wait(PROGRESS_S):
            warn(str(self))

    def __str__(self) -> str:
        took_s = max(time.monotonic() - self._started, 1e-3)
        # The total is counted beforehand: what is sent or begins twice exceeds it.
        done = min(self.done, self._total) if self._total else self.done
        share = done / self._total if self._total else self._share()
        of = f" of {self._total:,}" if self._total else ""
        if share and not self._total and not self.done:  # such as rows, which are merged before they become events
            parts = [f"{share:.0%} of the reading"]
        else:
            parts = [f"{done:,}{of} {self._unit}", f"{self.done / took_s:,.0f}/s"]
        where = f" of {self._log}" if self._log else ""
        parts += [] if self._log_time is None else [f"at {minute(self._log_time)}{where}"]
        remaining_s = None if self._remaining is None else self._remaining()
        if share and share < 1:
            parts += [] if self._total or not self.done else [f"{share:.0%} of the reading"]
            remaining_s = took_s * (1 / share - 1) if remaining_s is None else remaining_s
        if remaining_s is not None:
            parts.append(f"{duration(remaining_s)} left" if remaining_s >= 1 else "nearly done")
        return ", ".join(parts)


Range = tuple[int, int]  # the first and the last, inclusive
TraceFile = Annotated[Path, arg("Standard Workload Format, plain or gzip.", "TRACE")]


def settings_of(context: typer.Context, url: str | None = None) -> "Settings":
    """Return the settings in force; by default those of the `queuecast up` on this machine.

    Args:
        url: the HTTP service to query, if any. The token of the local `up` is only for its own service.

    Raises:
        UserError: the settings cannot be read, or are wrong.
    """
    from streams.running import config_here, serves
    from streams.settings import load_settings, settings_file

    named, found = settings_file(context.obj), config_here(context.obj)
    settings = load_settings(found)
    if named is None and found is not None and url and not serves(settings.serve, url):
        return load_settings()
    context.obj = found
    return settings


def settings_without_servers(context: typer.Context) -> "Settings":
    """Return the settings for a command that needs no server; a running `queuecast up` does not change them.

    Raises:
        UserError: the settings cannot be read, or are wrong.
    """
    from streams.settings import load_settings

    return load_settings(context.obj)


def changed(settings: "Settings", section: str, **given: Any) -> "Settings":
    """Return the settings with the fields of a section that the command line gives.

    Raises:
        typer.BadParameter: a value is out of range.
    """
    from msgspec import ValidationError, convert
    from msgspec.structs import asdict, replace

    before, own = getattr(settings, section), {name: value for name, value in given.items() if value is not None}
    try:
        return replace(settings, **{section: convert(asdict(before) | own, type(before))})
    except ValidationError as error:
        place, problem = place_and_problem(error)
        raise typer.BadParameter(f"--{place.replace('_', '-')}: {in_words(problem)}.") from None


def named(given: Any) -> Any:
    """Validate the name or names of an option; used as its callback.

    Raises:
        typer.BadParameter: a name is invalid.
    """
    if any(not 1 <= len(name) <= 256 for name in ([given] if isinstance(given, str) else given or ())):
        raise typer.BadParameter("expected a name of 1 to 256 characters.")
    return given


def is_given(context: typer.Context, name: str) -> bool:
    """Check if the command line contains this parameter."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def read_trace(path: Path, skip_invalid: bool = False) -> "Trace":
    """Read a trace; report invalid lines on stderr if they are to be skipped.

    Raises:
        UserError: the trace cannot be read, or has an invalid line that is not to be skipped.
    """
    from streams.sources.contract import refuse
    from streams.sources.swf import read_swf

    return read_swf(path, (lambda skipped: warn(str(skipped))) if skip_invalid else refuse)


def names_in(module: str, table: str) -> Callable[[str], list[str]]:
    """Make a shell completion for the names in a module's table."""
    return lambda incomplete: [name for name in getattr(import_module(module), table) if name.startswith(incomplete)]


def known_sites(context: typer.Context, incomplete: str) -> list[str]:
    """Complete site names for a shell; empty if no service answers immediately."""
    from streams.client.listing import client_for

    url, token = context.params.get("url"), context.params.get("token")
    context.obj = context.find_root().params.get("config")
    try:
        with client_for(settings_of(context, url), url, token) as grid:
            return [site for site in grid.sites if site.startswith(incomplete)]
    except UserError:
        return []


Site = Annotated[str | None, opt("Site. Default: all.", autocompletion=known_sites, callback=named)]
SOURCES = names_in("streams.sources.source_registry", "SOURCES")
Format = Annotated[
    str | None,
    opt("Format, such as swf. Default: detected from the file.", "--format", "NAME", autocompletion=SOURCES),
]
SourceOptions = Annotated[
    list[str] | None, opt("Source option, such as its time zone; repeatable.", "--set", "NAME=VALUE")
]
Heartbeats = Annotated[
    float, opt("Add a heartbeat after this many seconds without an event; 0: none.", "SECONDS", min=0, max=86400)
]
