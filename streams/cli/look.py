"""The commands of who looks at what is known: jobs, job, sites, letters."""

from collections.abc import Callable
from contextlib import closing
from typing import Annotated, TypeVar

import typer

from streams.cli.options import Site, known_sites, named, settings_of
from streams.cli.output import print_json, told_if_silent
from streams.errors import read_as
from streams.text.terminal import show_line

commands = typer.Typer()

T = TypeVar("T")

Sites = Annotated[
    list[str] | None,
    typer.Option(autocompletion=known_sites, callback=named, help="Only this site; repeatable. Default: all."),
]
Url = Annotated[str | None, typer.Option(help="Ask this service, not through Kafka.")]
Token = Annotated[str | None, typer.Option(help="The service's token. Default: the settings'.")]
By = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How probable it is that it starts by then: 17:00, 2026-05-04T08:00, 3h."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")]


@commands.command(epilog="Example: queuecast jobs --user ada --site ctc")
def jobs(
    context: typer.Context,
    user: Annotated[
        str | None, typer.Option(callback=named, help="This user's. Default: those that have queued longest.")
    ] = None,
    site: Sites = None,
    most: Annotated[int, typer.Option(min=1, max=1000, help="Of a site, at most.")] = 20,
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
    job_id: Annotated[str, typer.Argument(metavar="ID", callback=named, help="The job's id.")],
    by: By = None,
    told: Annotated[
        bool, typer.Option("--told", help="Print its estimates over time, too, from its submission on.")
    ] = False,
    site: Sites = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Say when a job starts that was submitted, by when at the latest, since when it queues, and why not yet."""
    from streams.client import listing
    from streams.client.job import check, show

    within_s = None if by is None else seconds_until(by)
    with listing.asked_of(settings_of(context, url), url, token) as grid:
        found = listing.answered(grid.job(job_id, site or ()))
    _print(found, as_json, lambda answers: show(answers, within_s, told))
    check(found)


def seconds_until(by: str) -> float:
    """Seconds from now to a time that is given as --by, on this machine's clock.

    Raises:
        NotUnderstood: it is no time to come.
    """
    from datetime import datetime

    from streams.text.durations import deadline_of

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
    reason: Annotated[str | None, typer.Option(callback=named, help="Those with this reason only.")] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Print each that comes from now on, one a line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The counts as JSON; with --follow JSON lines.")] = False,
) -> None:
    """Print the messages that could not be processed, the dead letters, by reason."""
    from streams.operate.letters import LetterFilter, by_reason, line, read_letters, show

    wanted = LetterFilter(site, reason)
    settings = settings_of(context)
    if not follow:
        counts = by_reason(read_letters(settings, wanted))
        _print(counts, as_json, show)
        return
    waiting = "no dead letter has come yet, which is as it should be; Ctrl-C ends it"
    with closing(read_letters(settings, wanted, follow=True)) as found, told_if_silent(waiting) as heard:
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
