"""Asks many sites at the same time, and ranks them for a job."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from models.engine.settings import SiteSettings
from models.ranking import JobRequest, Ranking, Reply, exclusion, rank
from models.records import UNKNOWN_SITE, AnyAnswer, AnyQuestion, NoAnswer, WaitAnswer
from streams.client.estimates import EstimateCache
from streams.client.questions import AnswerTimeout, new_id
from streams.errors import Unreachable

if TYPE_CHECKING:
    from streams.client.client import QuestionClient


async def ask_all(client: "QuestionClient", questions: Iterable[AnyQuestion]) -> dict[str, AnyAnswer | None]:
    """Ask all questions at the same time, one for each site, and return the answers by site.

    A site's answer is None where no worker answers in time, or Kafka is away.

    Raises:
        TooManyQuestions: too many questions are open.
    """

    async def ask(question: AnyQuestion) -> AnyAnswer | None:
        try:
            return await client.ask(question)
        except (AnswerTimeout, Unreachable):
            return None

    asked = list(questions)
    answers = await asyncio.gather(*map(ask, asked))
    return {question.site: answer for question, answer in zip(asked, answers, strict=True)}


async def ask_ranking(
    client: "QuestionClient",
    job: JobRequest,
    site_settings: Mapping[str, SiteSettings],
    sites: Sequence[str] = (),
    run_s: float | None = None,
    why: bool = False,
    start_within_s: float | None = None,
) -> Ranking:
    """Ask the sites about a job, and rank them by their answers.

    For a site whose worker does not answer, or while Kafka is away, its standing estimate is used.

    Parameters:
        site_settings: the settings of sites that have any.
        sites: only these; by default all that have estimates or settings.
        run_s, start_within_s: see `models.ranking.rank`.
        why: ask why the job would wait, too.

    Raises:
        TooManyQuestions: too many questions are open.
    """
    chosen = list(dict.fromkeys(sites or [*client.cache.sites, *site_settings]))
    known = {site: site_settings.get(site, SiteSettings()) for site in chosen}
    questions = [
        job.question(new_id(), site, known[site].speed, why) for site in chosen if exclusion(job, known[site]) is None
    ]
    answers = await ask_all(client, questions)
    said = {site: _said(client.cache, job, site, known[site], answers.get(site)) for site in chosen}
    return rank(job, said, known, run_s, start_within_s)


def _said(cache: EstimateCache, job: JobRequest, site: str, known: SiteSettings, answer: AnyAnswer | None) -> Reply:
    """The worker's answer, else a standing estimate, else why there is neither."""
    if isinstance(answer, WaitAnswer):
        return answer
    if isinstance(answer, NoAnswer) and answer.reason == UNKNOWN_SITE:
        return "unknown site: no event of it has been seen"
    queue = job.queue or next(iter(job.partitions), None)
    standing = cache.covering(site, job.cpus, job.walltime_at(known.speed), queue, job.counted_gpus)
    if standing is not None:
        return standing
    if (cached := cache.estimates(site)) and cached.latest.site_cpus < job.cpus:
        return cached.latest  # the ranking sees from it that the job is larger than the site
    return f"no answer: {answer.detail}" if isinstance(answer, NoAnswer) else "no worker answers for this site"
