"""Commands that ingest scheduler events: source, ingest."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streams.cli.options import (
    SOURCES,
    Format,
    Heartbeats,
    SourceOptions,
    arg,
    flag,
    is_given,
    opt,
    print_json,
    progress,
    settings_of,
    warn,
    warned_if_silent,
)
from streams.errors import UserError
from streams.text.terminal import moment, printable

if TYPE_CHECKING:
    from streams.bulk.ingest import SortedSource
    from streams.settings import Settings
    from streams.sources.contract import Source
    from streams.sources.live_source import Watch
    from streams.sources.publisher import OutgoingEvent, Publisher

commands = typer.Typer()


@commands.command(epilog="Example: queuecast source slurm squeue+sacct --site alder --cursors /var/lib/queuecast")
def source(
    context: typer.Context,
    name: Annotated[str, arg("Scheduler or format, such as slurm.", autocompletion=SOURCES)],
    location: Annotated[str, arg("Path or address to read; see the documentation of the source.")],
    site: Annotated[str, opt("Site name.")],
    cursors: Annotated[
        Path | None, opt("Directory for the position, to resume from. Default: $STATE_DIRECTORY.", "DIR")
    ] = None,
    web_port: Annotated[int | None, opt("Port of /metrics. Default: none.", min=1, max=65535)] = None,
    web_host: Annotated[str, opt("Address to listen on. Default: loopback.")] = "127.0.0.1",
    print_events: Annotated[
        bool, flag("--print", "Print the events as JSON lines; publish nothing, and need no broker.")
    ] = False,
    once: Annotated[bool, flag("--once", "With --print: exit when nothing is left to read.")] = False,
    heartbeat: Heartbeats = 300.0,
    options: SourceOptions = None,
) -> None:
    """Follow a scheduler and publish its events until stopped.

    With --cursors a restart resumes at the last position: no event is lost; the
    last ones may be sent twice, and workers skip duplicates. Invalid records are
    reported and counted, and the others are sent. After --heartbeat
    seconds without an event the source confirms that nothing has happened, so that
    the estimates of pending jobs follow the time.

    `--once --print` checks that a source can be read, before it publishes
    anything.
    """
    from streams.process.scraping import serve_metrics
    from streams.sources.live_source import Watch, run_source
    from streams.sources.publisher import stop_on_sigterm
    from streams.sources.source_registry import options_for, source_named

    if once and not print_events:
        raise typer.BadParameter("needs --print", param_hint="--once")
    watch, kind = Watch(warn), source_named(name)
    opened = kind(location, site, watch.on_skipped, **options_for(kind, options or ()))
    if print_events:
        return _print_events(opened, watch, once)
    settings = settings_of(context)
    directory = cursors or (Path(state) if (state := os.environ.get("STATE_DIRECTORY")) else None)
    if directory is None:
        warn("without --cursors the source starts from the beginning each time")
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_sigterm())
        if web_port is not None:
            stack.callback(serve_metrics(watch, web_host, web_port))
        stack.callback(lambda: warn(watch.report()))
        run_source(settings, opened, watch, directory, stop, heartbeat)
    if stop.requested:
        raise typer.Exit(128 + signal.SIGTERM)


def _print_events(source: "Source", watch: "Watch", once: bool) -> None:
    from streams.sources.publisher import stop_on_sigterm

    watch.source = source
    with stop_on_sigterm() as stop:
        for event in source.read_all() if once else (event for event, _ in source.events()):
            if event is not None:
                print_json(event)
                watch.on_sent(event)
            if stop.requested:
                break
    warn(watch.report("printed"))
    if stop.requested:
        raise typer.Exit(128 + signal.SIGTERM)


@commands.command(epilog="Example: queuecast ingest KTH.swf.gz CTC.swf.gz --site kth --site ctc --speed 3600")
def ingest(
    context: typer.Context,
    traces: Annotated[list[Path], arg("Traces or other logs, plain or gzip; one per site.", "FILE...")],
    site: Annotated[list[str] | None, opt("Site of each file, in order. Default: the file names.")] = None,
    speed: Annotated[str, opt("Speed: N times real time, or as fast as possible.", "max|N")] = "max",
    until: Annotated[float | None, opt("Stop after this many hours of the log.", "HOURS", min=0)] = None,
    skip_invalid: Annotated[bool, flag("--skip-invalid", "Report invalid lines and continue.")] = False,
    format_name: Format = None,
    cursors: Annotated[Path | None, opt("Directory for the position of each site, to resume from.", "DIR")] = None,
    history: Annotated[
        bool, flag("--history", "Ingest the history of one site: learn from it, publish no predictions.")
    ] = False,
    every_job: Annotated[
        bool, flag("--every-job", "With --history: also send jobs older than the methods' memory.")
    ] = False,
    options: SourceOptions = None,
    heartbeat: Heartbeats = 300.0,
    wait: Annotated[bool, flag("--wait/--no-wait", "Wait until the worker has processed everything.")] = True,
    as_json: Annotated[bool, flag("--json", "Print what was sent as JSON.")] = False,
) -> None:
    """Publish the events of traces or other logs, each as one site, in parallel.

    Events keep their times; messages have the wall clock as timestamp. With
    --cursors each site resumes where the last run stopped: no event is lost; the
    last ones may be sent twice.

    With --history the files are the history of one site: a dump of sacct, or the
    log that a source will follow. `queuecast source` with the same --cursors then
    starts at their end, and no event is sent by both.
    """
    from streams.bulk import ingest as ingesting
    from streams.sources.publisher import publish, stop_on_sigterm

    pace = _speed(speed)
    settings = settings_of(context)
    remaining: Callable[[], float | None] | None = None
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_sigterm())
        if history:
            sites = _one_site(context, site or ())
            steps, total = _history(stack, settings, context.params, sites[0])
        else:
            sources = _recorded(stack, context.params)
            sites = [source.site for source in sources]
            total = sum(source.count for source in sources) if until is None and cursors is None else None
            files = stack.enter_context(ingesting.cursor_files(settings, sources, cursors)) if cursors else []
            for source, file in zip(sources, files, strict=False):
                if file.cursor is not None:
                    warn(f"{source.site}: resuming from {file.path}")
            begins = {source.site: source.begin for source in sources}
            known = _warn_of_known(settings, begins, [file.path.name for file in files if file.cursor is not None])
            end_s = math.inf if until is None else until * 3600
            timed = ingesting.first_seconds(ingesting.timeline(sources, files), end_s)
            timed = ingesting.without(timed, [source.guessed for source in sources if source.site in known])
            longest_s = max(source.seconds for source in sources)
            steps = paced = ingesting.PacedIterator(timed, pace, min(end_s, longest_s), sleep=stop.sleep)
            remaining = partial(getattr, paced, "remaining_s")
            if math.isfinite(pace):
                warn(f"ingesting {', '.join(sites)} at {pace:g} times real time; Ctrl-C stops")
        with stop.on(signal.SIGINT), progress("events sent", total, remaining=remaining) as advance:
            advance_to = (
                (lambda event: advance(event.time, event.site)) if sites[1:] else lambda event: advance(event.time)
            )
            publish(settings, steps, advance_to, _shown(as_json), stop, sites)
    if stop.requested:
        raise typer.Exit(128 + stop.signal)
    if wait:
        _await_workers(settings, sites, warn if as_json else print)


def _one_site(context: typer.Context, sites: Sequence[str]) -> list[str]:
    """Return the one site of a history.

    Raises:
        typer.BadParameter: there is not exactly one site, or an option of pace is given.
    """
    if len(sites) != 1:
        raise typer.BadParameter("--history requires exactly one site: name it with --site.")
    for option in ("speed", "until"):
        if is_given(context, option):
            raise typer.BadParameter(f"--{option} cannot be combined with --history.")
    return list(sites)


def _history(
    stack: ExitStack, settings: "Settings", given: Mapping[str, Any], site: str
) -> "tuple[Iterator[OutgoingEvent], int | None]":
    """Return the events of a site's history and their number; a cursor is left for the source that follows it."""
    from streams.bulk.site_history import OpenHistory, needed
    from streams.sources.contract import refuse

    skipped = (lambda part: warn(str(part))) if given["skip_invalid"] else refuse
    format_name, options = given["format_name"], given["options"] or ()
    most = needed(settings.engine, site)
    if given["every_job"]:
        most = most._replace(seen=None)
    files, cursors = given["traces"], given["cursors"]
    beat_s = given["heartbeat"]
    history = OpenHistory(stack, files, site, settings, cursors, format_name, skipped, options, most, progress, beat_s)
    if history.begin is not None:
        _warn_of_known(settings, {site: history.begin}, ())
    if not history.follows:
        warn("no source resumes where this ends: events of live jobs may be sent again; workers skip them")

    def steps() -> "Iterator[OutgoingEvent]":
        first = next(found := history.steps())
        if history.jobs is not None and most.seen is not None and history.jobs > most.seen:
            warn(
                f"{site}: sending the last {most.seen:,} of {history.jobs:,} jobs and those live at that time; "
                "earlier ones exceed the methods' memory (--every-job sends all)"
            )
        yield first
        yield from found

    return steps(), history.events


def _warn_of_known(settings: "Settings", begins: Mapping[str, float], going_on: Sequence[str]) -> Collection[str]:
    """Warn about sites that already have events later than the beginning of these: the events may interleave.

    Returns:
        The sites that have had events; their machine size must not be overwritten by a guess.
    """
    from streams.operate.catching_up import known_until

    if going_on:  # from its cursor a site gets what follows
        return ()
    known = known_until(settings, begins)
    for site, last in known.items():
        if last >= begins[site]:
            warn(
                f"{site} already has events until {moment(last)}, and these start at {moment(begins[site])}: "
                "workers skip duplicates; use --site for another name"
            )
    return known


def _await_workers(settings: "Settings", sites: Sequence[str], announce: Callable[[str], None]) -> None:
    """Wait until the workers have processed the events, and report it; return if none runs or access is denied."""
    from streams.operate.catching_up import NoWorker, unread

    began = time.monotonic()
    looks = unread(settings, sites)
    waiting = "waiting for the worker to process the events; Ctrl-C stops waiting, not the worker"
    try:
        before = total = next(looks)
        with warned_if_silent(waiting), progress("messages processed", total) as advance:
            for remaining in looks:
                for _ in range(before - remaining):
                    advance()
                before = remaining
    except NoWorker:
        warn("no worker is running; the events stay on the topic until one starts")
    except UserError:  # a user with write permission only cannot read the lag
        return
    else:
        announce(f"the worker caught up {time.monotonic() - began:.1f} s after the last event was sent")


def _recorded(stack: ExitStack, given: Mapping[str, Any]) -> "Sequence[SortedSource]":
    """Open the files as sources until the stack closes; an invalid line is an error, or is reported and skipped."""
    from streams.bulk.ingest import SortedSource, names_of
    from streams.bulk.reading import read_log
    from streams.sources.contract import refuse
    from streams.sources.source_registry import format_of

    files, sites, options = given["traces"], given["site"] or (), given["options"] or ()
    skipped = (lambda part: warn(str(part))) if given["skip_invalid"] else refuse
    named = names_of(list(map(str, files)), sites) if sites else [None] * len(files)
    formats = [given["format_name"] or format_of(path).name for path in files]
    logs = [
        stack.enter_context(read_log([path], site, name, skipped, options, progress, heartbeat_s=given["heartbeat"]))[0]
        for path, site, name in zip(files, named, formats, strict=True)
    ]
    names_of([log.site for log in logs], ())
    return [SortedSource(name, log) for name, log in zip(formats, logs, strict=True)]


def _speed(text: str) -> float:
    try:
        speed = math.inf if text == "max" else float(text)
    except ValueError:
        speed = math.nan
    if not speed > 0:
        raise typer.BadParameter(f"--speed is {text!r}; expected max, 1 for real time, or how many times faster.")
    return speed


def _shown(as_json: bool) -> "Callable[[Publisher, float], None]":
    def show(publisher: "Publisher", seconds: float) -> None:
        total, jobs = sum(publisher.events.values()), publisher.jobs
        sites = [{"site": site, "events": n, "jobs": jobs.get(site, 0)} for site, n in publisher.events.items()]
        if as_json:
            print_json({"sites": sites, "events": total, "seconds": seconds})
            return
        lines = [printable(f"{one['site']}: {one['events']} events, {one['jobs']} jobs") for one in sites]
        lines.append(f"{total} events sent in {seconds:.1f} s, {total / max(seconds, 1e-3):,.0f}/s")
        sys.stdout.write("\n".join(lines) + "\n")

    return show
