"""What an engine answers to a question. Asking changes nothing."""

from collections.abc import Iterable
from itertools import islice, pairwise
from typing import Any, TypeVar

import msgspec

from models.engine.asking.partitions import considered, left_out, never, partition_states
from models.engine.asking.pending import told_of
from models.engine.asking.told import told
from models.engine.asking.what_if import consider
from models.engine.asking.why import Orders, explained, why
from models.engine.engine import Engine
from models.engine.events.arrays import is_row
from models.engine.outgoing import bounds_of, start_of
from models.engine.scores import Week
from models.measures import Tally
from models.records import (
    AnyAnswer,
    AnyQuestion,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    LiveJob,
    LiveState,
    MethodAccuracy,
    Prediction,
    SiteAnswer,
    SiteQuestion,
    StandingEstimate,
    WaitAnswer,
    WaitQuestion,
    WeekAccuracy,
)
from models.site.shapes import Shape
from models.site.state import SITE, Job, Phase

T = TypeVar("T")

LIVE = (Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.SUSPENDED)
"""The phases of jobs that are told of."""

NOT_LIVE = "no such job queues or runs here, as far as is known"

MAX_OPEN_QUEUES = 32
"""Open queues that an answer names at most."""


def answer(question: AnyQuestion, engine: Engine, now: float) -> AnyAnswer:
    """The answer of the site's engine at `now` (Unix seconds, the site's time)."""
    if isinstance(question, WaitQuestion):
        return _wait(question, engine, now)
    if isinstance(question, JobsQuestion):
        return _jobs(question, engine, now)
    if isinstance(question, JobQuestion):
        return _job(question, engine, now)
    return _site(question, engine, now)


def standing(engine: Engine, shapes: Iterable[Shape], now: float) -> Iterable[StandingEstimate]:
    """The estimates of these shapes at `now`, worked out one by one as they are taken."""
    considered = list(shapes)
    predictions = consider(engine, (shape.job(now) for shape in considered))
    for shape, prediction in zip(considered, predictions, strict=True):
        yield StandingEstimate(
            site=engine.site,
            cpus=shape.cpus,
            walltime=shape.walltime,
            queue=shape.queue,
            gpus=shape.gpus or msgspec.UNSET,
            live=live_state(engine),
            site_cpus=engine.context.cpus,
            **_answered(prediction),
        )


def live_state(engine: Engine) -> LiveState:
    """The live state in three numbers."""
    queued, running = (engine.context.state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.RUNNING))
    return LiveState(
        queued_jobs=queued.count, running_jobs=running.count, free_cpus=max(engine.context.cpus - running.cpus, 0)
    )


def drain_s(engine: Engine, now: float) -> float | None:
    """How long the site's processors need for what is left of the live jobs; None where their number is unknown.

    As if they could be packed without a gap, and by the run times as they were predicted. O(live jobs), 0.5 µs each.
    """
    if engine.context.cpus == 0:
        return None
    work = sum(job.counted_cpus * job.tasks_left * _left_s(job, now) for job in engine.context.state.jobs.values())
    return work / engine.context.cpus


def _left_s(job: Job, now: float) -> float:
    run_s = job.planned_run_s if job.run_s is None else job.run_s
    return max(run_s - job.ran_s(now), 0.0)


def _wait(question: WaitQuestion, engine: Engine, now: float) -> WaitAnswer:
    job = considered(question, now)
    (prediction,) = consider(engine, [job])
    reason = never(engine, job)
    return WaitAnswer(
        id=question.id,
        site=engine.site,
        run_interval=prediction.run_interval,
        live=live_state(engine),
        site_cpus=engine.context.cpus,
        why=why(engine, job, prediction) if question.why else None,
        cannot_run=reason or msgspec.UNSET,
        left_out=(left_out(engine, job) if reason is None else {}) or msgspec.UNSET,
        **_answered(prediction),
    )


def _answered(prediction: Prediction) -> dict[str, Any]:
    """The fields of a prediction that every answer repeats."""
    names = ("made_at", "predicted_wait_s", "predicted_run_s", "predicted_start", "bounds", "method", "reason")
    return {name: getattr(prediction, name) for name in (*names, "degraded", "starts_at_once")}


def _jobs(question: JobsQuestion, engine: Engine, now: float) -> JobsAnswer:
    state = engine.context.state
    own = [job for job in state.jobs.values() if job.user == question.user and job.phase in LIVE]
    own.sort(key=lambda job: job.submit)
    listed = live_jobs(engine, own[-question.most :], now)
    return JobsAnswer(
        id=question.id, site=engine.site, made_at=now, user=question.user, jobs=listed, more=len(own) - len(listed)
    )


def _job(question: JobQuestion, engine: Engine, now: float) -> JobAnswer:
    """O(live jobs) to find it, and a simulation of the queue."""
    answered = JobAnswer(id=question.id, site=engine.site, made_at=now, job=question.job, text=NOT_LIVE)
    attempts = [job for job in engine.context.state.jobs.values() if job.id == question.job and job.phase in LIVE]
    if not attempts:
        return answered
    job = max(attempts, key=lambda one: one.attempt)
    queued = job.phase is Phase.QUEUED
    starts = engine.methods.starts(engine.context, now) if queued else {}
    orders = Orders(engine, starts)
    live = _live_job(engine, job, starts.get(job.key), orders)
    expected = live.predicted_start if live.expected_start is None else live.expected_start
    expected = max(expected, now) if queued and expected is not None else None
    by = {q: job.ready + bound_s for q, bound_s in (live.bounds or {}).items()} if queued else {}
    ahead = 0 if expected is None else orders.of(job)[0].ahead(job.queue, expected).jobs
    left_s = None if expected is None else expected - now
    text = told(live.phase, left_s, {q: time - now for q, time in by.items()}, ahead, live.reason)
    return msgspec.structs.replace(
        answered, text=text, live=live, expected_start=expected, starts_by=by, ahead_jobs=ahead
    )


def live_jobs(engine: Engine, jobs: list[Job], now: float) -> list[LiveJob]:
    """Live jobs, with what was predicted of them by the method that counts, and what is expected now."""
    queued = any(job.phase is Phase.QUEUED for job in jobs)
    starts = engine.methods.starts(engine.context, now) if queued else {}
    orders = Orders(engine, starts)
    return [_live_job(engine, job, starts.get(job.key), orders) for job in jobs]


def _live_job(engine: Engine, job: Job, expected_start: float | None, orders: Orders) -> LiveJob:
    method = engine.settings.method
    estimate = job.estimates.get(method) if job.later is None else job.later.estimate
    wait_s = None if estimate is None else estimate.wait_s
    bounds = bounds_of(job, method, engine.settings.bounds) if job.later is None else job.later.estimate.bounds
    why = "" if expected_start is None else explained(orders, job, expected_start - job.ready).text
    return LiveJob(
        job=job.id,
        attempt=job.attempt,
        phase=(job.phase if job.progress.suspended_at is None else Phase.SUSPENDED).value,
        queue=job.queue,
        cpus=job.counted_cpus,
        walltime=job.walltime,
        submit=job.submit,
        start=job.start,
        predicted_wait_s=wait_s,
        predicted_run_s=job.run_s,
        predicted_start=start_of(job, wait_s),
        expected_start=expected_start,
        bounds=bounds,
        method=method,
        reason="" if estimate is None else estimate.reason,
        why="; ".join(filter(None, (why, told_of(job)))) or None,
        priority=_known(job.extras.priority),
        pending_reason=_known(job.extras.pending_reason),
        tasks_left=job.tasks_left if is_row(job) else msgspec.UNSET,
        expected_by=_expected_by(job, engine),
    )


def _known(value: T | None) -> T | msgspec.UnsetType:
    return msgspec.UNSET if value is None else value


def _expected_by(job: Job, engine: Engine) -> dict[str, float] | msgspec.UnsetType:
    """When others expected a job that queues to start, as they first said."""
    rivals = () if job.start is not None else engine.scores.rivals
    told = {name: estimate for name, estimate in job.estimates.items() if name in rivals}
    return {name: job.ready + (estimate.wait_s or 0.0) for name, estimate in told.items()} or msgspec.UNSET


def _site(question: SiteQuestion, engine: Engine, now: float) -> SiteAnswer:
    context = engine.context
    queued, held, running = (context.state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.HELD, Phase.RUNNING))
    return SiteAnswer(
        id=question.id,
        site=engine.site,
        made_at=now,
        cpus=context.cpus,
        down_nodes=0 if context.capacity is None else context.capacity.down_nodes,
        live=live_state(engine),
        held_jobs=held.count,
        queued_cpus=queued.cpus,
        running_cpus=running.cpus,
        drain_s=drain_s(engine, now),
        queues=engine.open_queues(MAX_OPEN_QUEUES),
        method=engine.settings.method,
        degraded=engine.degraded,
        history_jobs=len(context.history),
        weeks=weeks(engine, now),
        queued=live_jobs(engine, list(islice(context.state.in_phase(Phase.QUEUED), question.most)), now),
        partitions=partition_states(context, now) or msgspec.UNSET,
    )


def weeks(engine: Engine, now: float) -> list[WeekAccuracy]:
    """The accuracy of each method week by week, the oldest first; the last week lasts until `now`."""
    names = [engine.settings.method, *(name for name in engine.scores.accuracy if name != engine.settings.method)]
    measured = []
    for week, after in pairwise([*engine.scores.weeks, Week(now, engine.scores.tallies())]):
        both = [name for name in names if name in week.tallies and name in after.tallies]
        methods = [_accuracy(name, after.tallies[name].since(week.tallies[name])) for name in both]
        measured.append(WeekAccuracy(begin=week.begin, end=max(after.begin, week.begin), methods=methods))
    return measured


def _accuracy(method: str, tally: Tally) -> MethodAccuracy:
    return MethodAccuracy(
        method=method,
        jobs=tally.jobs,
        mean_error_s=tally.error_s / tally.jobs if tally.jobs else None,
        mean_error_share=tally.ppe / tally.responses if tally.responses else None,
        within_factor_2=tally.within_x2 / tally.jobs if tally.jobs else None,
        coverage={
            q: held / jobs for q, (jobs, held) in sorted(tally.bounds.items(), key=lambda b: float(b[0])) if jobs
        },
    )
