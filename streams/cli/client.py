"""The commands of who sends events or uses predictions: feed, watch, ask."""

import math
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.look import By, Sites, Token, Url, seconds_until
from streams.cli.options import Format, Site, is_given, name, names, read_trace, settings_of
from streams.cli.output import print_json, progress, tell, told_if_silent
from streams.errors import UserError, read_as
from streams.text.terminal import moment, printable, show_line

if TYPE_CHECKING:
    from streams.settings import Settings
    from streams.sources.contract import Recorded
    from streams.sources.publisher import Publisher

commands = typer.Typer()


@commands.command(epilog="Example: queuecast feed KTH.swf.gz CTC.swf.gz --site kth --site ctc --speed 3600")
def feed(
    context: typer.Context,
    traces: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Traces or other logs, plain or gzip; one a site.")
    ],
    site: Annotated[
        list[str] | None, typer.Option(help="The site of each trace, in their order. Default: the files' names.")
    ] = None,
    speed: Annotated[
        str, typer.Option(metavar="max|N", help="N times the pace at which it happened, or as fast as it goes.")
    ] = "max",
    until: Annotated[
        float | None, typer.Option(min=0, metavar="HOURS", help="The first hours only, and leave the jobs there.")
    ] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="Report broken lines and go on.")] = False,
    format_name: Format = None,
    cursors: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep here how far each site is, and go on there the next time."),
    ] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="The files are one site's past: it is learnt, and nothing is told of it."),
    ] = False,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="An option of the source that reads them, such as cluster=NAME; repeatable.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the worker has caught up.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was sent as JSON.")] = False,
) -> None:
    """Send traces or other logs to the events topic, each as a site, side by side from their beginnings.

    Events keep their own times; the messages are stamped with the wall clock.
    With --cursors each site goes on where the last run with this directory
    stopped, however it stopped: no event is lost, the last ones may be sent twice.

    With --history the files are what one site's scheduler told before: a dump of
    sacct, or the log that will be followed. `queuecast source` with the same
    --cursors then begins where they end, and no event is sent by both.
    """
    from streams.sources import feed as feeding
    from streams.sources.publisher import publish, stop_on_sigterm

    pace = _speed(speed)
    settings = settings_of(context)
    if history:
        site = _one_site(context, site or ())
        _feed_history(settings, traces, site[0], cursors, format_name, skip_broken, options or (), as_json)
        if wait:
            _await_workers(settings, site, tell if as_json else print)
        return
    with ExitStack() as stack:
        sources = _recorded(stack, traces, site or (), format_name, skip_broken, options or ())
        sites = [source.site for source in sources]
        total = sum(source.count for source in sources) if until is None and cursors is None else None
        files = stack.enter_context(feeding.cursor_files(settings, sources, cursors)) if cursors else []
        for source, file in zip(sources, files, strict=False):
            if file.cursor is not None:
                tell(f"{source.site}: goes on where {file.path} says")
        begins = {source.site: source.begin for source in sources}
        known = _warn_of_known(settings, begins, [file.path.name for file in files if file.cursor is not None])
        steps = feeding.until(feeding.timeline(sources, files), math.inf if until is None else until * 3600)
        steps = feeding.without(steps, [source.guessed for source in sources if source.site in known])
        stop = stack.enter_context(stop_on_sigterm())
        if math.isfinite(pace):
            tell(f"feeds {', '.join(sites)}, {pace:g} times as fast as it happened; Ctrl-C ends it")
        with progress("events sent", total) as advance:
            paced = feeding.paced(steps, pace, sleep=stop.sleep)
            publish(settings, paced, lambda event: advance(event.time), _shown(as_json), stop, sites)
    if stop.requested:
        raise typer.Exit(128 + signal.SIGTERM)
    if wait:
        _await_workers(settings, sites, tell if as_json else print)


def _one_site(context: typer.Context, sites: Sequence[str]) -> list[str]:
    """The site of a history, which has no other options of pace.

    Raises:
        typer.BadParameter: there is not one, or there are such.
    """
    if len(sites) != 1:
        raise typer.BadParameter("--history is that of one site: name it with --site.")
    for option in ("speed", "until"):
        if is_given(context, option):
            raise typer.BadParameter(f"--{option} does not go with --history.")
    return list(sites)


def _feed_history(
    settings: "Settings",
    files: Sequence[Path],
    site: str,
    cursors: Path | None,
    format_name: str | None,
    skip_broken: bool,
    options: Sequence[str],
    as_json: bool,
) -> None:
    """Send a site's past, and leave a cursor for the source that follows it from then on."""
    from streams.bulk.history import History
    from streams.sources.contract import refuse
    from streams.sources.publisher import publish, stop_on_sigterm

    with ExitStack() as stack:
        skipped = (lambda part: tell(str(part))) if skip_broken else refuse
        past = History(stack, files, site, settings, cursors, format_name, skipped, options, progress)
        if past.begin is not None:
            _warn_of_known(settings, {site: past.begin}, ())
        if not past.follows:
            tell("no source goes on where this ends: what one tells of live jobs is sent again, and passed over")
        stop = stack.enter_context(stop_on_sigterm())
        with progress("events sent", past.events) as advance:
            publish(settings, past.steps(), lambda event: advance(event.time), _shown(as_json), stop, [site])
    if stop.requested:
        raise typer.Exit(128 + signal.SIGTERM)


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
    """Wait until what was sent is predicted, and say so; not where no worker runs, or where one may not know."""
    from streams.operate.catching_up import NoWorker, unread

    began = time.monotonic()
    looks = unread(settings, sites)
    waiting = "waiting until the worker has predicted what was sent; Ctrl-C ends the waiting, not the worker"
    try:
        before = total = next(looks)
        with told_if_silent(waiting), progress("events predicted", total) as advance:
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


def _recorded(
    stack: ExitStack,
    files: Sequence[Path],
    sites: Sequence[str],
    format_name: str | None,
    skip_broken: bool,
    options: Sequence[str],
) -> "Sequence[Recorded]":
    """The files as sources, which last as long as the stack does; a broken line is an error, or is told and skipped."""
    from streams.bulk.reading import read_log
    from streams.bulk.source import SortedSource
    from streams.sources.contract import refuse
    from streams.sources.feed import names_of, sources_of
    from streams.sources.formats import format_of

    formats = [format_name or format_of(path).name for path in files]
    if set(formats) == {"swf"} and not options:
        return sources_of([read_trace(path, skip_broken) for path in files], sites)
    skipped = (lambda part: tell(str(part))) if skip_broken else refuse
    named = names_of(list(map(str, files)), sites) if sites else [None] * len(files)
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
    """What prints what was sent, and in how many seconds."""

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


@commands.command(epilog="Example: queuecast watch --site ctc --outcomes --from-beginning --count 20")
def watch(
    context: typer.Context,
    site: Site = None,
    job: Annotated[str | None, typer.Option(help="Those of this job only.")] = None,
    outcomes: Annotated[bool, typer.Option("--outcomes", help="What became of predictions too.")] = False,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="What the topics hold already too, not just what comes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The records as they are, JSON lines.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many.")] = None,
) -> None:
    """Print predictions as they come, one a line; Ctrl-C ends it."""
    from streams.client.watch import SkippedRecord, WatchFilter, json_line, line
    from streams.client.watch import watch as records

    shown, waiting = 0, "nothing has come yet: predictions come as jobs are submitted; Ctrl-C ends it"
    wanted = WatchFilter(name("--site", site), name("--job", job))
    following = records(settings_of(context), wanted, outcomes, from_beginning)
    with closing(following) as found, told_if_silent(waiting) as heard:
        for record, raw, late in found:
            heard()
            if isinstance(record, SkippedRecord):
                tell(f"skipped: {record.reason}")
                continue
            if as_json:
                sys.stdout.write(f"{json_line(raw)}\n")
                sys.stdout.flush()
            else:
                show_line(line(record, late))
            shown += 1
            if shown == count:
                return


@commands.command(
    epilog="Example: queuecast ask --cpus 64 --walltime 4h --site ctc --site kth, or"
    " queuecast ask --gpus 4 --gpu-type a100 --partition gpu --mem 64G --walltime 1d"
)
def ask(
    context: typer.Context,
    cpus: Annotated[int, typer.Option(help="Processors.")] = 1,
    walltime: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Requested, with its unit: 4h, 90m, 1d12h, 04:00:00.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes.")] = None,
    tasks: Annotated[int | None, typer.Option(help="Tasks.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Whole nodes.")] = False,
    queue: Annotated[str | None, typer.Option(help="The queue.")] = None,
    partition: Annotated[
        str | None, typer.Option(metavar="NAME[,...]", help="The partition, or all that it may start in.")
    ] = None,
    qos: Annotated[str | None, typer.Option(help="The quality of service.")] = None,
    reservation: Annotated[str | None, typer.Option(help="The reservation to run in.")] = None,
    user: Annotated[str | None, typer.Option(help="Who submits it.")] = None,
    group: Annotated[str | None, typer.Option(help="The user's group.")] = None,
    account: Annotated[str | None, typer.Option(help="Who pays for it.")] = None,
    executable: Annotated[str | None, typer.Option(help="What it runs.")] = None,
    gpus: Annotated[int, typer.Option(help="GPUs in all.")] = 0,
    gpu_type: Annotated[str | None, typer.Option(help="Their type, such as a100.")] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", "--mem", metavar="SIZE", help="Memory in all nodes together: 64G, 512M, 1.5T."),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it runs at a site of speed 1. Default: as predicted."),
    ] = None,
    by: By = None,
    site: Sites = None,
    url: Url = None,
    token: Token = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranking as JSON.")] = False,
) -> None:
    """Ask where a job would be done first, if it were submitted now.

    The sites by response time: the wait and the run time. Nothing is submitted,
    and asking changes nothing. The exit code is 1 where no site has an estimate.
    `queuecast job` asks about one that was submitted already.
    """
    from models.ranking import JobRequest
    from streams.client import either
    from streams.client.ask import check, show
    from streams.client.grid import job_request
    from streams.text.durations import seconds_of

    fields = JobRequest.__struct_fields__
    described = {field: value for field, value in context.params.items() if field in fields and value is not None}
    names("--site", site or ())
    if memory is not None and memory.strip().isdecimal():
        raise typer.BadParameter(f"--mem {memory} has no unit; expected {memory}M, {memory}G, …: in all, not a node's.")
    job = job_request(**described)
    run_s = None if run is None else read_as("--run", seconds_of, run)
    within_s = None if by is None else seconds_until(by)
    with either.asked_of(settings_of(context, url), url, token) as grid:
        found = grid.rank(job, sites=site or (), run_s=run_s, why=True, start_within=within_s)
    if as_json:
        print_json(found)
    else:
        show(found)
    check(found)
