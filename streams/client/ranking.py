"""Asks many sites at once, and ranks them for a job."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from models.ranking import JobRequest, Ranking, Said, hindrance, rank
from models.records import UNKNOWN_SITE, AnyAnswer, AnyQuestion, NoAnswer, WaitAnswer
from streams.client.client import Asking
from streams.client.estimates import Board
from streams.client.questions import Silent, new_id
from streams.errors import Unreachable
from streams.settings import SiteSettings


async def ask_all(asker: Asking, questions: Iterable[AnyQuestion]) -> dict[str, AnyAnswer | None]:
    """What each site answers, asked all at once; None where no worker answers in time, or Kafka is away.

    Raises:
        Busy: too many questions are open.
    """

    async def ask(question: AnyQuestion) -> AnyAnswer | None:
        try:
            return await asker.ask(question)
        except (Silent, Unreachable):
            return None

    wanted = list(questions)
    answers = await asyncio.gather(*map(ask, wanted))
    return {question.site: answer for question, answer in zip(wanted, answers, strict=True)}


async def ask_ranking(
    asker: Asking,
    job: JobRequest,
    set_of: Mapping[str, SiteSettings],
    sites: Sequence[str] = (),
    run_s: float | None = None,
) -> Ranking:
    """The sites for a job, each asked what it would tell it; one that is silent, or cannot be asked because Kafka is
    away, is taken by its standing estimate.

    Parameters:
        set_of: what is set of some sites.
        sites: only these; by default those of which estimates stand, or anything is set.
        run_s: see `models.ranking.rank`.

    Raises:
        Busy: too many questions are open.
    """
    chosen = list(dict.fromkeys(sites or [*asker.board.sites, *set_of]))
    known = {site: set_of.get(site, SiteSettings()) for site in chosen}
    questions = [
        job.question(new_id(), site, known[site].speed) for site in chosen if hindrance(job, known[site]) is None
    ]
    answers = await ask_all(asker, questions)
    said = {site: _said(asker.board, job, site, known[site], answers.get(site)) for site in chosen}
    return rank(job, said, known, run_s)


def _said(board: Board, job: JobRequest, site: str, known: SiteSettings, answer: AnyAnswer | None) -> Said:
    """What there is to be said about a job at a site."""
    if isinstance(answer, WaitAnswer):
        return answer
    if isinstance(answer, NoAnswer) and answer.reason == UNKNOWN_SITE:
        return "unknown site: no event of it has been seen"
    standing = board.covering(site, job.cpus, job.walltime_at(known.speed), job.queue)
    if standing is not None:
        return standing
    if (stood := board.estimates(site)) and stood.latest.site_cpus < job.cpus:
        return stood.latest  # which says how many processors there are
    return f"no answer: {answer.detail}" if isinstance(answer, NoAnswer) else "no worker answers for this site"
