"""The command `ask --job`: when a live job starts, asked through Kafka or of an HTTP service."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

import msgspec

from models.records import JobAnswer
from streams.client.ask import fetched, silence
from streams.client.blocking import Client
from streams.errors import UserError
from streams.settings import Settings
from streams.terminal import minute, moment, show_named, show_wrapped, span


class _Site(msgspec.Struct):
    site: str


class _Sites(msgspec.Struct):
    """What is read here of the service's list of sites."""

    sites: list[_Site]


def ask_job(settings: Settings, job: str, sites: Sequence[str] = ()) -> list[JobAnswer]:
    """Ask the workers of these sites, by default of all that are known, about a job.

    Raises:
        UserError: Kafka cannot be reached or refuses, or no worker answers.
    """

    with Client(settings, patience_s=0) as grid:
        by_site = grid.job(job, sites)
    found = [answer for answer in by_site.values() if answer is not None]
    if not found:
        raise silence(by_site)
    return found


def ask_job_of_service(url: str, token: str | None, job: str, sites: Sequence[str] = ()) -> list[JobAnswer]:
    """Ask an HTTP service about a job; the other parameters are those of `ask_job`.

    Raises:
        UserError: the service cannot be reached or refuses.
    """
    chosen = sites or [one.site for one in fetched(url, "/v1/sites", token, _Sites).sites]
    path = "/v1/sites/{}/jobs/{}"
    return [fetched(url, path.format(quote(site, safe=""), quote(job, safe="")), token, JobAnswer) for site in chosen]


def show(answers: Sequence[JobAnswer]) -> None:
    """Print a line for each site that knows the job, with why it waits.

    Raises:
        UserError: no site knows it.
    """
    known = [answer for answer in answers if answer.expected_start is not None or answer.live is not None]
    if not known:
        raise UserError("; ".join(f"{answer.site}: {answer.text}" for answer in answers))
    for answer in known:
        start = "" if answer.expected_start is None else f" ({minute(answer.expected_start)})"
        show_wrapped(f"{answer.site} {answer.job}: {answer.text}{start}")
        show_named(_details(answer))


def _details(answer: JobAnswer) -> Iterator[tuple[str, str]]:
    """What else is known of a job, by name."""
    if answer.starts_by:
        bounds = [(share, at) for share, at in answer.starts_by.items() if float(share) > 0.5]
        yield "at the latest", ", ".join(f"{minute(at)} with {float(share):.0%}" for share, at in bounds)
    if (live := answer.live) is not None:
        now = answer.as_of or answer.made_at
        if live.start is None:
            yield "since", f"{minute(live.submit)}, {span(max(now - live.submit, 0.0))} in the queue"
        else:
            yield "since", f"{minute(live.start)}, after {span(max(live.start - live.submit, 0.0))} in the queue"
        asked = f"{live.cpus} {'cpu' if live.cpus == 1 else 'cpus'}"
        yield "asked for", asked + ("" if live.walltime is None else f" for {span(live.walltime)}")
        if live.why:
            yield "why", live.why
    if answer.as_of is not None:
        yield "as of", moment(answer.as_of)
    if answer.stale is not None:
        yield "stale", answer.stale
