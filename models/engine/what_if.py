"""What would be predicted of jobs that are only considered. Asking changes nothing."""

from collections.abc import Iterable, Iterator
from itertools import tee

from models.engine.engine import Engine
from models.engine.methods import plan_run
from models.engine.outgoing import nodes_down, withhold
from models.method import SiteContext
from models.records import Prediction
from models.site.features import features_of
from models.site.state import Job

MIN_STARTED_JOBS = 10
"""Answers about a site of which fewer jobs have started say that little is known of it."""


MAX_NAMED_QUEUES = 8
"""Queues that an answer names at most when it does not know the one that was asked for."""


def consider(engine: Engine, jobs: Iterable[Job]) -> Iterator[Prediction]:
    """What would be predicted of jobs that came at their `submit`, each as if it alone did.

    They have a key that no submitted job has, and are taken one by one, as their predictions are. A method that
    simulates looks at the site once for all jobs of one moment, so events may come in between.
    """
    settings, context, what_if = engine.settings, engine.context, engine.methods.what_if_method
    methods = {what_if.name: what_if}
    if settings.bounds:
        methods.setdefault(settings.bounds, engine.methods.waits[settings.bounds])
    considered, *copies = tee((_described(job, engine) for job in jobs), 1 + len(methods))
    answers = [method.what_ifs(copy, context) for method, copy in zip(methods.values(), copies, strict=True)]
    for job, *estimates in zip(considered, *answers, strict=True):
        job.estimates = dict(zip(methods, estimates, strict=True))
        withhold(job, too_large(job, context) or nodes_down(context.capacity, settings.withhold_down))
        doubts = "; ".join(filter(None, (engine.degraded, unknown_queue(job, engine), *guesses(context))))
        yield engine.outgoing.prediction(job, what_if.name, doubts or None)


def _described(job: Job, engine: Engine) -> Job:
    """A job that is only considered, with its run time and the state that it finds."""
    runtimes, context = engine.settings.runtimes, engine.context
    job.run_estimates = {runtimes: context.runtimes.predict(job, context.runs)}
    plan_run(job, runtimes)
    job.features = features_of(job, context.state, job.submit)
    return job


def too_large(job: Job, context: SiteContext) -> str | None:
    """Why a job cannot run at the site: it asks for more processors than there are."""
    if not 0 < context.cpus < job.cpus:
        return None
    if context.capacity is None:
        return f"larger than the site, as far as is known: no more than {context.cpus} processors were in use at once"
    return f"larger than the site: {job.cpus} of {context.cpus} processors"


def unknown_queue(job: Job, engine: Engine) -> str | None:
    """That no job of the site has named the queue that this one names."""
    known = engine.queues.seen
    if job.queue is None or job.queue in known:
        return None
    named = f"its queues are {', '.join(sorted(known)[:MAX_NAMED_QUEUES])}" if known else "no job has named any"
    return f"unknown queue {job.queue!r}: {named}"


def guesses(context: SiteContext) -> Iterator[str]:
    """What an answer about a site is based on and is not well known yet."""
    if context.capacity is None:
        yield "size guessed from the jobs that ran"
    if context.history.count < MIN_STARTED_JOBS:
        yield f"only {context.history.count} of its jobs have started so far"
