"""Provisional answers from published records, while the worker of a site compiles at its first start."""

from statistics import median_high
from typing import Any

import msgspec

from models.ranking import JobRequest, unverified_by_grid
from models.records import GridEstimate, WaitAnswer
from streams.client.estimates import EstimateCache
from streams.client.pending_questions import WorkerCompiling, new_id

_STATE = ("degraded", "live", "site_cpus", "as_of", "lag_messages", "lag_s", "stale")
_ESTIMATE = (
    *("predicted_wait_s", "predicted_run_s", "predicted_start", "bounds", "method", "reason"),
    *("p_immediate_start", "cautious_wait_s"),
)


def provisional_wait(
    cache: EstimateCache, site: str, job: JobRequest, speed: float, error: WorkerCompiling
) -> WaitAnswer:
    """Answer by the site's latest grid estimate of a shape that contains the job, else by its recent median wait.

    Args:
        cache: published estimates and outcomes.
        site: name of the site.
        job: the job of the question.
        speed: speed of the site.
        error: why there is no better answer.

    Raises:
        WorkerCompiling: nothing is published from which a wait can be estimated.
    """
    queue = job.queue or next(iter(job.partitions), None)
    estimate = cache.covering(site, job.cpus, job.walltime_at(speed), queue, job.counted_gpus)
    if estimate is not None and estimate.predicted_wait_s is not None:
        return _of_estimate(job, estimate, error)
    published = cache.estimates(site)
    waits_s = [one.actual_wait_s for one in cache.outcomes(site, "median") if not one.censored]
    if published is None or published.latest.site_cpus < job.cpus or not waits_s:
        raise WorkerCompiling(f"{error}; {site} has no history for a provisional answer") from None
    return _of_waits(published.latest, waits_s, error)


def _of_estimate(job: JobRequest, estimate: GridEstimate, error: WorkerCompiling) -> WaitAnswer:
    copied = {name: getattr(estimate, name) for name in _ESTIMATE}
    unverified = unverified_by_grid(job, estimate)
    return _answer(estimate, error, unverified, source="grid", **copied)


def _of_waits(latest: GridEstimate, waits_s: list[float], error: WorkerCompiling) -> WaitAnswer:
    """Answer by the upper median of these waits, as the baseline does."""
    median_s = median_high(waits_s)
    return _answer(
        latest,
        error,
        None,
        source="median",
        method="median",
        reason=f"median of the last {len(waits_s)} jobs to start",
        predicted_wait_s=median_s,
        predicted_run_s=None,
        predicted_start=latest.made_at + median_s,
    )


def _answer(latest: GridEstimate, error: WorkerCompiling, unverified: str | None, **fields: Any) -> WaitAnswer:
    state = {name: getattr(latest, name) for name in _STATE}
    return WaitAnswer(
        id=new_id(),
        site=latest.site,
        made_at=latest.made_at,
        low_confidence="; ".join(filter(None, (f"provisional: {error}", unverified))),
        unverified=unverified or msgspec.UNSET,
        **state,
        **fields,
    )
