"""The commands of who uses predictions: watch, ask, notify."""

import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from streams.cli.look import By, Sites, Token, Url, seconds_until
from streams.cli.options import Site, changed, named, settings_of
from streams.cli.output import print_json, tell, told_if_silent
from streams.errors import read_as
from streams.text.terminal import minute, show_line

if TYPE_CHECKING:
    from models.records import Notice

commands = typer.Typer()


@commands.command(epilog="Example: queuecast watch --site ctc --outcomes --from-beginning --count 20")
def watch(
    context: typer.Context,
    site: Site = None,
    job: Annotated[str | None, typer.Option(callback=named, help="Those of this job only.")] = None,
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
    wanted = WatchFilter(site, job)
    following = records(settings_of(context), wanted, outcomes, from_beginning, tell)
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
    constraint: Annotated[
        str | None, typer.Option(metavar="FEATURES", help="What its nodes have to have: 'ib&(a100|h100)'.")
    ] = None,
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
    from streams.client import listing
    from streams.client.ask import check, show
    from streams.client.grid import job_request
    from streams.text.durations import seconds_of

    fields = JobRequest.__struct_fields__
    described = {field: value for field, value in context.params.items() if field in fields and value is not None}
    if memory is not None and memory.strip().isdecimal():
        raise typer.BadParameter(f"--mem {memory} has no unit; expected {memory}M, {memory}G, …: in all, not a node's.")
    job = job_request(**described)
    run_s = None if run is None else read_as("--run", seconds_of, run)
    within_s = None if by is None else seconds_until(by)
    with listing.asked_of(settings_of(context, url), url, token) as grid:
        found = grid.rank(job, sites=site or (), run_s=run_s, why=True, start_within=within_s)
    if as_json:
        print_json(found)
    else:
        show(found)
    check(found)


@commands.command(epilog="Example: queuecast notify --user ada --webhook https://chat.example.org/hooks/queuecast")
def notify(
    context: typer.Context,
    site: Sites = None,
    user: Annotated[list[str] | None, typer.Option(callback=named, help="This user's jobs only; repeatable.")] = None,
    job: Annotated[list[str] | None, typer.Option(callback=named, help="This job only; repeatable.")] = None,
    before: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long before its start a job is told. Default: 15m."),
    ] = None,
    webhook: Annotated[str | None, typer.Option(metavar="URL", help="Where notices go. Default: as set.")] = None,
    web_port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of /metrics. Default: as set, else none.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the notices as JSON lines.")] = False,
) -> None:
    """Tell when a queued job is about to start, has slipped, or comes sooner, until it is told to stop.

    Notices go to the topic `notices`, to a webhook where there is one, and to
    stdout, a line each. What was told before a restart is not told again; one
    that was on its way comes twice, with the same id. The secret that signs
    what goes to the webhook is in the settings (notify.secret).
    """
    import asyncio

    from streams.notify.run import run_notify
    from streams.notify.watching import NoticeFilter
    from streams.process import program_log
    from streams.text.durations import seconds_of

    if webhook is not None and not webhook.startswith(("http://", "https://")):
        raise typer.BadParameter("--webhook: expected an address that begins with http:// or https://.")
    wanted = NoticeFilter(*(frozenset(chosen or ()) for chosen in (site, user, job)))
    before_s = None if before is None else read_as("--before", seconds_of, before)
    settings = settings_of(context)
    settings = changed(settings, "notify", before_seconds=before_s, webhook=webhook, web_port=web_port)
    program_log.configure(settings.notify, settings.notify.name)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def show(notice: "Notice") -> None:
        if as_json:
            print_json(notice)
        else:
            show_line(f"{minute(notice.at)}  {notice.kind.replace('_', ' ')}  {notice.text}")

    asyncio.run(run_notify(settings, wanted, show))
