"""Operator commands that change a site, in addition to its events."""

from collections.abc import Iterator
from heapq import heapify, heappop
from typing import Any

import msgspec

from models.engine.engine import Engine
from models.records import Capacity, ForgetJob, LoadPrior, SetCapacity, Start, Submit
from models.site.job import REQUEST


def operate(engine: Engine, operation: ForgetJob | SetCapacity | LoadPrior) -> str:
    """Apply an operator command to the site and return a description of the result. O(1)."""
    if isinstance(operation, SetCapacity):
        return _set_capacity(engine, operation)
    if isinstance(operation, LoadPrior):
        return _use_prior(engine, operation.prior)
    return engine.forget_job((operation.job, operation.attempt))


def _use_prior(engine: Engine, prior: bytes) -> str:
    if engine.settings.prior != "grid":
        return f"nothing: engine.prior is {engine.settings.prior!r}"
    try:
        return f"the forests start from {engine.methods.use_prior(prior)} jobs of other sites"
    except ValueError as error:
        return f"nothing: {error}"


def _set_capacity(engine: Engine, operation: SetCapacity) -> str:
    """Set the capacity with the time of the site's last event, so that the next `capacity` event takes effect again.

    Pools and partitions that the site reported are kept.
    """
    known = engine.context.capacity or Capacity(site=engine.site, time=0.0, cpus=0)
    size = {"cpus": operation.cpus, "nodes": operation.nodes, "down_nodes": operation.down_nodes}
    engine.context.resize(msgspec.structs.replace(known, time=engine.time, **size))
    return f"the site has {operation.cpus} CPUs"


def restarted(engine: Engine) -> Iterator[Engine]:
    """Yield an engine without history that takes over the size and, step by step, the live jobs of another one.

    The last engine yielded has all jobs. O(live jobs). The jobs are submitted as late, as by a source that has just
    started: their waits are neither scored nor learnt.
    """
    fresh = Engine(engine.site, engine.settings)
    fresh.context.resize(engine.context.capacity)
    yield fresh
    jobs = engine.context.state.jobs
    remaining = [(job.submit, key) for key, job in jobs.items()]
    heapify(remaining)  # in place of a sort, which is one long step
    while remaining:
        job = jobs[heappop(remaining)[1]]
        request = {name: getattr(job, name) for name in REQUEST} | msgspec.structs.asdict(job.extras)
        named: dict[str, Any] = {"site": engine.site, "job": job.id, "attempt": job.attempt}
        fresh.apply(Submit(**named, time=job.submit, eligible=job.eligible, late=True, **request))
        if job.start is not None:
            fresh.apply(Start(**named, time=job.start, cpus=job.allocated))
        yield fresh
