"""The commands `jobs` and `sites`: whom they ask, the workers or an HTTP service, and how they print the answers."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from models.records import JobsAnswer, LiveJob, LiveState, SiteAnswer
from streams.client.blocking import Client
from streams.client.http import HttpClient, SiteSummary
from streams.errors import UserError
from streams.settings import Settings
from streams.text.terminal import minute, moment, printable, show_listed, show_table, span

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
    lag_messages: int
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
    return SiteRow(answer.site, answer.cpus, answer.live, answer.as_of, answer.lag_messages, problem)


def answered(by_site: Mapping[str, T | None]) -> list[T]:
    """The answers of the sites that answer. Raises UserError: none does."""
    found = [answer for answer in by_site.values() if answer is not None]
    if not found:
        raise UserError(f"no worker answers for {', '.join(by_site)}" if by_site else NO_SITE)
    return found


LATEST = "0.9"
"""The bound of which a start is told to be at the latest."""

JOB_COLUMNS, SITE_COLUMNS = 14, 12
"""How wide a job's and a site's name is in a table; a longer one is cut."""


def show_jobs(found: Sequence[SiteJobs]) -> None:
    """Print the jobs that wait with their expected starts, those that run below them, and why they wait."""
    waiting = [(of, job) for of in found for job in of.jobs if job.start is None]
    if waiting:
        heads = ["job", "site", "cpus", "queued", "starts (UTC)", "90 % by (UTC)"]
        show_table(heads, [_waiting(of, job) for of, job in waiting])
    else:
        sys.stdout.write("no job queues\n")
    running = [(of, job) for of in found for job in of.jobs if job.start is not None]
    show_listed("running", [(job.job, _running(of, job)) for of, job in running])
    show_listed("why", _whys(waiting))
    show_listed("as of", [(of.site, _moment_of(of)) for of in found])


def _waiting(of: SiteJobs, job: LiveJob) -> list[str]:
    since = span(max(of.as_of - job.submit, 0.0)) if of.as_of is not None else "–"
    bound = None if job.held_back else (job.bounds or {}).get(LATEST)
    latest = None if bound is None else (job.eligible or job.submit) + bound
    passed = latest is not None and latest < max(of.as_of or 0.0, job.expected_start or 0.0)
    by = "–" if latest is None or passed else minute(latest, zone=False)
    unknown = "held" if job.phase == "held" else "unknown"
    starts = unknown if job.expected_start is None else minute(job.expected_start, zone=False)
    return [_cut(job.job, JOB_COLUMNS), _cut(of.site, SITE_COLUMNS), str(job.cpus), since, starts, by]


def _whys(waiting: Sequence[tuple[SiteJobs, LiveJob]]) -> Iterator[tuple[str, str]]:
    """Why jobs wait: what is said of each alone, by its name, then once what is said of several of a site."""
    alone: dict[tuple[str, str], list[str]] = {}
    by_site: dict[tuple[str, str], list[str]] = {}
    for of, job in waiting:
        unknown = job.reason if job.held_back is msgspec.UNSET else job.held_back
        for said in filter(None, (job.why or ("" if job.expected_start is not None else unknown)).split("; ")):
            by_site.setdefault((of.site, said), []).append(job.job)
    for (site, said), jobs in by_site.items():
        if len(jobs) == 1:
            alone.setdefault((site, jobs[0]), []).append(said)
    yield from ((job, "; ".join(said)) for (_, job), said in alone.items())
    yield from ((site, f"{', '.join(jobs)}: {said}") for (site, said), jobs in by_site.items() if len(jobs) > 1)


def _running(of: SiteJobs, job: LiveJob) -> str:
    started = "" if job.start is None else f" since {minute(job.start)}"
    waited = "" if job.start is None else f", after {span(max(job.start - job.submit, 0.0))} in the queue"
    return f"{job.phase} at {of.site} on {job.cpus} {'cpu' if job.cpus == 1 else 'cpus'}{started}{waited}"


def _moment_of(of: SiteJobs) -> str:
    more = f"; {of.more} more jobs are left out" if of.more else ""
    stale = f"; stale: {of.stale}" if of.stale else ""
    return f"{'no event yet' if of.as_of is None else moment(of.as_of)}{more}{stale}"


def _cut(text: str, columns: int) -> str:
    whole = printable(text)
    return whole if len(whole) <= columns else f"{whole[: columns - 1]}…"


def show_sites(found: Sequence[SiteRow]) -> None:
    """Print the sites as a table, and below it what is wrong with any."""
    if not found:
        sys.stdout.write(f"{NO_SITE}\n")
        return
    heads = ["site", "cpus", "free", "queued", "running", "last event (UTC)", "unread"]
    show_table(heads, map(_site_cells, found))
    show_listed("mind", [(one.site, one.problem) for one in found if one.problem is not None])


def _site_cells(one: SiteRow) -> list[str]:
    last = "–" if one.as_of is None else minute(one.as_of, zone=False)
    live = one.live
    counts = ["–"] * 3 if live is None else [str(live.free_cpus), str(live.queued_jobs), str(live.running_jobs)]
    cpus = "–" if one.cpus is None else str(one.cpus)
    return [_cut(one.site, 2 * SITE_COLUMNS), cpus, *counts, last, str(one.lag_messages)]
