"""What commands ask: the workers through Kafka, or an HTTP service, by one interface."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from models.records import JobsAnswer, LiveJob, LiveState, SiteAnswer
from streams.client.blocking import Client
from streams.client.http import HttpClient, SiteSummary
from streams.errors import UserError
from streams.settings import Settings

NO_SITE = "no site is known yet: does a worker run, and have events come to it?"

T = TypeVar("T")


class SiteJobs(msgspec.Struct, frozen=True):
    """Jobs of one site, of the moment `as_of` (its last event, Unix seconds); `more` are left out."""

    site: str
    as_of: float | None
    jobs: list[LiveJob]
    more: int = 0
    stale: str | None = None


class SiteRow(msgspec.Struct, frozen=True):
    """A site in a list, of the moment `as_of`; `problem` says why it cannot be gone by, null where it can."""

    site: str
    cpus: int | None
    live: LiveState | None
    as_of: float | None
    lag_events: int
    problem: str | None


def asked_of(settings: Settings, url: str | None, token: str | None) -> Client | HttpClient:
    """Who is asked: the service at this address, with this token or that of the settings; without one the workers."""
    return HttpClient(url, token or settings.serve.token) if url else Client(settings, patience_s=0)


def user_jobs(answers: Mapping[str, JobsAnswer | None]) -> list[SiteJobs]:
    """A user's jobs, by site."""
    return [SiteJobs(one.site, one.as_of or one.made_at, one.jobs, one.more, one.stale) for one in answered(answers)]


def longest_queued(answers: Mapping[str, SiteAnswer | None]) -> list[SiteJobs]:
    """The jobs that have queued longest, by site."""
    return [
        SiteJobs(one.site, one.as_of or one.made_at, one.queued, _left_out(one), one.stale) for one in answered(answers)
    ]


def _left_out(answer: SiteAnswer) -> int:
    return max(answer.live.queued_jobs - len(answer.queued), 0)


def site_rows(client: Client | HttpClient, names: Sequence[str] = ()) -> list[SiteRow]:
    """The sites with their state, also those whose worker is silent."""
    if isinstance(client, HttpClient):
        return [_row(one) for one in client.summaries(names)]
    return [
        SiteRow(site, None, None, None, 0, "no worker answers") if answer is None else _row(answer)
        for site, answer in client.every_site(names).items()
    ]


def _row(answer: SiteAnswer | SiteSummary) -> SiteRow:
    problem = answer.stale or answer.degraded
    return SiteRow(answer.site, answer.cpus, answer.live, answer.as_of, answer.lag_events, problem)


def answered(by_site: Mapping[str, T | None]) -> list[T]:
    """The answers of the sites that answer.

    Raises:
        UserError: none does.
    """
    found = [answer for answer in by_site.values() if answer is not None]
    if not found:
        raise UserError(f"no worker answers for {', '.join(by_site)}" if by_site else NO_SITE)
    return found
