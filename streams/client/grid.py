"""The client for programs: query the workers, cache the grid estimates, and read records as they arrive.

`AsyncClient` is for asyncio; `streams.client.blocking.Client` is its blocking version. Both are public as
`queuecast.AsyncClient` and `queuecast.Client`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from models import records
from models.engine.settings import SiteSettings
from models.preference import preferring
from models.ranking import JobRequest, Ranking, Reply, exclusion, rank
from models.spelling import nearest_name
from streams.broker.topics import Topics
from streams.client.estimates import EstimateCache, WithdrawnEstimate, change_of
from streams.client.job_requests import JobFields, RankFields, RankRequest, described, several
from streams.client.pending_questions import AnswerTimeout, Kind, UnknownSite, new_id, of_kind, unknown_site
from streams.errors import InvalidInput, Unreachable, needing
from streams.settings import Settings
from streams.text.quantities import seconds_of

if TYPE_CHECKING:  # requires aiokafka, which HTTP clients do not need
    from streams.client.client import QuestionClient

log = logging.getLogger(__name__)

T = TypeVar("T")
PATIENCE_S = 30.0  # seconds for which a client retries without an answer
MAX_PAUSE_S = 5.0  # the longest pause before it does


class AsyncClient:
    """Query the workers, cache grid estimates, and follow predictions: `async with AsyncClient() as grid:`.

    Args:
        settings: connection to Kafka; by default the settings of the commands (QUEUECAST_CONFIG, `queuecast.toml` in
            the current directory, or the `queuecast up` on this machine).
        patience_s: seconds to retry while Kafka is unreachable or no worker answers; 0 disables retries.

    Every method may raise a `UserError`: `Unreachable` if Kafka is unreachable, `AnswerTimeout` if no worker answers,
    `UnknownSite` if a named site has had no event.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        patience_s: float = PATIENCE_S,
        questions: "QuestionClient | None" = None,
    ) -> None:
        if not isinstance(settings, Settings | None):
            raise InvalidInput(f"settings: expected Settings, not {settings!r}; HttpClient takes a service's address")
        self.settings = _settings_here() if settings is None else settings
        self._patience_s = patience_s
        self._questions = questions or _questions_of(self.settings)

    async def __aenter__(self) -> Self:
        """Connect, and read the current estimates."""
        try:
            await self._patiently(self._questions.start)
        except BaseException:
            await self._questions.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close all connections."""
        await self._questions.stop()

    @property
    def sites(self) -> list[str]:
        """The sites that have estimates, sorted by name."""
        return self._questions.cache.sites

    def estimates(self, site: str) -> list[records.GridEstimate]:
        """Return a site's cached grid estimates, by queue, GPUs, size and walltime; no query is sent."""
        found = self._questions.cache.estimates(site)
        return [] if found is None else found.estimates

    def estimate(
        self, site: str, cpus: int, walltime: str | float | None = None, queue: str | None = None, gpus: int = 0
    ) -> records.GridEstimate | None:
        """Return the grid estimate of the smallest shape that fits the job, else None.

        `walltime` is seconds, or text with a unit.
        """
        seconds = seconds_of(walltime) if isinstance(walltime, str) else walltime
        return self._questions.cache.covering(site, cpus, seconds, queue, gpus)

    async def rank(self, job: JobRequest | None = None, **fields: Unpack[RankFields]) -> Ranking:
        """Rank the sites by the response time of a job, which is `job` or is described by its fields.

        A site whose worker does not answer in time is ranked by its grid estimate.

        Args:
            sites: sites to rank; by default all registered sites.
            run_s: the job's run time at a site of speed 1, in seconds, if available.
            why: also explain the waits, which takes several times as long.
            start_within: deadline for the start, from now, in seconds or as text with a unit: `p_start` is the
                probability of meeting it.
            prefer: rank this site first unless another one starts sooner by `unless_sooner` (seconds or text).
            fields: the other arguments are the fields of `JobRequest`; `walltime="4h"` and `memory="64G"` are valid.

        Raises:
            InvalidInput: there is no such field, or its value is wrong.
        """
        return await query_ranking(self._questions, RankRequest.of(job, fields), self.settings.serve.sites)

    async def wait(
        self, site: str, job: JobRequest | None = None, *, why: bool = False, **fields: Unpack[JobFields]
    ) -> records.WaitAnswer:
        """Predict the wait of a job submitted to the site now; `rank` describes the parameters."""
        question = described(job, fields).question(new_id(), site, why=why)
        return self._checked(await self._query(question), records.WaitAnswer)

    async def site(self, site: str, limit: int = 0) -> records.SiteAnswer:
        """Return a site's size, jobs and accuracy, and at most `limit` of its longest-pending jobs."""
        answer = await self._query(records.SiteQuestion(id=new_id(), site=site, limit=limit))
        return self._checked(answer, records.SiteAnswer)

    async def every_site(self, sites: Sequence[str] = (), limit: int = 0) -> dict[str, records.SiteAnswer | None]:
        """Return the answer of `site` for these sites, by default for all; None if no worker answers."""
        return await self._of_sites(
            lambda site: records.SiteQuestion(id=new_id(), site=site, limit=limit), records.SiteAnswer, sites
        )

    async def job(self, job: str, sites: Sequence[str] = ()) -> dict[str, records.JobAnswer | None]:
        """Predict the start of a submitted job, by site; by default at all sites. None if no worker answers."""
        return await self._of_sites(
            lambda site: records.JobQuestion(id=new_id(), site=site, job=job), records.JobAnswer, sites
        )

    async def jobs(
        self, user: str, sites: Sequence[str] = (), limit: int = 100
    ) -> dict[str, records.JobsAnswer | None]:
        """Return a user's pending and running jobs, by site; by default at all. None if no worker answers."""
        return await self._of_sites(
            lambda site: records.JobsQuestion(id=new_id(), site=site, user=user, limit=limit), records.JobsAnswer, sites
        )

    async def predictions(
        self,
        *,
        site: str | None = None,
        job: str | None = None,
        outcomes: bool = False,
        group: str | None = None,
        from_beginning: bool = False,
    ) -> AsyncGenerator[records.Prediction | records.Outcome]:
        """Yield predictions as they are published, without end; invalid messages are skipped.

        Args:
            site: only records of this site; None for all.
            job: only records of this job; None for all.
            outcomes: also yield outcomes.
            group: a consumer group, which resumes at its offsets: each record is delivered at least once. Without a
                group, records published while the client does not read are missed.
            from_beginning: also yield the records that are on the topics already; for a group, at its first use.
        """
        from streams.client.watch import records as following

        async with aclosing(following(self.settings, site, job, outcomes, group, from_beginning)) as found:
            async for record, _ in found:
                yield record

    async def estimate_changes(
        self, *, site: str | None = None
    ) -> AsyncGenerator[records.GridEstimate | WithdrawnEstimate]:
        """Yield the current grid estimates, then each refresh or withdrawal, without end."""
        from streams.client.watch import follow

        topic = Topics(self.settings.kafka.prefix).estimates
        async with aclosing(follow(self.settings, {topic: change_of}, None, from_beginning=True)) as found:
            async for estimate, _ in found:
                if site in (None, estimate.site):
                    yield estimate

    async def _of_sites(
        self, question: Callable[[str], records.AnyQuestion], kind: type[Kind], sites: Sequence[str]
    ) -> dict[str, Kind | None]:
        sites = several(sites)
        chosen = dict.fromkeys(sites or [*self.sites, *self.settings.serve.sites])
        answers = await query_all(self._questions, map(question, chosen))
        for site in sites:
            if isinstance(answer := answers[site], records.NoAnswer) and answer.reason == records.UNKNOWN_SITE:
                self._checked(answer, kind)
        return {site: answer if isinstance(answer, kind) else None for site, answer in answers.items()}

    def _checked(self, answer: records.AnyAnswer, kind: type[Kind]) -> Kind:
        """Return the answer as `of_kind`; the error names the registered sites."""
        try:
            return of_kind(answer, kind)
        except UnknownSite:
            raise unknown_site(answer.site, self.sites) from None

    async def _query(self, question: records.AnyQuestion) -> records.AnyAnswer:
        return await self._patiently(lambda: self._questions.ask(question))

    async def _patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call; retry with exponential backoff while it gets no answer."""
        if not self._patience_s:
            return await act()
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

        async def once() -> T:
            return await act()

        again = AsyncRetrying(
            stop=stop_after_delay(self._patience_s),
            wait=wait_random_exponential(0.2, MAX_PAUSE_S),
            retry=retry_if_exception_type((AnswerTimeout, Unreachable)),
            before_sleep=self._log_retry,
            reraise=True,
        )
        return await again(once)

    def _log_retry(self, state: Any) -> None:
        """Log the reason of the first retry."""
        if state.attempt_number == 1:
            log.warning("%s; retrying for %g s", state.outcome.exception(), self._patience_s)


def _questions_of(settings: Settings) -> "QuestionClient":
    with needing(instead=", or ask a service: --url, HttpClient"):
        from streams.client.client import QuestionClient

    return QuestionClient(settings, outcomes=False)


def _settings_here() -> Settings:
    from streams.running import settings_here

    return settings_here()


async def query_all(
    client: "QuestionClient", questions: Iterable[records.AnyQuestion]
) -> dict[str, records.AnyAnswer | None]:
    """Send all questions in parallel, one per site; return the answers by site, None if there is none.

    Raises:
        TooManyQuestions: too many questions are open.
    """

    async def query(question: records.AnyQuestion) -> records.AnyAnswer | None:
        try:
            return await client.ask(question)
        except (AnswerTimeout, Unreachable):
            return None

    sent = list(questions)
    answers = await asyncio.gather(*map(query, sent))
    return {question.site: answer for question, answer in zip(sent, answers, strict=True)}


async def query_ranking(
    client: "QuestionClient", request: RankRequest, site_settings: Mapping[str, SiteSettings]
) -> Ranking:
    """Query the sites about a job, by default all with estimates or settings, and rank them by their answers.

    For a site whose worker does not answer, or if Kafka is unreachable, its grid estimate is used.

    Raises:
        TooManyQuestions: too many questions are open.
    """
    client.check_started()
    job = request.job
    chosen = list(dict.fromkeys(request.sites or [*client.cache.sites, *site_settings]))
    known = {site: site_settings.get(site, SiteSettings()) for site in chosen}
    questions = [
        job.question(new_id(), site, known[site].speed, request.why)
        for site in chosen
        if exclusion(job, known[site]) is None
    ]
    answers, progress = await query_all(client, questions), client.compiling()
    silence = "no worker answers for this site" + (f", {progress}" if progress else "")
    replies = {site: _reply(client.cache, job, site, known[site], answers.get(site), silence) for site in chosen}
    found = rank(job, replies, known, request.run_s, request.start_within_s)
    return found if request.preference is None else preferring(found, request.preference)


def _reply(
    cache: EstimateCache,
    job: JobRequest,
    site: str,
    known: SiteSettings,
    answer: records.AnyAnswer | None,
    silence: str,
) -> Reply:
    """Return the worker's answer, else a grid estimate, else the reason why there is neither.

    Args:
        silence: reason if no worker answered.
    """
    if isinstance(answer, records.WaitAnswer):
        return answer
    if isinstance(answer, records.NoAnswer) and answer.reason == records.UNKNOWN_SITE:
        near = nearest_name(site, cache.sites)
        return "unknown site: no event of it has been seen" + (f"; did you mean {near!r}?" if near else "")
    queue = job.queue or next(iter(job.partitions), None)
    estimate = cache.covering(site, job.cpus, job.walltime_at(known.speed), queue, job.counted_gpus)
    if estimate is not None:
        return estimate
    if (cached := cache.estimates(site)) and cached.latest.site_cpus < job.cpus:
        return cached.latest  # the ranking sees from it that the job is larger than the site
    return f"no answer: {answer.detail}" if isinstance(answer, records.NoAnswer) else silence
