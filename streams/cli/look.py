"""The commands of who asks and watches: jobs, job, sites, letters, watch, ask, notify."""

import signal
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from streams.cli.options import (
    Site,
    arg,
    changed,
    flag,
    known_sites,
    named,
    opt,
    print_json,
    settings_of,
    tell,
    told_if_silent,
)
from streams.errors import read_as
from streams.text.terminal import minute, show_line

if TYPE_CHECKING:
    from models.records import Notice

commands = typer.Typer()

T = TypeVar("T")

Sites = Annotated[
    list[str] | None, opt("Only this site; repeatable. Default: all.", autocompletion=known_sites, callback=named)
]
Url = Annotated[str | None, opt("Ask this service, not through Kafka.")]
Token = Annotated[str | None, opt("The service's token. Default: the settings'.")]
By = Annotated[str | None, opt("How probable it is that it starts by then: 17:00, 2026-05-04T08:00, 3h.", "TIME")]
AsJson = Annotated[bool, flag("--json", "Print the answers as JSON.")]


@commands.command(epilog="Example: queuecast jobs --user ada --site ctc")
def jobs(
    context: typer.Context,
    user: Annotated[str | None, opt("This user's. Default: those that have queued longest.", callback=named)] = None,
    site: Sites = None,
    most: Annotated[int, opt("Of a site, at most.", min=1, max=1000)] = 20,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Print jobs that queue: when each is expected to start, by when at the latest, and why not yet.

    With --user those that run too.
    """
    from streams.client import listing
    from streams.client.listing import show_jobs

    with listing.asked_of(settings_of(context, url), url, token) as grid:
        if user is None:
            found = listing.longest_queued(grid.every_site(site or (), most))
        else:
            found = listing.user_jobs(grid.jobs(user, site or (), most))
    _print(found, as_json, show_jobs)


@commands.command(epilog="Example: queuecast job 4711 --site ctc --by 17:00")
def job(
    context: typer.Context,
    job_id: Annotated[str, arg("The job's id.", "ID", callback=named)],
    by: By = None,
    told: Annotated[bool, flag("--told", "Print its estimates over time, too, from its submission on.")] = False,
    site: Sites = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Say when a job starts that was submitted, by when at the latest, since when it queues, and why not yet."""
    from streams.client import listing
    from streams.client.listing import check_job, show_job

    within_s = None if by is None else seconds_until(by)
    with listing.asked_of(settings_of(context, url), url, token) as grid:
        found = listing.answered(grid.job(job_id, site or ()))
    _print(found, as_json, lambda answers: show_job(answers, within_s, told))
    check_job(found)


def seconds_until(by: str) -> float:
    """Seconds from now to a time that is given as --by, on this machine's clock. Raises NotUnderstood: it is no time to
    come.
    """
    from datetime import datetime

    from streams.text.quantities import deadline_of

    now = datetime.now().astimezone()
    return read_as("--by", lambda text: deadline_of(text, now), by).timestamp() - now.timestamp()


@commands.command(epilog="Example: queuecast sites")
def sites(
    context: typer.Context, site: Sites = None, url: Url = None, token: Token = None, as_json: AsJson = False
) -> None:
    """Print all sites: their size, what is free, their jobs, how old that is, and what is wrong with any."""
    from streams.client import listing
    from streams.client.listing import show_sites

    with listing.asked_of(settings_of(context, url), url, token) as grid:
        found = listing.site_rows(grid, site or ())
    _print(found, as_json, show_sites)


@commands.command(epilog="Example: queuecast letters --site ctc --follow")
def letters(
    context: typer.Context,
    site: Site = None,
    reason: Annotated[str | None, opt("Those with this reason only.", callback=named)] = None,
    follow: Annotated[bool, flag("--follow", "Print each that comes from now on, one a line.")] = False,
    as_json: Annotated[bool, flag("--json", "The counts as JSON; with --follow JSON lines.")] = False,
) -> None:
    """Print the messages that could not be processed, the dead letters, by reason."""
    from streams.operate.letters import LetterFilter, by_reason, coming_letters, line, read_letters, show

    wanted = LetterFilter(site, reason)
    settings = settings_of(context)
    if not follow:
        counts = by_reason(read_letters(settings, wanted))
        _print(counts, as_json, show)
        return
    waiting = "no dead letter has come yet, which is as it should be; Ctrl-C ends it"
    with closing(coming_letters(settings, wanted, tell)) as found, told_if_silent(waiting) as heard:
        for letter, at in found:
            heard()
            if as_json:
                print_json(letter)
            else:
                show_line(line(letter, at))


def _print(found: T, as_json: bool, show: Callable[[T], None]) -> None:
    if as_json:
        print_json(found)
    else:
        show(found)


@commands.command(epilog="Example: queuecast watch --site ctc --outcomes --from-beginning --count 20")
def watch(
    context: typer.Context,
    site: Site = None,
    job: Annotated[str | None, opt("Those of this job only.", callback=named)] = None,
    outcomes: Annotated[bool, flag("--outcomes", "What became of them too, at each job's start and end.")] = False,
    from_beginning: Annotated[
        bool, flag("--from-beginning", "What the topics hold already too, not just what comes.")
    ] = False,
    as_json: Annotated[bool, flag("--json", "The records as they are, JSON lines.")] = False,
    count: Annotated[int | None, opt("Stop after this many.", min=1)] = None,
) -> None:
    """Print predictions as they come, one a line; Ctrl-C ends it.

    With --outcomes a job that has a prediction gets two more lines: "started" with
    its actual wait beside the predicted one, and "ended" with its run time too. A
    job that is cancelled in the queue gets one.
    """
    from streams.broker.admin import check_topics
    from streams.client.blocking import each
    from streams.client.watch import json_line, kinds, late_s, line, records

    shown, waiting = 0, "nothing has come yet: predictions come as jobs are submitted; Ctrl-C ends it"
    settings = settings_of(context)
    check_topics(settings, dict.fromkeys(kinds(settings, outcomes), "read"))
    following = records(settings, site, job, outcomes, None, from_beginning, tell)
    with closing(each(following)) as found, told_if_silent(waiting) as heard:
        for record, message in found:
            heard()
            if as_json:
                sys.stdout.write(f"{json_line(message.value)}\n")
                sys.stdout.flush()
            else:
                show_line(line(record, late_s(message)))
            shown += 1
            if shown == count:
                return


@commands.command(
    epilog="Example: queuecast ask --cpus 64 --walltime 4h --site ctc --site kth, or"
    " queuecast ask --gpus 4 --gpu-type a100 --partition gpu --mem 64G --walltime 1d"
)
def ask(
    context: typer.Context,
    cpus: Annotated[int, opt("Processors.")] = 1,
    walltime: Annotated[
        str | None, opt("Requested, with its unit: 4h, 90m, 1d12h, 04:00:00; or unlimited.", "DURATION")
    ] = None,
    nodes: Annotated[int | None, opt("Nodes.")] = None,
    tasks: Annotated[int | None, opt("Tasks.")] = None,
    exclusive: Annotated[bool, flag("--exclusive", "Whole nodes.")] = False,
    queue: Annotated[str | None, opt("The queue.")] = None,
    partition: Annotated[str | None, opt("The partition, or all that it may start in.", "NAME[,...]")] = None,
    qos: Annotated[str | None, opt("The quality of service.")] = None,
    reservation: Annotated[str | None, opt("The reservation to run in.")] = None,
    constraint: Annotated[str | None, opt("What its nodes have to have: 'ib&(a100|h100)'.", "FEATURES")] = None,
    user: Annotated[str | None, opt("Who submits it.")] = None,
    group: Annotated[str | None, opt("The user's group.")] = None,
    account: Annotated[str | None, opt("Who pays for it.")] = None,
    executable: Annotated[str | None, opt("What it runs.")] = None,
    gpus: Annotated[int, opt("GPUs in all.")] = 0,
    gpu_type: Annotated[str | None, opt("Their type, such as a100.")] = None,
    memory: Annotated[
        str | None, opt("Memory in all nodes together: 64G, 512M, 1.5T.", "--memory", "--mem", "SIZE")
    ] = None,
    run: Annotated[str | None, opt("How long it runs at a site of speed 1. Default: as predicted.", "DURATION")] = None,
    by: By = None,
    prefer: Annotated[
        str | None, opt("This site first, unless another starts sooner.", "SITE", autocompletion=known_sites)
    ] = None,
    unless_sooner: Annotated[str | None, opt("With --prefer: by more than this. Default: 0s.", "DURATION")] = None,
    site: Sites = None,
    url: Url = None,
    token: Token = None,
    as_json: Annotated[bool, flag("--json", "Print the ranking as JSON.")] = False,
) -> None:
    """Ask where a job would be done first, if it were submitted now.

    The sites by response time: the wait and the run time. Nothing is submitted,
    and asking changes nothing. The exit code is 1 where no site has an estimate.
    `queuecast job` asks about one that was submitted already.
    """
    from models.ranking import JobRequest
    from streams.client import listing
    from streams.client.grid import RankFields, job_request
    from streams.client.listing import check_ranking, show_ranking
    from streams.text.quantities import seconds_of

    fields = JobRequest.__struct_fields__
    described = {field: value for field, value in context.params.items() if field in fields and value is not None}
    if memory is not None and memory.strip().isdecimal():
        raise typer.BadParameter(f"--mem {memory} has no unit; expected {memory}M, {memory}G, …: in all, not a node's.")
    job = job_request(**described)
    run_s = None if run is None else read_as("--run", seconds_of, run)
    asked: RankFields = {"sites": site or (), "run_s": run_s, "why": True}
    asked |= {"start_within": None if by is None else seconds_until(by)}
    asked |= {"prefer": prefer, "unless_sooner": unless_sooner}
    with listing.asked_of(settings_of(context, url), url, token) as grid:
        found = grid.rank(job, **asked)
    if as_json:
        print_json(found)
    else:
        show_ranking(found)
    check_ranking(found)


@commands.command(epilog="Example: queuecast notify --user ada --webhook https://chat.example.org/hooks/queuecast")
def notify(
    context: typer.Context,
    site: Sites = None,
    user: Annotated[list[str] | None, opt("This user's jobs only; repeatable.", callback=named)] = None,
    job: Annotated[list[str] | None, opt("This job only; repeatable.", callback=named)] = None,
    before: Annotated[str | None, opt("How long before its start a job is told. Default: 15m.", "DURATION")] = None,
    webhook: Annotated[str | None, opt("Where notices go. Default: as set.", "URL")] = None,
    web_port: Annotated[int | None, opt("Port of /metrics. Default: as set, else none.", min=1, max=65535)] = None,
    as_json: Annotated[bool, flag("--json", "Print the notices as JSON lines.")] = False,
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
    from streams.text.quantities import seconds_of

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
