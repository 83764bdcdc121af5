"""The client for programs: asks the sites' workers, keeps the grid estimates, and reads records as they come.

`AsyncClient` is for asyncio, `streams.client.blocking.Client` the same for everybody else. Both are public as
`queuecast.AsyncClient` and `queuecast.Client`.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

import msgspec

from models import records
from models.engine.settings import SiteSettings
from models.preference import Preference, preferring
from models.ranking import JobRequest, Ranking, Reply, exclusion, rank
from models.site.node_features import is_readable
from streams.broker.topics import Topics
from streams.client.estimates import EstimateCache, WithdrawnEstimate, change_of
from streams.client.preference import taken_preference
from streams.client.questions import AnswerTimeout, Kind, UnknownSite, likeliest, new_id, of_kind, unknown_site
from streams.errors import NotUnderstood, Unreachable, in_words, needing, place_and_problem, read_as
from streams.settings import Settings
from streams.text.quantities import bytes_of, seconds_of

if TYPE_CHECKING:  # with aiokafka, which who asks over HTTP need not have
    from streams.client.client import QuestionClient

log = logging.getLogger(__name__)

T = TypeVar("T")
PATIENCE_S = 30.0  # for how long a client asks again where nobody answers
MAX_PAUSE_S = 5.0  # the longest pause before it does


class JobFields(TypedDict, total=False):
    """The fields of `JobRequest`, as programs may give them: `walltime` and `memory` may be text with a unit."""

    cpus: int
    walltime: str | float | None
    nodes: int | None
    gpus: int
    memory: str | int | None
    queue: str | None
    user: str | None
    group: str | None
    account: str | None
    executable: str | None
    partition: str | None
    gpu_type: str | None
    tasks: int | None
    exclusive: bool
    qos: str | None
    reservation: str | None
    constraint: str | None
    unlimited: bool


class RankFields(JobFields, total=False):
    """What `rank` takes beside the fields of a job; `AsyncClient.rank` describes them."""

    sites: Sequence[str]
    run_s: float | None
    why: bool
    start_within: str | float | None
    prefer: str | None
    unless_sooner: str | float | None


class RankRequest(msgspec.Struct, frozen=True):
    """What a ranking is asked for, `start_within_s` and the job's durations in seconds."""

    job: JobRequest
    sites: Sequence[str] = ()
    run_s: float | None = None
    why: bool = False
    start_within_s: float | None = None
    preference: Preference | None = None

    @classmethod
    def of(cls, job: JobRequest | None, fields: RankFields) -> Self:
        """What is asked for by a job, or its fields, and the others. Raises NotUnderstood: as `described`."""
        given: dict[str, Any] = dict(fields)
        within, sites = given.pop("start_within", None), given.pop("sites", ())
        within_s = read_as("start_within", seconds_of, within) if isinstance(within, str) else within
        run_s, why, preference = given.pop("run_s", None), given.pop("why", False), taken_preference(given)
        return cls(described(job, given), several(sites), run_s, why, within_s, preference)


class AsyncClient:
    """Asks, keeps the grid estimates, and follows predictions; to be used as `async with AsyncClient() as grid:`.

    Parameters:
        settings: where Kafka is; by default those that commands have (QUEUECAST_CONFIG, `queuecast.toml` here, the
            `queuecast up` that runs on this machine).
        patience_s: for how many seconds it tries again where Kafka is away or no worker answers; 0: it does not.

    Every method may raise a `UserError`: `Unreachable` where Kafka is away, `AnswerTimeout` where no worker answers,
    `UnknownSite` where a site is named of which no event has been seen.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        patience_s: float = PATIENCE_S,
        questions: "QuestionClient | None" = None,
    ) -> None:
        if not isinstance(settings, Settings | None):
            raise NotUnderstood(f"settings: expected Settings, not {settings!r}; HttpClient takes a service's address")
        self.settings = _settings_here() if settings is None else settings
        self._patience_s = patience_s
        self._questions = questions or _questions_of(self.settings)

    async def __aenter__(self) -> Self:
        """Connect, and read the estimates that stand."""
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
        """A site's grid estimates as they are now, by queue, GPUs, size and walltime; nobody is asked."""
        found = self._questions.cache.estimates(site)
        return [] if found is None else found.estimates

    def estimate(
        self, site: str, cpus: int, walltime: str | float | None = None, queue: str | None = None, gpus: int = 0
    ) -> records.GridEstimate | None:
        """The grid estimate for the least shape that such a job fits into, `walltime` as seconds or text; else
        None.
        """
        seconds = seconds_of(walltime) if isinstance(walltime, str) else walltime
        return self._questions.cache.covering(site, cpus, seconds, queue, gpus)

    async def rank(self, job: JobRequest | None = None, **asked: Unpack[RankFields]) -> Ranking:
        """Rank the sites for a job by when it would be done, as it is described by `job` or by its fields.

        A site whose worker does not answer in time is ranked by its grid estimate.

        Parameters:
            sites: only these; by default all that are known.
            run_s: the job's run time at a site of speed 1, in seconds, where it is known.
            why: also why it would wait, which takes several times as long.
            start_within: within which time from now it should start, seconds or text with a unit: `p_start` is how
                probable that is.
            prefer: this site goes first unless another starts sooner by `unless_sooner` (seconds or text).
            asked: beside these the fields of `JobRequest`; `walltime="4h"` and `memory="64G"` do too.

        Raises:
            NotUnderstood: a field is not one, or its value is wrong.
        """
        return await ask_ranking(self._questions, RankRequest.of(job, asked), self.settings.serve.sites)

    async def wait(
        self, site: str, job: JobRequest | None = None, *, why: bool = False, **asked: Unpack[JobFields]
    ) -> records.WaitAnswer:
        """How long a job would wait if it came to the site now; the parameters are those of `rank`."""
        question = described(job, asked).question(new_id(), site, why=why)
        return self._told(await self._ask(question), records.WaitAnswer)

    async def site(self, site: str, limit: int = 0) -> records.SiteAnswer:
        """A site's size, jobs and accuracy, and its jobs that have queued longest, `limit` of them at most."""
        answer = await self._ask(records.SiteQuestion(id=new_id(), site=site, limit=limit))
        return self._told(answer, records.SiteAnswer)

    async def every_site(self, sites: Sequence[str] = (), limit: int = 0) -> dict[str, records.SiteAnswer | None]:
        """The same of these sites, by default of all that are known; None where no worker answers."""
        return await self._of_sites(
            lambda site: records.SiteQuestion(id=new_id(), site=site, limit=limit), records.SiteAnswer, sites
        )

    async def job(self, job: str, sites: Sequence[str] = ()) -> dict[str, records.JobAnswer | None]:
        """When a job starts that was submitted, by site; by default all are asked. None where no worker answers."""
        return await self._of_sites(
            lambda site: records.JobQuestion(id=new_id(), site=site, job=job), records.JobAnswer, sites
        )

    async def jobs(
        self, user: str, sites: Sequence[str] = (), limit: int = 100
    ) -> dict[str, records.JobsAnswer | None]:
        """A user's jobs that queue or run, by site; by default all are asked. None where no worker answers."""
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
        """Predictions as they are made, without end; what is no record is passed over.

        Parameters:
            site: those of this site; None for all. `job` likewise.
            outcomes: what became of them too.
            group: a consumer group, which goes on where it was: each record comes at least once. Without one, what
                comes while nobody reads is missed.
            from_beginning: what the topics hold already too; of a group, when it reads for the first time.
        """
        from streams.client.watch import records as following

        async with aclosing(following(self.settings, site, job, outcomes, group, from_beginning)) as found:
            async for record, _ in found:
                yield record

    async def estimate_changes(
        self, *, site: str | None = None
    ) -> AsyncGenerator[records.GridEstimate | WithdrawnEstimate]:
        """Grid estimates as they are renewed or withdrawn, those that stand already first, without end."""
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
        answers = await ask_all(self._questions, map(question, chosen))
        for site in sites:
            if isinstance(answer := answers[site], records.NoAnswer) and answer.reason == records.UNKNOWN_SITE:
                self._told(answer, kind)
        return {site: answer if isinstance(answer, kind) else None for site, answer in answers.items()}

    def _told(self, answer: records.AnyAnswer, kind: type[Kind]) -> Kind:
        """As `of_kind`; the error names the sites that there are."""
        try:
            return of_kind(answer, kind)
        except UnknownSite:
            raise unknown_site(answer.site, self.sites) from None

    async def _ask(self, question: records.AnyQuestion) -> records.AnyAnswer:
        return await self._patiently(lambda: self._questions.ask(question))

    async def _patiently(self, act: Callable[[], Awaitable[T]]) -> T:
        """What a call gives; where nobody answers it is made again, after pauses that grow."""
        if not self._patience_s:
            return await act()
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

        async def once() -> T:
            return await act()

        again = AsyncRetrying(
            stop=stop_after_delay(self._patience_s),
            wait=wait_random_exponential(0.2, MAX_PAUSE_S),
            retry=retry_if_exception_type((AnswerTimeout, Unreachable)),
            before_sleep=self._tell_of_trying,
            reraise=True,
        )
        return await again(once)

    def _tell_of_trying(self, state: Any) -> None:
        """Say once why nothing happens for a while."""
        if state.attempt_number == 1:
            log.warning("%s; tried again for %g s", state.outcome.exception(), self._patience_s)


def described(job: JobRequest | None, fields: Mapping[str, Any]) -> JobRequest:
    """A job that is described as a whole, or by its fields.

    Raises:
        NotUnderstood: a field is not one, or its value is wrong.
    """
    if job is not None and not isinstance(job, JobRequest):
        raise NotUnderstood(f"job: expected a JobRequest, not {job!r}; fields go by their names: cpus=64")
    return job or job_request(**fields)


def constraint_of(text: str) -> str:
    """What a job's nodes have to have, where it can be read. Raises NotUnderstood: it cannot."""
    if not is_readable(text):
        raise NotUnderstood(f"{text[:40]!r} cannot be read; expected features with & and | between: ib&(a100|h100)")
    return text


UNLIMITED = frozenset({"unlimited", "infinite"})  # words for a job without a time limit, in lower case


def job_request(**asked: Any) -> JobRequest:
    """A job as it is described; `walltime` and `memory` may be text with a unit, `walltime` also "unlimited".

    Raises:
        NotUnderstood: a field is not one, or its value is wrong.

    >>> job_request(cpus=64, walltime="4h").walltime
    14400.0
    >>> job_request(walltime="unlimited").unlimited
    True
    """
    if isinstance(walltime := asked.get("walltime"), str) and walltime.strip().lower() in UNLIMITED:
        asked |= {"walltime": None, "unlimited": True}
    if unknown := asked.keys() - set(JobRequest.__struct_fields__):
        raise NotUnderstood(f"{min(unknown)!r} is nothing that a job asks for")
    for name, read in (("walltime", seconds_of), ("memory", bytes_of), ("constraint", constraint_of)):
        if isinstance(asked.get(name), str):
            asked[name] = read_as(name, read, asked[name])
    try:
        return msgspec.convert(asked, JobRequest)
    except msgspec.ValidationError as error:
        place, problem = place_and_problem(error)
        raise NotUnderstood(f"{place}: {in_words(problem)}") from None


def _questions_of(settings: Settings) -> "QuestionClient":
    with needing(instead=", or ask a service: --url, HttpClient"):
        from streams.client.client import QuestionClient

    return QuestionClient(settings, outcomes=False)


def _settings_here() -> Settings:
    from streams.running import settings_here

    return settings_here()


async def ask_all(
    client: "QuestionClient", questions: Iterable[records.AnyQuestion]
) -> dict[str, records.AnyAnswer | None]:
    """Ask all questions at once, one for each site; the answers by site, None where no worker answers, or Kafka is
    away. Raises TooManyQuestions: too many questions are open.
    """

    async def ask(question: records.AnyQuestion) -> records.AnyAnswer | None:
        try:
            return await client.ask(question)
        except (AnswerTimeout, Unreachable):
            return None

    asked = list(questions)
    answers = await asyncio.gather(*map(ask, asked))
    return {question.site: answer for question, answer in zip(asked, answers, strict=True)}


def several(sites: Sequence[str]) -> Sequence[str]:
    """Names of sites, also where there is one that stands for itself: a text is a sequence of texts, too."""
    return (sites,) if isinstance(sites, str) else sites


async def ask_ranking(
    client: "QuestionClient", asked: RankRequest, site_settings: Mapping[str, SiteSettings]
) -> Ranking:
    """Ask the sites about a job, by default all that have estimates or settings, and rank them by their answers.

    For a site whose worker does not answer, or while Kafka is away, its grid estimate is used. Raises
    TooManyQuestions: too many questions are open.
    """
    client.check_started()
    job = asked.job
    chosen = list(dict.fromkeys(asked.sites or [*client.cache.sites, *site_settings]))
    known = {site: site_settings.get(site, SiteSettings()) for site in chosen}
    questions = [
        job.question(new_id(), site, known[site].speed, asked.why)
        for site in chosen
        if exclusion(job, known[site]) is None
    ]
    answers = await ask_all(client, questions)
    said = {site: _said(client.cache, job, site, known[site], answers.get(site)) for site in chosen}
    found = rank(job, said, known, asked.run_s, asked.start_within_s)
    return found if asked.preference is None else preferring(found, asked.preference)


def _said(
    cache: EstimateCache, job: JobRequest, site: str, known: SiteSettings, answer: records.AnyAnswer | None
) -> Reply:
    """The worker's answer, else a grid estimate, else why there is neither."""
    if isinstance(answer, records.WaitAnswer):
        return answer
    if isinstance(answer, records.NoAnswer) and answer.reason == records.UNKNOWN_SITE:
        near = likeliest(site, cache.sites)
        return "unknown site: no event of it has been seen" + (f"; did you mean {near!r}?" if near else "")
    queue = job.queue or next(iter(job.partitions), None)
    standing = cache.covering(site, job.cpus, job.walltime_at(known.speed), queue, job.counted_gpus)
    if standing is not None:
        return standing
    if (cached := cache.estimates(site)) and cached.latest.site_cpus < job.cpus:
        return cached.latest  # the ranking sees from it that the job is larger than the site
    return f"no answer: {answer.detail}" if isinstance(answer, records.NoAnswer) else "no worker answers for this site"
