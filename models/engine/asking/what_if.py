"""Predictions for considered jobs, which are not submitted (what-if). Read-only: they do not change state."""

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, tee
from typing import NamedTuple

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from models.chances import cautious_s
from models.engine.asking.partitions import queue_names, unknown_queue
from models.engine.declared import no_earlier, obstacle
from models.engine.engine import Engine
from models.engine.methods import plan_run
from models.engine.outgoing import withhold
from models.method import SiteContext, WaitMethod
from models.records import WhatIfPrediction
from models.site.history import features_of
from models.site.job import Estimate, Job

KNOWN_JOBS = 20
"""Started jobs below which answers about a site state that little data is available."""


_Considered = tuple[Job, SiteContext, dict[str, Estimate]]


def consider(engine: Engine, jobs: Iterable[Job]) -> Iterator[WhatIfPrediction]:
    """Yield the predictions for considered jobs, each as if only this job arrived at its `submit` time.

    Hypothetical jobs have a key that no submitted job has. They are processed lazily, one for each prediction. A method
    that simulates takes one snapshot of the site for all jobs of the same time, so events may be applied in between.
    """
    settings, context, what_if = engine.settings, engine.context, engine.methods.what_if_method
    for job, where, estimates in _considered(engine, jobs):
        job.estimates = estimates
        withhold(job, too_large(job, where) or obstacle(job, context, settings.max_down_fraction))
        doubts = "; ".join(filter(None, (engine.degraded, unknown_queue(engine, job), *guesses(context))))
        prediction = engine.outgoing.prediction(job, what_if.name, doubts or None)
        compared_s: float | UnsetType = UNSET
        if prediction.predicted_wait_s is not None:
            compared_s = cautious_s(prediction.predicted_wait_s, prediction.bounds, estimates[what_if.name].schedule_s)
        yield WhatIfPrediction(**asdict(prediction), cautious_wait_s=compared_s)


def _considered(engine: Engine, jobs: Iterable[Job]) -> Iterator[_Considered]:
    """Yield each job with its area and its estimates there; of several areas the one with the earliest start."""
    settings, what_if = engine.settings, engine.methods.what_if_method
    methods = {what_if.name: what_if}
    if settings.bounds:
        methods.setdefault(settings.bounds, engine.methods.waits[settings.bounds])
    described = (_described(job, engine) for job in jobs)
    for _, alike in groupby(described, lambda one: one.areas):
        first = next(alike)
        group = chain([first], alike)  # noqa: B031 (it continues after the first)
        if len(first.seen) > 1:
            for one in group:
                yield _soonest(one, methods, what_if.name)
            continue
        where = first.seen[0][1]
        ones, others = tee(group)
        for one, estimates in zip(ones, _estimates(methods, (one.seen[0][0] for one in others), where), strict=True):
            yield one.job, where, estimates


def _soonest(one: "_JobViews", methods: Mapping[str, WaitMethod], name: str) -> _Considered:
    """Return the job in the area with the earliest start by the method `name`, with its estimates there."""
    answers = [(one.job, where, next(_estimates(methods, [seen], where))) for seen, where in one.seen]
    waits_s = [
        math.inf if estimates[name].wait_s is None else estimates[name].wait_s or 0.0 for _, _, estimates in answers
    ]
    return answers[waits_s.index(min(waits_s))]


def _estimates(
    methods: Mapping[str, WaitMethod], jobs: Iterable[Job], where: SiteContext
) -> Iterator[dict[str, Estimate]]:
    """Yield the estimates of all methods for jobs in one area."""
    originals, *copies = tee(jobs, 1 + len(methods))
    answers = [method.what_ifs(copy, where) for method, copy in zip(methods.values(), copies, strict=True)]
    for job, *estimates in zip(originals, *answers, strict=True):
        named = zip(methods, estimates, strict=True)
        yield {name: no_earlier(estimate, job, where, job.submit) for name, estimate in named}


class _JobViews(NamedTuple):
    """A job, and its view in each area where it may start."""

    job: Job
    seen: list[tuple[Job, SiteContext]]

    @property
    def areas(self) -> tuple[int, ...]:
        return tuple(where.layout.area.number for _, where in self.seen if where.layout is not None)


def _described(job: Job, engine: Engine) -> _JobViews:
    """Return a considered job with its run time and the features of the current state."""
    runtimes, context = engine.settings.runtimes, engine.context
    job.run_estimates = {runtimes: context.runtimes.predict(job, context.runs)}
    plan_run(job, runtimes)
    every = context.every_of(job)
    for seen, where in every:
        seen.features = features_of(seen, where.state, job.submit)
    job.features = every[0][0].features
    return _JobViews(job, every)


def too_large(job: Job, context: SiteContext) -> str | None:
    """Explain why a job cannot run at a site without a topology: it requests too many CPUs."""
    if context.layout is not None or not 0 < context.cpus < job.cpus:
        return None
    if context.capacity is None:
        return f"larger than the site, as far as known: no more than {context.cpus} CPUs were in use at once"
    return f"larger than the site: {job.cpus} of {context.cpus} CPUs"


SETTLED_JOBS = 100
"""Started jobs needed for confidence in the estimates of a site with an unknown capacity."""


def low_confidence(context: SiteContext, bounds: Mapping[str, float] | None) -> str | None:
    """Explain why an estimate is based on little data, which lowers its rank; None if the data is enough."""
    started = context.history.count
    if bounds and (started >= SETTLED_JOBS or (started >= KNOWN_JOBS and context.capacity is not None)):
        return None
    return "; ".join([*guesses(context), *([] if bounds else ["it has no bounds"])]) or None


def unverified_requests(job: Job, engine: Engine) -> Iterator[str]:
    """Yield the requested resources that the site does not report; these do not affect the estimate.

    The name of a queue is verified only at a site where queue names are known.
    """
    unknown_name, areas = unknown_queue(engine, job), engine.context.areas
    if unknown_name and queue_names(engine):
        yield unknown_name
    if job.gpus and areas is None:
        yield "the site does not report whether it has such GPUs"
    known = areas.topology.features if areas is not None else frozenset[str]()
    unknown = {name for one in job.extras.node_features or () for name in one} - known
    if unknown:
        yield f"the site does not report which nodes have {' and '.join(sorted(unknown))}"


def guesses(context: SiteContext) -> Iterator[str]:
    """Yield the inputs of an answer that are still uncertain."""
    if context.capacity is None:
        yield "size guessed from the jobs that ran"
    if context.history.count < KNOWN_JOBS:
        started = f"only {count}" if (count := context.history.count) else "none"
        yield f"{started} of its jobs started so far"
