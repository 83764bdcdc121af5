"""Constraints that the site declares, which override all methods: impossible jobs, nodes down, reservations."""

import msgspec

from models.durations import AT_ONCE_S
from models.engine.outgoing import nodes_down
from models.method import SiteContext
from models.site.job import Estimate, Job
from models.site.topology import cannot_run, request_of


def obstacle(job: Job, context: SiteContext, max_down_fraction: float) -> str | None:
    """Explain why no wait is predicted for a job: it can never run, or too many nodes of its area are down."""
    if context.areas is None:
        return nodes_down(context.capacity, max_down_fraction)
    never = cannot_run(context.areas.topology, job)
    return never or nodes_down(context.of(job)[1].capacity, max_down_fraction)


def default_walltime(context: SiteContext, job: Job) -> float | None:
    """Return the default time limit in seconds of the job's partitions; None if they have none."""
    return None if context.areas is None else context.areas.topology.default_s(request_of(job))


def no_earlier(estimate: Estimate, job: Job, context: SiteContext, now: float) -> Estimate:
    """Return the estimate of a job's wait at `now`, no earlier than the site's reservations allow.

    Args:
        job: the job as seen by methods.
        context: the context as seen by methods.
    """
    if context.layout is None or estimate.wait_s is None:
        return estimate
    least_s = context.earliest(job, now) - job.ready
    if least_s <= 0.0:
        return estimate
    bounds, at_once = estimate.bounds, estimate.p_immediate_start
    return msgspec.structs.replace(
        estimate,
        wait_s=max(estimate.wait_s, least_s),
        bounds=None if bounds is None else {name: max(bound_s, least_s) for name, bound_s in bounds.items()},
        p_immediate_start=0.0 if at_once is not None and least_s >= AT_ONCE_S else at_once,
    )
