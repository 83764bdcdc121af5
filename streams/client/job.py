"""The command `ask --job`: when a live job starts, asked through Kafka or of an HTTP service."""

import sys
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from models.records import JobAnswer, JobQuestion
from streams.client.ask import fetched
from streams.client.client import QuestionClient
from streams.client.questions import new_id
from streams.client.ranking import ask_all
from streams.client.run import with_client
from streams.errors import UserError
from streams.settings import Settings
from streams.terminal import moment, printable


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

    async def ask(client: QuestionClient) -> list[JobAnswer]:
        asked = list(sites) or [*client.cache.sites, *settings.serve.sites]
        answers = await ask_all(client, [JobQuestion(id=new_id(), site=site, job=job) for site in dict.fromkeys(asked)])
        found = [answer for answer in answers.values() if isinstance(answer, JobAnswer)]
        if not found:
            raise UserError(f"no worker answers for {', '.join(asked) or 'any site'}")
        return found

    return with_client(settings, ask)


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
        start = "" if answer.expected_start is None else f" ({moment(answer.expected_start)[:-3]} UTC)"
        sys.stdout.write(printable(f"{answer.site} {answer.job}: {answer.text}{start}") + "\n")
        if answer.live is not None and answer.live.why:
            sys.stdout.write(printable(f"  why: {answer.live.why}") + "\n")
        if answer.stale is not None:
            sys.stdout.write(printable(f"  stale: {answer.stale}") + "\n")
