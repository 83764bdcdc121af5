"""Visibility of jobs: one filter on all answers of the workers.

Routes do not filter. The guard sets the visibility of each request; hidden jobs never leave the client that queries the
workers. A job of another user is answered as one that does not exist.
"""

from contextvars import ContextVar
from typing import Any

import msgspec

from models.engine.asking.state_text import NOT_LIVE
from models.records import AnyAnswer, AnyQuestion, JobAnswer, JobsAnswer, LiveJob, SiteAnswer
from streams.client.client import QuestionClient


class VisibleJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The visible jobs: all, or those of `user`; by default none."""

    everybody: bool = False
    user: str | None = None

    def includes(self, job: LiveJob) -> bool:
        """Check if this job is visible."""
        return self.everybody or (self.user is not None and job.user == self.user)


NOTHING = VisibleJobs()

sight: ContextVar[VisibleJobs] = ContextVar("sight", default=NOTHING)
"""The visibility of the current request; without a request, no job is visible."""


class ClientInSight:
    """A client of the workers whose answers contain only visible jobs."""

    def __init__(self, client: QuestionClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        """Delegate all other attributes to the client."""
        return getattr(self._client, name)

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """Send a question as `QuestionClient.ask`, and filter the answer."""
        return restricted(await self._client.ask(question), sight.get())


def restricted(answer: AnyAnswer, seen: VisibleJobs) -> AnyAnswer:
    """Return the answer without hidden jobs."""
    if isinstance(answer, SiteAnswer):
        return msgspec.structs.replace(answer, queued=[job for job in answer.queued if seen.includes(job)])
    if isinstance(answer, JobsAnswer):
        jobs = [job for job in answer.jobs if seen.includes(job)]
        return msgspec.structs.replace(answer, jobs=jobs, more=answer.more if len(jobs) == len(answer.jobs) else 0)
    if isinstance(answer, JobAnswer) and not (answer.live is not None and seen.includes(answer.live)):
        return _without_job(answer)
    return answer


def _without_job(answer: JobAnswer) -> JobAnswer:
    """Return the answer for a job that does not exist."""
    same = {field: getattr(answer, field) for field in ("id", "site", "made_at", "as_of", "lag_messages", "lag_s")}
    return JobAnswer(**same, stale=answer.stale, job=answer.job, text=NOT_LIVE)
