"""The query commands' output: tables of jobs, sites and rankings, and the details of one job."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from models.chances import chance_within
from models.durations import counted
from models.ranking import JobRequest, RankedSite, Ranking
from models.records import Alternative, JobAnswer, JobsAnswer, LiveJob, LiveState, PublishedStart, SiteAnswer
from streams.client.blocking import Client
from streams.client.http import HttpClient, SiteSummary
from streams.errors import UserError
from streams.process.compile_progress import compile_progress
from streams.settings import Settings
from streams.text.quantities import size_text
from streams.text.terminal import (
    minute,
    moment,
    printable,
    show_listed,
    show_named,
    show_table,
    show_wrapped,
    span,
)

NO_SITE = "no site is registered yet: is a worker running, and has it received events?"

T = TypeVar("T")


class SiteJobs(msgspec.Struct, frozen=True):
    """Jobs of one site at the time `as_of` (its last event, Unix seconds); `more` is the number left out."""

    site: str
    as_of: float | None
    jobs: list[LiveJob]
    more: int = 0
    stale: str | None = None


class SiteRow(msgspec.Struct, frozen=True):
    """A site in a list at the time `as_of`; `problem` is the reason if its data are not reliable."""

    site: str
    cpus: int | None
    live: LiveState | None
    as_of: float | None
    lag_messages: int
    problem: str | None


def client_for(settings: Settings, url: str | None, token: str | None) -> Client | HttpClient:
    """Return a client of the service at this address, with this token or that of the settings; else of the workers."""
    return HttpClient(url, token or settings.serve.token) if url else Client(settings, patience_s=0)


def user_jobs(answers: Mapping[str, JobsAnswer | None]) -> list[SiteJobs]:
    """A user's jobs, by site."""
    return [SiteJobs(one.site, one.as_of or one.made_at, one.jobs, one.more, one.stale) for one in answered(answers)]


def longest_queued(answers: Mapping[str, SiteAnswer | None]) -> list[SiteJobs]:
    """Return the longest-pending jobs, by site."""
    return [
        SiteJobs(
            one.site, one.as_of or one.made_at, one.queued, max(one.live.queued_jobs - len(one.queued), 0), one.stale
        )
        for one in answered(answers)
    ]


def site_rows(client: Client | HttpClient, names: Sequence[str] = ()) -> list[SiteRow]:
    """Return the state of the sites, including those whose worker does not answer."""
    if isinstance(client, HttpClient):
        return [_row(one, one.stale) for one in client.summaries(names)]
    return [
        SiteRow(site, None, None, None, 0, "no worker answers")
        if answer is None
        else _row(answer, answer.stale or answer.degraded)
        for site, answer in client.every_site(names).items()
    ]


def _with_progress(problem: str) -> str:
    """Add the progress of a worker that compiles on this machine to a problem."""
    progress = compile_progress()
    return f"{problem}; a worker here is {progress}" if progress else problem


def _row(answer: SiteAnswer | SiteSummary, problem: str | None) -> SiteRow:
    return SiteRow(answer.site, answer.cpus, answer.live, answer.as_of, answer.lag_messages, problem)


def answered(by_site: Mapping[str, T | None]) -> list[T]:
    """Return the answers of the sites that answer.

    Raises:
        UserError: no site answers.
    """
    found = [answer for answer in by_site.values() if answer is not None]
    if not found:
        problem = f"no worker answers for {', '.join(by_site)}" if by_site else NO_SITE
        raise UserError(_with_progress(problem))
    return found


LATEST = "0.9"  # the bound that is shown as the latest start
JOB_COLUMNS, SITE_COLUMNS = 14, 12  # how wide a job's and a site's name is in a table; a longer one is cut


def show_jobs(found: Sequence[SiteJobs]) -> None:
    """Print the pending jobs with their expected starts, the running jobs below them, and the reasons of the waits."""
    waiting = [(of, job) for of in found for job in of.jobs if job.start is None]
    if waiting:
        heads = ["job", "site", "cpus", "queued", "starts (UTC)", "90 % by (UTC)"]
        show_table(heads, [_waiting(of, job) for of, job in waiting])
    else:
        sys.stdout.write("no pending jobs\n")
    running = [(of, job, job.start) for of in found for job in of.jobs if job.start is not None]
    show_listed("running", [(job.job, _running(of, job, start)) for of, job, start in running])
    arrays = [job for _, job in waiting if job.tasks_remaining is not msgspec.UNSET]
    show_listed("tasks", [(job.job, _tasks(job)) for job in arrays])
    show_listed("why", _wait_reasons(waiting))
    show_listed("as of", [(of.site, _moment_of(of)) for of in found])


def _waiting(of: SiteJobs, job: LiveJob) -> list[str]:
    since = span(max(of.as_of - job.submit, 0.0)) if of.as_of is not None else "–"
    bound = None if job.blocked_by else (job.bounds or {}).get(LATEST)
    latest = None if bound is None else (job.eligible or job.submit) + bound
    passed = latest is not None and latest < max(of.as_of or 0.0, job.expected_start or 0.0)
    by = _minute(None if passed else latest)
    unknown = "held" if job.phase == "held" else "unknown"
    starts = unknown if job.expected_start is None else minute(job.expected_start, zone=False)
    return [_cut(job.job, JOB_COLUMNS), _cut(of.site, SITE_COLUMNS), str(job.cpus), since, starts, by]


def _wait_reasons(waiting: Sequence[tuple[SiteJobs, LiveJob]]) -> Iterator[tuple[str, str]]:
    """Yield the reasons of waits: those of a single job under its name, shared ones once under their site."""
    alone: dict[tuple[str, str], list[str]] = {}
    by_site: dict[tuple[str, str], list[str]] = {}
    for of, job in waiting:
        unknown = job.reason if job.blocked_by is msgspec.UNSET else job.blocked_by
        for reason in filter(None, (job.why or ("" if job.expected_start is not None else unknown)).split("; ")):
            by_site.setdefault((of.site, reason), []).append(job.job)
    for (site, reason), jobs in by_site.items():
        if len(jobs) == 1:
            alone.setdefault((site, jobs[0]), []).append(reason)
    yield from ((job, "; ".join(reason)) for (_, job), reason in alone.items())
    yield from ((site, f"{', '.join(jobs)}: {reason}") for (site, reason), jobs in by_site.items() if len(jobs) > 1)


def _running(of: SiteJobs, job: LiveJob, start: float) -> str:
    waited = span(max(start - job.submit, 0.0))
    return f"{job.phase} at {of.site} on {counted(job.cpus, 'cpu')} since {minute(start)}, after {waited} in the queue"


def _moment_of(of: SiteJobs) -> str:
    more = f"; {of.more} more jobs are left out" if of.more else ""
    stale = f"; stale: {of.stale}" if of.stale else ""
    return f"{'no event yet' if of.as_of is None else moment(of.as_of)}{more}{stale}"


def _tasks(array: LiveJob) -> str:
    running = "" if array.tasks_running is msgspec.UNSET else f", {array.tasks_running:,} running"
    return f"{array.tasks_remaining:,} pending{running}"


def _minute(time: float | None) -> str:
    return "–" if time is None else minute(time, zone=False)


def _cut(text: str, columns: int) -> str:
    whole = printable(text)
    return whole if len(whole) <= columns else f"{whole[: columns - 1]}…"


def show_sites(found: Sequence[SiteRow]) -> None:
    """Print the sites as a table, and their problems below it."""
    if not found:
        sys.stdout.write(f"{_with_progress(NO_SITE)}\n")
        return
    heads = ["site", "cpus", "free", "queued", "running", "last event (UTC)", "unread"]
    show_table(heads, map(_site_cells, found))
    show_listed("mind", [(one.site, one.problem) for one in found if one.problem is not None])


def _site_cells(one: SiteRow) -> list[str]:
    live = one.live
    counts = ["–"] * 3 if live is None else [str(live.free_cpus), str(live.queued_jobs), str(live.running_jobs)]
    cpus = "–" if one.cpus is None else str(one.cpus)
    return [_cut(one.site, 2 * SITE_COLUMNS), cpus, *counts, _minute(one.as_of), str(one.lag_messages)]


def check_ranking(ranking: Ranking) -> None:
    """Check that at least one site has an estimate.

    Raises:
        UserError: no site has one.
    """
    if any(ranked.predicted_wait_s is not None for ranked in ranking.ranking):
        return
    if not ranking.ranking and not ranking.left_out:
        raise UserError(_with_progress(NO_SITE))
    raise UserError("no site has an estimate for this job")


def show_ranking(ranking: Ranking) -> None:
    """Print the job, the ranking as a table, and below it each site's state, the reasons and the sites left out."""
    within_s = ranking.start_within_s
    deadline = "" if within_s is None else f", to start within {span(within_s)}"
    sys.stdout.write(printable(parsed_request(ranking.job) + deadline) + "\n")
    if ranking.ranking:
        last = "response" if within_s is None else "in time"  # the response follows from the wait and the run time
        heads = ["site", "starts (UTC)", "wait", "90 % within", "run", last, "best"]
        sys.stdout.write("\n")
        show_table(heads, [_ranked_row(ranked, within_s is not None) for ranked in ranking.ranking])
    show_listed("now", [(ranked.site, _state(ranked)) for ranked in ranking.ranking])
    show_listed("why", [(ranked.site, _why(ranked)) for ranked in ranking.ranking])
    show_listed("sooner", [(ranked.site, _sooner(ranked)) for ranked in ranking.ranking if _sooner(ranked)])
    show_listed("left out", [(f"{out.site} {out.partition or ''}".strip(), out.reason) for out in ranking.left_out])


def parsed_request(job: JobRequest) -> str:
    """Describe a job as it was parsed: `8 cpus and 2 gpus for 4h, memory 64G, partition gpu`."""
    words = counted(job.cpus, "cpu")
    if job.counted_gpus:
        words += f" and {counted(job.counted_gpus, 'gpu')}"
        words += f" of type {job.gpu_type}" if job.gpu_type else ""
    if job.unlimited:
        words += " without a time limit"
    else:
        words += " without a walltime" if job.walltime is None else f" for {span(job.walltime)}"
    memory = None if job.memory is None else size_text(job.memory)
    named = ("queue", "partition", "user", "group", "account", "qos", "reservation", "constraint", "executable")
    more = {"nodes": job.nodes, "tasks": job.tasks, "memory": memory, **{name: getattr(job, name) for name in named}}
    whole = ["whole nodes"] if job.exclusive else []
    return ", ".join([words, *whole, *(f"{name} {value}" for name, value in more.items() if value)])


def _ranked_row(ranked: RankedSite, in_time: bool) -> list[str]:
    bound = span((ranked.bounds or {}).get(LATEST))
    times = ranked.predicted_wait_s, ranked.predicted_run_s, ranked.predicted_response_s
    wait, run, response = map(span, times)
    best = "–" if ranked.p_best is None else f"{100 * ranked.p_best:.0f} %"
    last = _in_time(ranked) if in_time else response
    return [ranked.site, _minute(ranked.predicted_start), wait, bound, run, last, best]


def _in_time(ranked: RankedSite) -> str:
    if ranked.p_start is None:
        return "–"
    highest = max(map(float, ranked.bounds or {"0": 0.0}))
    return chance(ranked.p_start, highest)


def chance(share: float, highest: float) -> str:
    """Format a probability from bounds, of which `highest` is the largest; beyond it only "over" is shown.

    >>> chance(0.723, 0.95), chance(0.95, 0.95), chance(0.004, 0.95)
    ('72 %', 'over 95 %', 'under 1 %')
    """
    if share >= highest:
        return f"over {100 * highest:.0f} %"
    return f"{100 * share:.0f} %" if share >= 0.01 else "under 1 %"


def _state(ranked: RankedSite) -> str:
    live = ranked.live
    jobs = f"{counted(live.queued_jobs, 'job')} queued, {live.running_jobs} running"
    as_of = "" if ranked.as_of is None else f"; as of {moment(ranked.as_of)}"
    stale = "" if ranked.stale is None else f"; stale: {ranked.stale}"
    return f"{jobs}, {live.free_cpus} of {ranked.site_cpus} CPUs free{as_of}{stale}"


def _why(ranked: RankedSite) -> str:
    fallback = " [by a grid estimate: its worker is silent]" if ranked.source == "grid" else ""
    stale = f"stale: {ranked.stale}"  # it is printed with the site's state
    problems = "; ".join(filter(None, ((ranked.degraded or "").replace(stale, ""), ranked.low_confidence)))
    problems = "; ".join(filter(None, dict.fromkeys(problems.split("; "))))  # both may contain the same problem
    behind = "ranked behind: " if ranked.low_confidence else ""
    reason = f"{ranked.method}: {ranked.reason}" if ranked.why is None else ranked.why.text
    return f"{reason}{fallback} [{behind}{problems}]" if problems else f"{reason}{fallback}"


def _sooner(ranked: RankedSite) -> str:
    """List the changes that would start the job sooner: `request 2h instead of 4h: 40m sooner`."""
    found = [] if ranked.why is None else ranked.why.instead
    return "; ".join(f"{_instead(one)}: {span(one.sooner_s)} sooner" for one in found)


def _instead(one: Alternative) -> str:
    if one.walltime is not None:
        return f"request {span(one.walltime)}"
    return f"request {one.cpus} cpus" if one.cpus is not None else f"queue {one.queue}"


def check_job(answers: Sequence[JobAnswer]) -> None:
    """Check that the job is registered at a site.

    Raises:
        UserError: it is registered at none.
    """
    if not any(map(_is_known, answers)):
        sites_by_text = {
            text: [answer.site for answer in answers if answer.text == text] for text in (a.text for a in answers)
        }
        raise UserError("; ".join(f"{', '.join(sites)}: {text}" for text, sites in sites_by_text.items()))


def show_job(answers: Sequence[JobAnswer], within_s: float | None = None, with_published: bool = False) -> None:
    """Print a line for each site that has the job, with the reason of its wait.

    Args:
        answers: the answers of the sites.
        within_s: also print the probability that it starts within this many seconds.
        with_published: also print its prediction history.
    """
    for answer in filter(_is_known, answers):
        start = "" if answer.expected_start is None else f" ({minute(answer.expected_start)})"
        show_wrapped(f"{answer.site} {answer.job}: {answer.text}{start}")
        show_named([*_job_in_time(answer, within_s), *_details(answer)])
        if with_published and answer.estimates:
            sys.stdout.write("\n")
            show_table(["published (UTC)", "starts (UTC)", "90 % by (UTC)"], [_times(one) for one in answer.estimates])


def _times(published: PublishedStart) -> list[str]:
    return [*map(_minute, (published.at, published.start, published.starts_by.get(LATEST)))]


def _is_known(answer: JobAnswer) -> bool:
    return answer.expected_start is not None or answer.live is not None


def _job_in_time(answer: JobAnswer, within_s: float | None) -> Iterator[tuple[str, str]]:
    """Yield the probability that a pending job starts in time; times are the site's own."""
    if within_s is not None and answer.expected_start is not None and answer.starts_by:
        now = answer.as_of or answer.made_at
        bounds = {share: at - now for share, at in answer.starts_by.items()}
        share = chance_within(within_s, answer.expected_start - now, bounds)
        yield "in time", f"{chance(share, max(map(float, bounds)))}: within {span(within_s)}"


def _details(answer: JobAnswer) -> Iterator[tuple[str, str]]:
    passed = max(answer.expected_start or 0.0, answer.as_of or 0.0)  # a bound before it has not held
    by = [(share, at) for share, at in answer.starts_by.items() if float(share) > 0.5 and at >= passed]
    if by:
        yield "at the latest", ", ".join(f"{minute(at)} with {100 * float(share):g} %" for share, at in by)
    if (live := answer.live) is not None:
        now = answer.as_of or answer.made_at
        if live.start is None:
            yield "since", f"{minute(live.submit)}, {span(max(now - live.submit, 0.0))} in the queue"
        else:
            yield "since", f"{minute(live.start)}, after {span(max(live.start - live.submit, 0.0))} in the queue"
        if live.eligible is not msgspec.UNSET:
            yield "eligible", f"{minute(live.eligible)}, {span(live.eligible - live.submit)} after its submission"
        yield "requested", counted(live.cpus, "cpu") + ("" if live.walltime is None else f" for {span(live.walltime)}")
        if live.tasks_remaining is not msgspec.UNSET:
            yield "tasks", _tasks(live)
        if live.why:
            yield "why", live.why
    if answer.as_of is not None:
        yield "as of", moment(answer.as_of)
    if answer.stale is not None:
        yield "stale", answer.stale
