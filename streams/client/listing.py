"""The commands `jobs` and `sites`: asked through Kafka or of an HTTP service, and printed."""

import sys
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from models.records import JobsAnswer, LiveJob, LiveState, SiteAnswer
from streams.client.ask import NO_SITE, fetched, silence
from streams.client.blocking import Client
from streams.settings import Settings
from streams.terminal import minute, moment, printable, show_listed, show_table, span

LATEST = "0.9"
"""The bound of which a start is told to be at the latest."""

JOB_COLUMNS, SITE_COLUMNS = 14, 12
"""How wide a job's and a site's name is in a table; a longer one is cut."""


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


class _UserJobs(msgspec.Struct):
    """What is read here of a service's list of a user's jobs."""

    sites: list[JobsAnswer]


class _Site(msgspec.Struct):
    """What is read here of a site in a service's list."""

    site: str
    cpus: int
    live: LiveState
    as_of: float | None = None
    lag_events: int = 0
    stale: str | None = None
    degraded: str | None = None


class _Sites(msgspec.Struct):
    sites: list[_Site]


def jobs(settings: Settings, user: str | None, sites: Sequence[str], most: int) -> list[SiteJobs]:
    """A user's jobs at these sites, by default at all; without a user those that have queued longest.

    Raises:
        UserError: Kafka cannot be reached or refuses, or no worker answers.
    """
    with Client(settings, patience_s=0) as grid:
        if user is not None:
            told = grid.jobs(user, sites, most)
            found = [_of_user(answer) for answer in told.values() if answer is not None]
            asked = list(told)
        else:
            of_sites = grid.every_site(sites, most)
            found = [_of_site(answer) for answer in of_sites.values() if answer is not None]
            asked = list(of_sites)
    if not found:
        raise silence(asked)
    return found


def jobs_of_service(url: str, token: str | None, user: str | None, sites: Sequence[str]) -> list[SiteJobs]:
    """The same of an HTTP service; without a user as many as it tells.

    Raises:
        UserError: the service cannot be reached or refuses.
    """
    if user is not None:
        answers = fetched(url, f"/v1/users/{quote(user, safe='')}/jobs", token, _UserJobs).sites
        return [_of_user(answer) for answer in answers if not sites or answer.site in sites]
    names = sites or [one.site for one in fetched(url, "/v1/sites", token, _Sites).sites]
    return [_of_site(fetched(url, f"/v1/sites/{quote(name, safe='')}", token, SiteAnswer)) for name in names]


def _of_user(answer: JobsAnswer) -> SiteJobs:
    return SiteJobs(answer.site, answer.as_of or answer.made_at, answer.jobs, answer.more, answer.stale)


def _of_site(answer: SiteAnswer) -> SiteJobs:
    more = answer.live.queued_jobs - len(answer.queued)
    return SiteJobs(answer.site, answer.as_of or answer.made_at, answer.queued, max(more, 0), answer.stale)


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
    show_listed("why", [(job.job, _why(job)) for _, job in waiting if job.why or job.expected_start is None])
    show_listed("of", [(of.site, _moment_of(of)) for of in found])


def _waiting(of: SiteJobs, job: LiveJob) -> list[str]:
    since = span(max(of.as_of - job.submit, 0.0)) if of.as_of is not None else "–"
    bound = (job.bounds or {}).get(LATEST)
    latest = None if bound is None else job.submit + bound
    if latest is not None and of.as_of is not None and latest < max(of.as_of, job.expected_start or 0.0):
        by = "passed"
    else:
        by = "–" if latest is None else minute(latest, zone=False)
    starts = _no_start(job) if job.expected_start is None else minute(job.expected_start, zone=False)
    return [_cut(job.job, JOB_COLUMNS), _cut(of.site, SITE_COLUMNS), str(job.cpus), since, starts, by]


def _why(job: LiveJob) -> str:
    return job.why or (job.reason if job.held_back is msgspec.UNSET else job.held_back)


def _no_start(job: LiveJob) -> str:
    if job.held_back is not msgspec.UNSET:
        return "not promised"
    return "held" if job.phase == "held" else "unknown"


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


def sites(settings: Settings, names: Sequence[str] = ()) -> list[SiteRow]:
    """The sites that are known, or these.

    Raises:
        UserError: Kafka cannot be reached or refuses.
    """
    with Client(settings, patience_s=0) as grid:
        answers = grid.every_site(names)
    return [
        SiteRow(site, None, None, None, 0, "no worker answers")
        if answer is None
        else SiteRow(site, answer.cpus, answer.live, answer.as_of, answer.lag_events, answer.stale or answer.degraded)
        for site, answer in answers.items()
    ]


def sites_of_service(url: str, token: str | None, names: Sequence[str] = ()) -> list[SiteRow]:
    """The same of an HTTP service.

    Raises:
        UserError: the service cannot be reached or refuses.
    """
    return [
        SiteRow(one.site, one.cpus, one.live, one.as_of, one.lag_events, one.stale or one.degraded)
        for one in fetched(url, "/v1/sites", token, _Sites).sites
        if not names or one.site in names
    ]


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
    return [_cut(one.site, 2 * SITE_COLUMNS), cpus, *counts, last, str(one.lag_events)]
