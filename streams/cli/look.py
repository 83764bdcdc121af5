"""Query commands: jobs, job, sites, dead-letters, watch, ask, notify."""

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
    warn,
    warned_if_silent,
)
from streams.errors import UserError, read_as
from streams.text.terminal import minute, printable, show_line

if TYPE_CHECKING:
    from models.records import Notice
    from streams.settings import Settings

commands = typer.Typer()

T = TypeVar("T")

Sites = Annotated[list[str] | None, opt("Site; repeatable. Default: all.", autocompletion=known_sites, callback=named)]
Url = Annotated[str | None, opt("HTTP service to query. Default: query through Kafka.")]
Token = Annotated[str | None, opt("Token of the service. Default: from the settings.")]
Deadline = Annotated[
    str | None, opt("Print the probability of a start before then: 17:00, 2026-05-04T08:00, 3h.", "TIME")
]
AsJson = Annotated[bool, flag("--json", "Print the answers as JSON.")]


@commands.command(epilog="Example: queuecast jobs --user ada --site ctc")
def jobs(
    context: typer.Context,
    user: Annotated[str | None, opt("User. Default: the longest pending jobs.", callback=named)] = None,
    site: Sites = None,
    limit: Annotated[int, opt("Maximum number of jobs per site.", min=1, max=1000)] = 20,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Print pending jobs with their expected and latest start and the reason.

    With --user running jobs too.
    """
    from streams.client import listing
    from streams.client.listing import show_jobs

    with listing.client_for(settings_of(context, url), url, token) as grid:
        if user is None:
            found = listing.longest_queued(grid.every_site(site or (), limit))
        else:
            found = listing.user_jobs(grid.jobs(user, site or (), limit))
    _print(found, as_json, show_jobs)


@commands.command(epilog="Example: queuecast job 4711 --site ctc --start-before 17:00")
def job(
    context: typer.Context,
    job_id: Annotated[str, arg("Job id.", "ID", callback=named)],
    start_before: Deadline = None,
    history: Annotated[bool, flag("--history", "Also print all estimates since its submission.")] = False,
    site: Sites = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Print the expected and latest start of a submitted job, and why it is pending."""
    from streams.client import listing
    from streams.client.listing import check_job, show_job

    within_s = None if start_before is None else seconds_until(start_before)
    with listing.client_for(settings_of(context, url), url, token) as grid:
        found = listing.answered(grid.job(job_id, site or ()))
    _print(found, as_json, lambda answers: show_job(answers, within_s, history))
    check_job(found)


def seconds_until(time: str) -> float:
    """Seconds from now to the time given as --start-before, on this machine's clock.

    Raises:
        InvalidInput: Not a valid time, or in the past.
    """
    from datetime import datetime

    from streams.text.quantities import deadline_of

    now = datetime.now().astimezone()
    return read_as("--start-before", lambda text: deadline_of(text, now), time).timestamp() - now.timestamp()


@commands.command(epilog="Example: queuecast sites")
def sites(
    context: typer.Context, site: Sites = None, url: Url = None, token: Token = None, as_json: AsJson = False
) -> None:
    """Print the sites: size, free resources, jobs, age of the data, and problems."""
    from streams.client import listing
    from streams.client.listing import show_sites

    with listing.client_for(settings_of(context, url), url, token) as grid:
        found = listing.site_rows(grid, site or ())
    _print(found, as_json, show_sites)


@commands.command("dead-letters", epilog="Example: queuecast dead-letters --site ctc --follow")
def dead_letters(
    context: typer.Context,
    site: Site = None,
    reason: Annotated[str | None, opt("Reason.", callback=named)] = None,
    follow: Annotated[bool, flag("--follow", "Print new ones as they arrive, one a line.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the counts as JSON; with --follow JSON lines.")] = False,
) -> None:
    """Print the number of dead letters (messages that could not be processed) by reason."""
    from streams.operate.dead_letters import LetterFilter, by_reason, coming_letters, line, read_letters, show

    wanted = LetterFilter(site, reason)
    settings = settings_of(context)
    if not follow:
        counts = by_reason(read_letters(settings, wanted))
        _print(counts, as_json, show)
        return
    waiting = "No dead letters yet. Press Ctrl-C to stop."
    with closing(coming_letters(settings, wanted, warn)) as found, warned_if_silent(waiting) as heard:
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
    job: Annotated[str | None, opt("Job id.", callback=named)] = None,
    outcomes: Annotated[bool, flag("--outcomes", "Also print outcomes, at the start and the end of each job.")] = False,
    from_beginning: Annotated[bool, flag("--from-beginning", "Also print the records already on the topics.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the records as JSON lines.")] = False,
    count: Annotated[int | None, opt("Maximum number of records.", min=1)] = None,
) -> None:
    """Print predictions as they arrive, one a line, until Ctrl-C.

    With --outcomes a predicted job has two more lines: "started" with the actual
    and the predicted wait, and "ended" with the run time too. A job cancelled in
    the queue has one.
    """
    from streams.broker.admin import check_topics
    from streams.client.blocking import iterate
    from streams.client.watch import json_line, kinds, late_s, line, records

    shown, settings = 0, settings_of(context)
    check_topics(settings, dict.fromkeys(kinds(settings, outcomes), "read"))
    following = records(settings, site, job, outcomes, None, from_beginning, warn)
    with closing(iterate(following)) as found, warned_if_silent(lambda: waiting_notice(settings, site)) as heard:
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


def waiting_notice(settings: "Settings", site: str | None) -> str:
    """Return the notice of `watch` before the first record; it lists the sites if `site` has no estimates."""
    from streams.client import listing
    from streams.client.pending_questions import unknown_site

    notice = "Waiting for predictions; none received yet."
    if site is not None:
        try:
            with listing.client_for(settings, None, None) as grid:
                sites = grid.sites
        except UserError:  # no worker answers, or this user may not read the estimates
            sites = []
        if sites and site not in sites:
            missing = printable(str(unknown_site(site, sites)))
            notice += f" {missing[:1].upper()}{missing[1:]}. A new site appears with its first estimates."
    return f"{notice} Press Ctrl-C to stop."


@commands.command(
    epilog="Example: queuecast ask --cpus 64 --walltime 4h --site ctc --site kth, or"
    " queuecast ask --gpus 4 --gpu-type a100 --partition gpu --mem 64G --walltime 1d"
)
def ask(
    context: typer.Context,
    cpus: Annotated[int, opt("CPUs.")] = 1,
    walltime: Annotated[
        str | None, opt("Time limit with its unit: 4h, 90m, 1d12h, 04:00:00; or unlimited.", "DURATION")
    ] = None,
    nodes: Annotated[int | None, opt("Nodes.")] = None,
    tasks: Annotated[int | None, opt("Tasks.")] = None,
    exclusive: Annotated[bool, flag("--exclusive", "Whole nodes.")] = False,
    queue: Annotated[str | None, opt("Queue.")] = None,
    partition: Annotated[str | None, opt("Partition, or all partitions that it may start in.", "NAME[,...]")] = None,
    qos: Annotated[str | None, opt("QOS.")] = None,
    reservation: Annotated[str | None, opt("Reservation.")] = None,
    constraint: Annotated[str | None, opt("Required node features: 'ib&(a100|h100)'.", "FEATURES")] = None,
    user: Annotated[str | None, opt("Submitting user.")] = None,
    group: Annotated[str | None, opt("Group of the user.")] = None,
    account: Annotated[str | None, opt("Account to charge.")] = None,
    executable: Annotated[str | None, opt("Executable name.")] = None,
    gpus: Annotated[int, opt("Total GPUs.")] = 0,
    gpu_type: Annotated[str | None, opt("GPU type, such as a100.")] = None,
    memory: Annotated[
        str | None, opt("Total memory of all nodes: 64G, 512M, 1.5T.", "--memory", "--mem", "SIZE")
    ] = None,
    run: Annotated[str | None, opt("Run time at a site of speed 1. Default: predicted.", "DURATION")] = None,
    start_before: Deadline = None,
    prefer: Annotated[
        str | None, opt("Preferred site, unless another starts sooner.", "SITE", autocompletion=known_sites)
    ] = None,
    unless_sooner: Annotated[
        str | None, opt("With --prefer: margin by which another must start sooner. Default: 0s.", "DURATION")
    ] = None,
    site: Sites = None,
    url: Url = None,
    token: Token = None,
    as_json: Annotated[bool, flag("--json", "Print the ranking as JSON.")] = False,
) -> None:
    """Rank the sites for a job by its response time if submitted now.

    The response time is the wait plus the run time. Nothing is submitted. The exit
    code is 1 if no site has an estimate. `queuecast job` queries a submitted job.
    """
    from models.ranking import JobRequest
    from streams.client import listing
    from streams.client.job_requests import RankFields, job_request
    from streams.client.listing import check_ranking, show_ranking
    from streams.text.quantities import seconds_of

    fields = JobRequest.__struct_fields__
    described = {field: value for field, value in context.params.items() if field in fields and value is not None}
    if memory is not None and memory.strip().isdecimal():
        raise typer.BadParameter(f"--mem {memory} has no unit; expected {memory}M, {memory}G, …: in all, not a node's.")
    job = job_request(**described)
    run_s = None if run is None else read_as("--run", seconds_of, run)
    options: RankFields = {"sites": site or (), "run_s": run_s, "why": True}
    options |= {"start_within": None if start_before is None else seconds_until(start_before)}
    options |= {"prefer": prefer, "unless_sooner": unless_sooner}
    with listing.client_for(settings_of(context, url), url, token) as grid:
        found = grid.rank(job, **options)
    if as_json:
        print_json(found)
    else:
        show_ranking(found)
    check_ranking(found)


@commands.command(epilog="Example: queuecast notify --user ada --webhook https://chat.example.org/hooks/queuecast")
def notify(
    context: typer.Context,
    site: Sites = None,
    user: Annotated[list[str] | None, opt("User; repeatable. Default: all.", callback=named)] = None,
    job: Annotated[list[str] | None, opt("Job id; repeatable. Default: all.", callback=named)] = None,
    before: Annotated[
        str | None, opt("Lead time of notices before the expected start. Default: 15m.", "DURATION")
    ] = None,
    webhook: Annotated[str | None, opt("Webhook for notices. Default: from the settings.", "URL")] = None,
    web_port: Annotated[
        int | None, opt("Port of /metrics. Default: from the settings, else none.", min=1, max=65535)
    ] = None,
    as_json: Annotated[bool, flag("--json", "Print the notices as JSON lines.")] = False,
) -> None:
    """Send notices for pending jobs: about to start, delayed, or sooner than expected.

    Notices go to the topic `notices`, to the webhook if there is one, and to
    stdout, one a line. A restart does not repeat earlier notices; one in delivery
    may arrive twice, with the same id. Webhook requests are signed with the secret
    in the settings (notify.secret). Runs until it is stopped.
    """
    import asyncio

    from streams.notify.notifier import run_notify
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
