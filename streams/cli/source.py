"""The commands of who tells of a scheduler: source, feed, capture."""

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
    SourceOptions,
    arg,
    flag,
    is_given,
    opt,
    print_json,
    progress,
    settings_of,
    tell,
    told_if_silent,
)
from streams.errors import UserError
from streams.text.terminal import moment, printable

if TYPE_CHECKING:
    from streams.bulk.feed import SortedSource
    from streams.settings import Settings
    from streams.sources.publisher import OutgoingEvent, Publisher

commands = typer.Typer()


@commands.command(epilog="Example: queuecast source slurm squeue+sacct --site alder --cursors /var/lib/queuecast")
def source(
    context: typer.Context,
    name: Annotated[str, arg("Which scheduler or format, such as slurm.", autocompletion=SOURCES)],
    location: Annotated[str, arg("What it reads: a path, an address, or what the source says.")],
    site: Annotated[str, opt("The site's name.")],
    cursors: Annotated[
        Path | None, opt("Keep here how far it is, and go on there. Default: $STATE_DIRECTORY.", "DIR")
    ] = None,
    web_port: Annotated[int | None, opt("Port of /metrics. Default: none.", min=1, max=65535)] = None,
    web_host: Annotated[str, opt("Where to listen. Default: this machine only.")] = "127.0.0.1",
    options: SourceOptions = None,
) -> None:
    """Follow a scheduler and send what happens there to the events topic, until it is told to stop.

    With --cursors it goes on where it stopped the last time, however it stopped:
    no event is lost, the last ones may be sent twice, and workers pass these over.
    What cannot be read is told here and counted, and the rest goes on.
    """
    from streams.process.scraping import serve_metrics
    from streams.sources.publisher import stop_on_sigterm
    from streams.sources.registry import options_for, source_named
    from streams.sources.run import Watch, run_source

    settings, watch, kind = settings_of(context), Watch(tell), source_named(name)
    opened = kind(location, site, watch.on_skipped, **options_for(kind, options or ()))
    directory = cursors or (Path(state) if (state := os.environ.get("STATE_DIRECTORY")) else None)
    if directory is None:
        tell("without --cursors the source begins at the beginning at each start")
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_sigterm())
        if web_port is not None:
            stack.callback(serve_metrics(watch, web_host, web_port))
        stack.callback(lambda: tell(watch.report()))
        run_source(settings, opened, watch, directory, stop)
    if stop.requested:
        raise typer.Exit(128 + signal.SIGTERM)


@commands.command(epilog="Example: queuecast feed KTH.swf.gz CTC.swf.gz --site kth --site ctc --speed 3600")
def feed(
    context: typer.Context,
    traces: Annotated[list[Path], arg("Traces or other logs, plain or gzip; one a site.", "FILE...")],
    site: Annotated[list[str] | None, opt("The site of each trace, in their order. Default: the files' names.")] = None,
    speed: Annotated[str, opt("N times the pace at which it happened, or as fast as it goes.", "max|N")] = "max",
    until: Annotated[float | None, opt("The first hours only, and leave the jobs there.", "HOURS", min=0)] = None,
    skip_broken: Annotated[bool, flag("--skip-broken", "Report broken lines and go on.")] = False,
    format_name: Format = None,
    cursors: Annotated[
        Path | None, opt("Keep here how far each site is, and go on there the next time.", "DIR")
    ] = None,
    history: Annotated[
        bool, flag("--history", "The files are one site's past: it is learnt, and nothing is told of it.")
    ] = False,
    every_job: Annotated[
        bool, flag("--every-job", "With --history: send also jobs that methods forget by its end.")
    ] = False,
    options: SourceOptions = None,
    wait: Annotated[bool, flag("--wait/--no-wait", "Wait until the worker has caught up.")] = True,
    as_json: Annotated[bool, flag("--json", "Print what was sent as JSON.")] = False,
) -> None:
    """Send traces or other logs to the events topic, each as a site, side by side from their beginnings.

    Events keep their own times; the messages are stamped with the wall clock.
    With --cursors each site goes on where the last run with this directory
    stopped, however it stopped: no event is lost, the last ones may be sent twice.

    With --history the files are what one site's scheduler told before: a dump of
    sacct, or the log that will be followed. `queuecast source` with the same
    --cursors then begins where they end, and no event is sent by both.
    """
    from streams.bulk import feed as feeding
    from streams.sources.publisher import publish, stop_on_sigterm

    pace = _speed(speed)
    settings = settings_of(context)
    left: Callable[[], float | None] | None = None
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_sigterm())
        if history:
            sites = _one_site(context, site or ())
            steps, total = _past(stack, settings, context.params, sites[0])
        else:
            sources = _recorded(stack, context.params)
            sites = [source.site for source in sources]
            total = sum(source.count for source in sources) if until is None and cursors is None else None
            files = stack.enter_context(feeding.cursor_files(settings, sources, cursors)) if cursors else []
            for source, file in zip(sources, files, strict=False):
                if file.cursor is not None:
                    tell(f"{source.site}: goes on where {file.path} says")
            begins = {source.site: source.begin for source in sources}
            known = _warn_of_known(settings, begins, [file.path.name for file in files if file.cursor is not None])
            end_s = math.inf if until is None else until * 3600
            timed = feeding.until(feeding.timeline(sources, files), end_s)
            timed = feeding.without(timed, [source.guessed for source in sources if source.site in known])
            longest_s = max(source.seconds for source in sources)
            steps = paced = feeding.Paced(timed, pace, min(end_s, longest_s), sleep=stop.sleep)
            left = partial(getattr, paced, "left_s")
            if math.isfinite(pace):
                tell(f"feeds {', '.join(sites)}, {pace:g} times as fast as it happened; Ctrl-C ends it")
        with stop.on(signal.SIGINT), progress("events sent", total, left=left) as advance:
            told = (lambda event: advance(event.time, event.site)) if sites[1:] else lambda event: advance(event.time)
            publish(settings, steps, told, _shown(as_json), stop, sites)
    if stop.requested:
        raise typer.Exit(128 + stop.signal)
    if wait:
        _await_workers(settings, sites, tell if as_json else print)


def _one_site(context: typer.Context, sites: Sequence[str]) -> list[str]:
    """The site of a history, which has no other options of pace. Raises typer.BadParameter: there is not one, or there
    are such.
    """
    if len(sites) != 1:
        raise typer.BadParameter("--history is that of one site: name it with --site.")
    for option in ("speed", "until"):
        if is_given(context, option):
            raise typer.BadParameter(f"--{option} does not go with --history.")
    return list(sites)


def _past(
    stack: ExitStack, settings: "Settings", given: Mapping[str, Any], site: str
) -> "tuple[Iterator[OutgoingEvent], int | None]":
    """A site's past, and how many events that is; it leaves a cursor for the source that follows it from then on."""
    from streams.bulk.history import OpenHistory, needed
    from streams.sources.contract import refuse

    skipped = (lambda part: tell(str(part))) if given["skip_broken"] else refuse
    format_name, options = given["format_name"], given["options"] or ()
    most = needed(settings.engine, site)
    if given["every_job"]:
        most = most._replace(seen=None)
    files, cursors = given["traces"], given["cursors"]
    past = OpenHistory(stack, files, site, settings, cursors, format_name, skipped, options, most, progress)
    if past.begin is not None:
        _warn_of_known(settings, {site: past.begin}, ())
    if not past.follows:
        tell("no source goes on where this ends: what one tells of live jobs is sent again, and passed over")

    def steps() -> "Iterator[OutgoingEvent]":
        first = next(found := past.steps())
        if past.jobs is not None and most.seen is not None and past.jobs > most.seen:
            tell(
                f"{site}: of {past.jobs:,} jobs the last {most.seen:,} are sent, and those that were there then; what "
                "others would teach, methods as set here have forgotten by its end (--every-job sends all)"
            )
        yield first
        yield from found

    return steps(), past.events


def _warn_of_known(settings: "Settings", begins: Mapping[str, float], going_on: Sequence[str]) -> Collection[str]:
    """Tell of sites that had events already from when these begin: such are passed over, and theirs may be mixed.

    Returns:
        The sites that have had events: these know better than a guess how large they are.
    """
    from streams.operate.catching_up import known_until

    if going_on:  # from its cursor a site gets what follows
        return ()
    known = known_until(settings, begins)
    for site, last in known.items():
        if last >= begins[site]:
            tell(
                f"{site} has had events until {moment(last)}, and these begin at {moment(begins[site])}: what it knows "
                "already is passed over; --site names another"
            )
    return known


def _await_workers(settings: "Settings", sites: Sequence[str], say: Callable[[str], None]) -> None:
    """Wait until what was sent is taken in, and say so; not where no worker runs, or where one may not know."""
    from streams.operate.catching_up import NoWorker, unread

    began = time.monotonic()
    looks = unread(settings, sites)
    waiting = "waiting until the worker has taken in what was sent; Ctrl-C ends the waiting, not the worker"
    try:
        before = total = next(looks)
        with told_if_silent(waiting), progress("messages taken in", total) as advance:
            for left in looks:
                for _ in range(before - left):
                    advance()
                before = left
    except NoWorker:
        tell("no worker runs: what was sent waits on its topic until one does")
    except UserError:  # whoever may only write events may not know
        return
    else:
        say(f"the worker has caught up, {time.monotonic() - began:.1f} s after the last event was sent")


def _recorded(stack: ExitStack, given: Mapping[str, Any]) -> "Sequence[SortedSource]":
    """The files as sources, which last as long as the stack does; a broken line is an error, or is told and skipped."""
    from streams.bulk.feed import SortedSource, names_of
    from streams.bulk.reading import read_log
    from streams.sources.contract import refuse
    from streams.sources.registry import format_of

    files, sites, options = given["traces"], given["site"] or (), given["options"] or ()
    skipped = (lambda part: tell(str(part))) if given["skip_broken"] else refuse
    named = names_of(list(map(str, files)), sites) if sites else [None] * len(files)
    formats = [given["format_name"] or format_of(path).name for path in files]
    logs = [
        stack.enter_context(read_log([path], site, name, skipped, options, progress))[0]
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


@commands.command(epilog="Example: queuecast capture slurm looks --looks 20")
def capture(
    scheduler: Annotated[str, arg("Which scheduler: slurm, pbs, lsf, gridengine, htcondor, flux or kueue.")],
    directory: Annotated[Path, arg("Where to write the answers.", "DIR")],
    looks: Annotated[int | None, opt("How many looks. Default: 5 at Slurm, else one.", min=1)] = None,
    every: Annotated[str, opt("From one look to the next.", "DURATION")] = "30s",
    log: Annotated[
        list[Path] | None, opt("Record the end of this log; repeatable. Default: what a command answers.", "FILE")
    ] = None,
) -> None:
    """Record what a scheduler answers or logs, with other names: a folder that can be sent to us, and replayed.

    Names of users, accounts, jobs, partitions, nodes and all words that are not
    the scheduler's own become hashes with a random key that is kept nowhere.
    Numbers of jobs, times and sizes stay. Slurm, PBS, HTCondor and Kueue are asked
    by commands; of the others, and with --log, the last 8 MB of logs are taken.
    """
    from streams.errors import NotUnderstood, read_as
    from streams.operate.capture import SCHEDULERS
    from streams.operate.capture import capture as captured
    from streams.text.quantities import seconds_of

    if scheduler not in SCHEDULERS:
        raise NotUnderstood(f"{scheduler}: cannot be captured; expected {', '.join(SCHEDULERS)}")
    captured(scheduler, directory, log or (), tell, looks, read_as("--every", seconds_of, every))
    tell(f"`queuecast replay {directory} --site here` reads it")
