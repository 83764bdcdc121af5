"""The answers of the service, independent of HTTP."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from models import records
from models.engine.asking.state_text import state_text
from models.engine.settings import SiteSettings
from models.ranking import JobRequest
from models.site.job import Phase
from streams.client.client import QuestionClient
from streams.client.estimates import EstimateCache
from streams.client.grid import AsyncClient, query_all
from streams.client.pending_questions import (
    Kind,
    UnknownJob,
    UnknownSite,
    WorkerCompiling,
    new_id,
    of_kind,
    unknown_site,
)
from streams.client.provisional import provisional_wait
from streams.serve.sight import ClientInSight
from streams.settings import Settings

A = TypeVar("A", bound=records.Answer)
BASELINES = ("zero", "median")  # the simple rules that predictions are compared with


class SiteSummary(msgspec.Struct, kw_only=True, frozen=True):
    """A site according to its grid estimates, with its settings.

    `made_at` is in the site's own time, `updated_at` is wall-clock time (both Unix seconds). `max_walltime` is in
    seconds. `as_of` and the fields after it are as in `models.records.Answer`; `silent_since` is since when its worker
    neither answers questions nor publishes estimates (Unix seconds).
    """

    site: str
    cpus: int
    speed: float
    max_cpus: int | None
    max_walltime: float | None
    live: records.LiveState
    made_at: float
    updated_at: float
    method: str
    queues: list[str]
    as_of: float | None
    lag_messages: int
    lag_s: float
    stale: str | None
    silent_since: float | None


class SiteList(msgspec.Struct, kw_only=True, frozen=True):
    """All sites, sorted by name. `compiling` is the progress of a worker that compiles at its first start, else null.

    That worker is on the machine of the service, and no other worker has answered lately.
    """

    sites: list[SiteSummary]
    compiling: str | None = None


class SiteEstimateList(msgspec.Struct, kw_only=True, frozen=True):
    """A site's grid estimates, sorted by queue, size and walltime."""

    site: str
    estimates: list[records.GridEstimate]


class SiteOutcomes(msgspec.Struct, kw_only=True, frozen=True):
    """The latest jobs that started or were cancelled, with their predictions; the newest first."""

    site: str
    outcomes: list[records.Outcome]


class UserJobs(msgspec.Struct, kw_only=True, frozen=True):
    """A user's pending and running jobs by site; `unanswered` are the sites without an answer in time."""

    user: str
    sites: list[records.JobsAnswer]
    unanswered: list[str]


class SiteStatus(msgspec.Struct, kw_only=True, frozen=True):
    """State of a site's processing, for operators; `as_of` and the fields after it are as in `models.records.Answer`.

    `recent` is the accuracy of its predictions in the last one or two weeks, `baselines` the mean error (s) of the
    baselines over those weeks. `answers` is the accuracy of answered questions, `unknown_fields` the counts of ignored
    fields in its events.
    """

    site: str
    method: str
    degraded: str | None
    as_of: float | None
    lag_messages: int
    lag_s: float
    stale: str | None
    live: records.LiveState
    recent: records.MethodAccuracy | None
    baselines: dict[str, float]
    answers: list[records.AnswerAccuracy]
    unknown_fields: dict[str, int]


class Status(msgspec.Struct, kw_only=True, frozen=True):
    """State of the service at `now` (Unix seconds): the sites, their workers, and the sites without an answer.

    `compiling` is as in `SiteList`.
    """

    now: float
    sites: list[SiteStatus]
    workers: list[records.WorkerState]
    unanswered: list[str]
    compiling: str | None = None


class SiteAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy of a site's estimates; the fields are those of `models.records.SiteAnswer`."""

    site: str
    method: str
    degraded: str | None
    as_of: float | None
    recent: records.MethodAccuracy | None
    weeks: list[records.WeekAccuracy]
    answers: list[records.AnswerAccuracy]
    while_waiting: list[records.WaitingAgeAccuracy]


class AccuracyList(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy of all sites, and the sites that did not answer."""

    sites: list[SiteAccuracy]
    unanswered: list[str]


class Service:
    """Answers from the cached estimates and from the workers.

    Any method may raise `Unreachable`, `AnswerTimeout`, `TooManyQuestions`, `WorkerOverloaded`, `UnknownSite` or
    `UnknownJob`.
    `grid` queries the workers through `client`; their answers hold only jobs that the request may see.
    """

    def __init__(self, client: QuestionClient, settings: Settings) -> None:
        self.client = client
        self._questions = cast(QuestionClient, ClientInSight(client))
        self.grid = AsyncClient(settings, patience_s=0, questions=self._questions)
        self._sites = settings.serve.sites
        self._method = settings.engine.method

    def sites(self) -> SiteList:
        """The sites that have estimates."""
        found = [self._summary(site) for site in self._cache.sites]
        return SiteList(sites=found, compiling=self.client.compiling())

    def _summary(self, site: str) -> SiteSummary:
        found, known = self._cache.estimates(site), self._sites.get(site, SiteSettings())
        assert found is not None
        latest, silent_since = found.latest, self.client.silent_since.get(site)
        return SiteSummary(
            site=site,
            cpus=latest.site_cpus,
            **_copied_fields(known, "speed max_cpus max_walltime"),
            **_copied_fields(latest, "live made_at method as_of lag_messages lag_s"),
            updated_at=found.updated,
            queues=sorted({estimate.queue for estimate in found.estimates if estimate.queue is not None}),
            stale=self._cache.stale(site),
            silent_since=silent_since if silent_since is not None and found.updated <= silent_since else None,
        )

    def estimates(self, site: str) -> SiteEstimateList:
        """A site's grid estimates."""
        found = self._cache.estimates(site)
        if found is None:
            raise unknown_site(site, self._cache.sites)
        return SiteEstimateList(site=site, estimates=found.estimates)

    def outcomes(self, site: str, limit: int) -> SiteOutcomes:
        """A site's latest outcomes, at most `limit`."""
        cache = self._cache
        if not cache.knows(site):
            raise unknown_site(site, cache.sites)
        return SiteOutcomes(site=site, outcomes=cache.outcomes(site, self._method)[:limit])

    async def wait(self, site: str, job: JobRequest, why: bool = False) -> records.WaitAnswer:
        """Predict the wait of a job submitted to the site now; provisionally while the site's worker compiles."""
        try:
            return await self.grid.wait(site, job, why=why)
        except WorkerCompiling as error:
            speed = self._sites.get(site, SiteSettings()).speed
            return provisional_wait(self._cache, site, job, speed, error)

    async def jobs(self, user: str) -> UserJobs:
        """A user's pending and running jobs at all sites."""
        questions = [records.JobsQuestion(id=new_id(), site=site, user=user) for site in self._cache.sites]
        by_site = await query_all(self._questions, questions)
        answers, unanswered = _split(by_site, records.JobsAnswer)
        return UserJobs(user=user, sites=[answer for answer in answers if answer.jobs], unanswered=unanswered)

    async def job(self, site: str, name: str, described: JobRequest | None = None) -> records.JobAnswer:
        """Predict the start of a live job; if its submission has not arrived yet, predict the `described` job."""
        answer = await self._query(records.JobQuestion(id=new_id(), site=site, job=name), records.JobAnswer)
        if answer.live is not None:
            return answer
        if described is None:
            raise UnknownJob(f"{site}: {answer.text}")
        wait = await self.grid.wait(site, described, why=True)
        bounds = wait.bounds or {}
        ahead = 0 if wait.why is None else wait.why.ahead_jobs
        return msgspec.structs.replace(
            answer,
            text=state_text(Phase.QUEUED.value, wait.predicted_wait_s, bounds, ahead, wait.reason),
            expected_start=wait.predicted_start,
            starts_by={q: wait.made_at + bound_s for q, bound_s in bounds.items()},
            ahead_jobs=ahead,
        )

    async def trends(self, site: str) -> records.SiteTrends:
        """History of a site: its queue by hour, predicted and actual waits by day and week."""
        answer = await self._query(
            records.SiteQuestion(id=new_id(), site=site, limit=0, trends=True), records.SiteAnswer
        )
        return answer.trends or records.SiteTrends(hours=[], days=[], weeks=[])

    async def status(self) -> Status:
        """Return the state of all sites."""
        questions = [records.SiteQuestion(id=new_id(), site=site, limit=0) for site in self._cache.sites]
        answers, unanswered = _split(await query_all(self._questions, questions), records.SiteAnswer)
        workers = {answer.worker.name: answer.worker for answer in answers if answer.worker}
        same = "site method degraded as_of lag_messages lag_s stale live answers unknown_fields"
        sites = [
            SiteStatus(
                recent=answer.recent or None, baselines=_baselines(answer.weeks[-2:]), **_copied_fields(answer, same)
            )
            for answer in answers
        ]
        return Status(
            now=time.time(),
            sites=sites,
            workers=[workers[name] for name in sorted(workers)],
            unanswered=unanswered,
            compiling=self.client.compiling(),
        )

    async def accuracy(self) -> AccuracyList:
        """The accuracy of the estimates of all sites."""
        questions = [records.SiteQuestion(id=new_id(), site=site, limit=0) for site in self._cache.sites]
        answers, unanswered = _split(await query_all(self._questions, questions), records.SiteAnswer)
        same = "site method degraded as_of weeks answers while_waiting"
        sites = [SiteAccuracy(recent=answer.recent or None, **_copied_fields(answer, same)) for answer in answers]
        return AccuracyList(sites=sites, unanswered=unanswered)

    @property
    def _cache(self) -> EstimateCache:
        self.client.check_started()
        return self.client.cache

    async def _query(self, question: records.AnyQuestion, kind: type[Kind]) -> Kind:
        answer = await self._questions.ask(question)
        try:
            return of_kind(answer, kind)
        except UnknownSite:
            raise unknown_site(question.site, self._cache.sites) from None


def _baselines(weeks: Iterable[records.WeekAccuracy]) -> dict[str, float]:
    """Return the mean errors (s) of the baselines over these weeks."""
    found = {}
    for rule in BASELINES:
        measured = [
            one for week in weeks for one in week.methods if one.method == rule and one.mean_error_s is not None
        ]
        if jobs := sum(one.jobs for one in measured):
            found[rule] = sum(one.jobs * (one.mean_error_s or 0.0) for one in measured) / jobs
    return found


def _copied_fields(record: msgspec.Struct, names: str) -> dict[str, Any]:
    """Copy the fields of these names."""
    return {name: getattr(record, name) for name in names.split()}


def _split(by_site: Mapping[str, records.Answer | None], kind: type[A]) -> tuple[list[A], list[str]]:
    answers = [answer for answer in by_site.values() if isinstance(answer, kind)]
    return answers, [site for site, answer in by_site.items() if not isinstance(answer, kind)]
