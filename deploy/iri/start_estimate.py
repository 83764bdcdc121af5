"""IRI facility API: the expected start in the status of a queued job.

Needs the package queuecast-client. Call `with_start` in `get_job` and `get_jobs` of your `FacilityAdapter`.
"""

import asyncio
from typing import Any

from queuecast import HttpClient, UserError

QUEUED = 1  # `JobState.QUEUED`


async def with_start(job: Any, client: HttpClient, site: str) -> Any:
    """Add `queuecast` to `meta_data` of a job's status, if it is queued and queuecast knows it.

    Args:
        job: an IRI `Job`, as the adapter returns it.
        client: a client of the HTTP service.
        site: the site's name in queuecast.

    Returns:
        The job, with `expected_start`, `starts_by` (Unix seconds by probability), `ahead_jobs` and `text`.
    """
    if job.status is None or job.status.state != QUEUED:
        return job
    try:
        answer = (await asyncio.to_thread(client.job, job.id, [site]))[site]
    except UserError:  # unknown yet, or the service does not answer: a status without an estimate
        return job
    if answer is not None and answer.expected_start is not None:
        job.status.meta_data = (job.status.meta_data or {}) | {
            "queuecast": {
                "expected_start": answer.expected_start,
                "starts_by": answer.starts_by,
                "ahead_jobs": answer.ahead_jobs,
                "text": answer.text,
            }
        }
    return job
