"""Whose jobs a request may see: one filter on all that the workers answer.

Routes do not filter. Each request has a sight, which the guard sets; what is not in it never leaves the client that
asks the workers. A job of another user is answered as one that does not exist.
"""

from contextvars import ContextVar
from typing import Any

import msgspec

from models.engine.asking.told import NOT_LIVE
from models.records import AnyAnswer, AnyQuestion, JobAnswer, JobsAnswer, LiveJob, SiteAnswer
from streams.client.client import QuestionClient


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that may be seen: everybody's, or those of `user`; by default none."""

    everybody: bool = False
    user: str | None = None

    def includes(self, job: LiveJob) -> bool:
        """Whether this job may be seen."""
        return self.everybody or (self.user is not None and job.user == self.user)


NOTHING = Sight()

sight: ContextVar[Sight] = ContextVar("sight", default=NOTHING)
"""What the request that is being answered may see; without one, nothing."""


class ClientInSight:
    """A client that asks the workers, whose answers hold no jobs but those in sight."""

    def __init__(self, client: QuestionClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        """All else is the client's."""
        return getattr(self._client, name)

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """As `QuestionClient.ask`."""
        return restricted(await self._client.ask(question), sight.get())


def restricted(answer: AnyAnswer, seen: Sight) -> AnyAnswer:
    """The answer, without the jobs that are not in sight."""
    if isinstance(answer, SiteAnswer):
        return msgspec.structs.replace(answer, queued=[job for job in answer.queued if seen.includes(job)])
    if isinstance(answer, JobsAnswer):
        jobs = [job for job in answer.jobs if seen.includes(job)]
        return msgspec.structs.replace(answer, jobs=jobs, more=answer.more if len(jobs) == len(answer.jobs) else 0)
    if isinstance(answer, JobAnswer) and not (answer.live is not None and seen.includes(answer.live)):
        return _without_job(answer)
    return answer


def _without_job(answer: JobAnswer) -> JobAnswer:
    """The answer about a job that does not exist."""
    same = {field: getattr(answer, field) for field in ("id", "site", "made_at", "as_of", "lag_messages", "lag_s")}
    return JobAnswer(**same, stale=answer.stale, job=answer.job, text=NOT_LIVE)
