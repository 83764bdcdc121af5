"""What each request is answered, HTTP apart."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from models.ranking import JobRequest, Ranking
from models.records import (
    UNKNOWN_SITE,
    Answer,
    AnyQuestion,
    JobsAnswer,
    JobsQuestion,
    LiveState,
    NoAnswer,
    Outcome,
    SiteAnswer,
    SiteQuestion,
    StandingEstimate,
    WaitAnswer,
    WeekAccuracy,
)
from streams.client.client import Asking
from streams.client.estimates import Board
from streams.client.questions import new_id
from streams.client.ranking import ask_all, ask_ranking
from streams.errors import Unreachable, UserError
from streams.settings import Settings, SiteSettings

A = TypeVar("A", bound=Answer)


class UnknownSite(UserError):
    """There is no such site."""


class SiteSummary(msgspec.Struct, kw_only=True, frozen=True):
    """A site as its standing estimates tell of it, and what is set of it.

    `made_at` is in the site's own time, `updated_at` by the wall clock (both Unix seconds).
    """

    site: str
    cpus: int
    speed: float
    max_cpus: int | None
    max_walltime: float | None
    live: LiveState
    made_at: float
    updated_at: float
    method: str
    queues: list[str]


class Sites(msgspec.Struct, kw_only=True, frozen=True):
    """The sites by name."""

    sites: list[SiteSummary]


class SiteEstimatesTold(msgspec.Struct, kw_only=True, frozen=True):
    """A site's standing estimates, by queue, size and walltime."""

    site: str
    estimates: list[StandingEstimate]


class SiteOutcomes(msgspec.Struct, kw_only=True, frozen=True):
    """The latest jobs that started or left the queue, each with what had been predicted; the newest first."""

    site: str
    outcomes: list[Outcome]


class UserJobs(msgspec.Struct, kw_only=True, frozen=True):
    """A user's live jobs by site; `unanswered` are the sites whose workers did not answer in time."""

    user: str
    sites: list[JobsAnswer]
    unanswered: list[str]


class SiteAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """How good a site's predictions were, week by week; `method` is the one that counts."""

    site: str
    method: str
    weeks: list[WeekAccuracy]


class Accuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy by site; `unanswered` are the sites whose workers did not answer in time."""

    sites: list[SiteAccuracy]
    unanswered: list[str]


class Service:
    """Answers from what stands and what the workers say.

    Raises, whatever it is asked:
        Unreachable: Kafka is away, or what stands has not been read yet.
        Silent: the site's worker has not answered in time.
        Busy: too many questions are open.
        UnknownSite: there is no such site.
    """

    def __init__(self, asker: Asking, settings: Settings) -> None:
        self._asker = asker
        self._sites = settings.serve.sites
        self._method = settings.engine.method

    def sites(self) -> Sites:
        """The sites of which estimates stand."""
        return Sites(sites=[self._summary(site) for site in self._board.sites])

    def _summary(self, site: str) -> SiteSummary:
        stood, known = self._board.estimates(site), self._sites.get(site, SiteSettings())
        assert stood is not None
        latest = stood.latest
        return SiteSummary(
            site=site,
            cpus=latest.site_cpus,
            speed=known.speed,
            max_cpus=known.max_cpus,
            max_walltime=known.max_walltime,
            live=latest.live,
            made_at=latest.made_at,
            updated_at=stood.updated,
            method=latest.method,
            queues=sorted({estimate.queue for estimate in stood.estimates if estimate.queue is not None}),
        )

    def estimates(self, site: str) -> SiteEstimatesTold:
        """What stands of a site."""
        stood = self._board.estimates(site)
        if stood is None:
            raise UnknownSite(f"no estimates stand of a site {site!r}")
        return SiteEstimatesTold(site=site, estimates=stood.estimates)

    def outcomes(self, site: str, most: int) -> SiteOutcomes:
        """What became of its latest jobs."""
        board = self._board
        if not board.knows(site):
            raise UnknownSite(f"nothing is known of a site {site!r}")
        return SiteOutcomes(site=site, outcomes=board.outcomes(site, self._method)[:most])

    async def hindrance(self) -> str | None:
        """Why nothing can be asked just now; None where it can."""
        return await self._asker.hindrance()

    async def site(self, site: str) -> SiteAnswer:
        """How the site is, as its worker says."""
        return await self._ask(SiteQuestion(id=new_id(), site=site), SiteAnswer)

    async def wait(self, site: str, job: JobRequest) -> WaitAnswer:
        """What the site would tell this job now."""
        return await self._ask(job.question(new_id(), site), WaitAnswer)

    async def rank(self, job: JobRequest, sites: Sequence[str], run_s: float | None) -> Ranking:
        """The sites for this job."""
        self._check_read()
        return await ask_ranking(self._asker, job, self._sites, sites, run_s)

    async def jobs(self, user: str) -> UserJobs:
        """A user's live jobs at all sites."""
        questions = [JobsQuestion(id=new_id(), site=site, user=user) for site in self._board.sites]
        told = await ask_all(self._asker, questions)
        answers, unanswered = _sorted_out(told, JobsAnswer)
        return UserJobs(user=user, sites=[answer for answer in answers if answer.jobs], unanswered=unanswered)

    async def accuracy(self) -> Accuracy:
        """How good the predictions of all sites were."""
        questions = [SiteQuestion(id=new_id(), site=site, most=0) for site in self._board.sites]
        told = await ask_all(self._asker, questions)
        answers, unanswered = _sorted_out(told, SiteAnswer)
        sites = [SiteAccuracy(site=answer.site, method=answer.method, weeks=answer.weeks) for answer in answers]
        return Accuracy(sites=sites, unanswered=unanswered)

    @property
    def _board(self) -> Board:
        self._check_read()
        return self._asker.board

    def _check_read(self) -> None:
        if self._asker.trouble is not None:
            raise Unreachable(self._asker.trouble)

    async def _ask(self, question: AnyQuestion, kind: type[A]) -> A:
        answer = await self._asker.ask(question)
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, NoAnswer) and answer.reason == UNKNOWN_SITE:
            raise UnknownSite(answer.detail)
        detail = answer.detail if isinstance(answer, NoAnswer) else f"an answer of another kind, {type(answer)}"
        raise Unreachable(f"the worker of the site {question.site!r} could not answer: {detail}")


def _sorted_out(told: Mapping[str, Answer | None], kind: type[A]) -> tuple[list[A], list[str]]:
    """The answers of this kind, and the sites that gave none."""
    answers = [answer for answer in told.values() if isinstance(answer, kind)]
    return answers, [site for site, answer in told.items() if not isinstance(answer, kind)]
