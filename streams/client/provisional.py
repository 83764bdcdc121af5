"""Provisional answers from published records, while the worker of a site compiles at its first start."""

from typing import Any

from models.ranking import JobRequest
from models.records import GridEstimate, Outcome, WaitAnswer
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
        return _of_estimate(estimate, error)
    published, outcomes = cache.estimates(site), cache.outcomes(site, "median")
    if published is None or published.latest.site_cpus < job.cpus or not any(map(_is_started, outcomes)):
        raise WorkerCompiling(f"{error}; {site} has no history for a provisional answer") from None
    return _of_outcomes(published.latest, outcomes, error)


def _of_estimate(estimate: GridEstimate, error: WorkerCompiling) -> WaitAnswer:
    copied = {name: getattr(estimate, name) for name in _ESTIMATE}
    return _answer(estimate, error, source="grid", **copied)


def _of_outcomes(latest: GridEstimate, outcomes: list[Outcome], error: WorkerCompiling) -> WaitAnswer:
    """Answer by the upper median wait of the outcomes, as the baseline does."""
    waits = sorted(one.actual_wait_s for one in outcomes if _is_started(one))
    median_s = waits[len(waits) // 2]
    return _answer(
        latest,
        error,
        source="median",
        method="median",
        reason=f"median of the last {len(waits)} jobs to start",
        predicted_wait_s=median_s,
        predicted_run_s=None,
        predicted_start=latest.made_at + median_s,
    )


def _answer(latest: GridEstimate, error: WorkerCompiling, **fields: Any) -> WaitAnswer:
    state = {name: getattr(latest, name) for name in _STATE}
    return WaitAnswer(
        id=new_id(),
        site=latest.site,
        made_at=latest.made_at,
        low_confidence=f"provisional: {error}",
        **state,
        **fields,
    )


def _is_started(outcome: Outcome) -> bool:
    return not outcome.censored
