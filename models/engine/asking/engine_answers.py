"""Answers of an engine to questions. Read-only: answers do not change state."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
import numpy as np

from models.engine.asking.accuracy import _acted, recent, weeks, while_waiting
from models.engine.asking.blocked_by import PROMISE_S, BlockedBy
from models.engine.asking.partitions import considered, gpus_of, left_out, never_runs_reason, partition_states
from models.engine.asking.pending import pending_reasons_of
from models.engine.asking.state_text import NOT_LIVE, state_text
from models.engine.asking.what_if import consider, low_confidence, unverified_requests
from models.engine.asking.why import Orders, explain_wait, explained
from models.engine.declared import default_walltime
from models.engine.engine import Engine
from models.engine.events.job_arrays import arrays_of, is_row
from models.engine.outgoing import bounds_of, start_of
from models.records import (
    AnyAnswer,
    AnyQuestion,
    GridEstimate,
    JobAnswer,
    JobQuestion,
    JobsAnswer,
    JobsQuestion,
    LiveJob,
    LiveState,
    PublishedStart,
    SiteAnswer,
    SiteQuestion,
    WaitAnswer,
    WaitQuestion,
    WhatIfPrediction,
)
from models.site.job import Job, LaterEstimate, Phase
from models.site.shapes import Shape
from models.site.state import SITE
from models.site.table import RUNNING

T = TypeVar("T")

LIVE = (Phase.QUEUED, Phase.HELD, Phase.RUNNING, Phase.SUSPENDED)
"""Phases of the jobs in answers."""

UNUSUAL = 0.9
"""Bound beyond which the wait of a job is unusually long."""

MAX_OPEN_QUEUES = 32
"""Maximum number of open queues in an answer."""


def answer(question: AnyQuestion, engine: Engine, now: float) -> AnyAnswer:
    """The answer of the site's engine at `now` (Unix seconds, the site's time)."""
    if isinstance(question, WaitQuestion):
        return _wait(question, engine, now)
    if isinstance(question, JobsQuestion):
        return _jobs(question, engine, now)
    if isinstance(question, JobQuestion):
        return _job(question, engine, now)
    return _site(question, engine, now)


def grid_estimates(engine: Engine, shapes: Iterable[Shape], now: float) -> Iterable[GridEstimate]:
    """Yield the estimates of these shapes at `now`, computed lazily."""
    considered, gpus = list(shapes), gpus_of(engine.context)
    predictions = consider(engine, (shape.job(now) for shape in considered))
    for shape, prediction in zip(considered, predictions, strict=True):
        yield GridEstimate(
            site=engine.site,
            cpus=shape.cpus,
            walltime=shape.walltime,
            queue=shape.queue,
            gpus=shape.gpus or msgspec.UNSET,
            live=live_state(engine, gpus),
            site_cpus=engine.context.cpus,
            low_confidence=_known(low_confidence(engine.context, prediction.bounds)),
            **_answered(prediction),
        )


def live_state(engine: Engine, gpus: tuple[int, int] | None = None) -> LiveState:
    """Return the live state in a few numbers.

    Args:
        gpus: the total and the free GPUs (`gpus_of`); None to leave them out.
    """
    queued, running = (engine.context.state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.RUNNING))
    every, free = gpus or (msgspec.UNSET, msgspec.UNSET)
    return LiveState(
        queued_jobs=queued.count,
        running_jobs=running.count,
        free_cpus=max(engine.context.cpus - running.cpus, 0),
        gpus=every,
        free_gpus=free,
    )


def remaining_work_s(engine: Engine, now: float) -> float | None:
    """Return the remaining work of the live jobs divided by the CPUs of the site, in seconds.

    It assumes perfect packing and the predicted run times; suspended jobs are left out. O(visible live jobs), see
    `models.site.seen`.

    Returns:
        The time in seconds, or None if the number of CPUs is unknown.
    """
    if engine.context.cpus == 0:
        return None
    table = engine.context.state.table
    columns, seen = table.columns(), table.visible_rows()
    rows = seen.rows
    ran_s = np.where(columns.phase[rows] == RUNNING, np.maximum(now - columns.start[rows], 0.0), 0.0)
    run_s = np.where(columns.planned_s[rows] > 0.0, columns.run_s[rows], 0.0)  # unknown run times count as no work
    tasks = np.maximum(columns.tasks[rows], 1)
    work = columns.cpus[rows] * tasks * np.maximum(run_s - ran_s, 0.0) * seen.stands_for
    return float(work.sum()) / engine.context.cpus


def _wait(question: WaitQuestion, engine: Engine, now: float) -> WaitAnswer:
    job = considered(question, now)
    if job.walltime is None:
        job.walltime = default_walltime(engine.context, job)
    (prediction,) = consider(engine, [job])
    prediction = _implausible(prediction, job, engine, now)
    reason = never_runs_reason(engine, job)
    unverified = list(unverified_requests(job, engine))
    doubts = (low_confidence(engine.context, prediction.bounds), *unverified)
    return WaitAnswer(
        id=question.id,
        site=engine.site,
        run_interval=prediction.run_interval,
        live=live_state(engine, gpus_of(engine.context)),
        site_cpus=engine.context.cpus,
        why=explain_wait(engine, job, prediction) if question.why else None,
        cannot_run=reason or msgspec.UNSET,
        left_out=(left_out(engine, job) if reason is None else {}) or msgspec.UNSET,
        recent=recent(engine),
        low_confidence=_known("; ".join(filter(None, doubts)) or None),
        unverified=_known("; ".join(unverified) or None),
        **_answered(prediction),
    )


def _implausible(prediction: WhatIfPrediction, job: Job, engine: Engine, now: float) -> WhatIfPrediction:
    """Add a doubt to a prediction of an early start if other jobs of the user are blocked."""
    wait_s = prediction.predicted_wait_s
    if wait_s is None or wait_s > PROMISE_S or (job.user is None and job.account is None):
        return prediction
    doubt = BlockedBy(engine, now).blocked_reason(job)
    degraded = "; ".join(filter(None, (doubt, prediction.degraded))) or None
    return msgspec.structs.replace(prediction, degraded=degraded)


def _answered(prediction: WhatIfPrediction) -> dict[str, Any]:
    """Return the prediction fields that all answers share."""
    names = ("made_at", "predicted_wait_s", "predicted_run_s", "predicted_start", "bounds", "method", "reason")
    return {name: getattr(prediction, name) for name in (*names, "degraded", "p_immediate_start", "cautious_wait_s")}


def _jobs(question: JobsQuestion, engine: Engine, now: float) -> JobsAnswer:
    state = engine.context.state
    listed = live_jobs(engine, state.latest_of(question.user, question.limit), now)
    more = sum(state.totals(("user", question.user), phase).count for phase in LIVE) - len(listed)
    return JobsAnswer(id=question.id, site=engine.site, made_at=now, user=question.user, jobs=listed, more=more)


def _job(question: JobQuestion, engine: Engine, now: float) -> JobAnswer:
    answered = JobAnswer(id=question.id, site=engine.site, made_at=now, job=question.job, text=NOT_LIVE)
    name = question.job
    names = [name, f"ƒ{name[1:]}"] if name.startswith("f") else [name]  # Flux ids in ASCII
    found = [job for one in names for job in engine.context.state.attempts_of(one) if job.phase in LIVE]
    found = found or _started_tasks(engine, name) or _row_of_task(engine, name)
    if not found:
        return answered
    job = found[-1]
    queued = job.phase is Phase.QUEUED
    orders = Orders(engine, now)
    live = _live_job(engine, job, orders, BlockedBy(engine, now))
    of_row = is_row(job) and job.id not in names
    if job.extras.array in names:
        tasks_running = engine.context.state.running_tasks(name)
        live = msgspec.structs.replace(live, tasks_remaining=0, tasks_running=tasks_running)
    promised = queued and live.blocked_by is msgspec.UNSET
    expected = live.predicted_start if live.expected_start is None else live.expected_start
    expected = max(expected, now) if promised and expected is not None else None
    by = {q: job.ready + bound_s for q, bound_s in (live.bounds or {}).items()} if promised else {}
    ahead = 0 if expected is None else orders.of(job)[0].ahead(job.queue, expected).jobs
    remaining_s = None if expected is None else expected - now
    blocked_by = None if live.blocked_by is msgspec.UNSET else live.blocked_by
    text = state_text(
        live.phase, remaining_s, {q: time - now for q, time in by.items()}, ahead, live.reason, blocked_by
    )
    return msgspec.structs.replace(
        answered,
        text=f"pending in the array {job.id}; its next task: {text}" if of_row else text,
        live=live,
        expected_start=expected,
        starts_by=by,
        ahead_jobs=ahead,
        estimates=[_published_start(job, *estimate) for estimate in _estimates(engine, job)],
    )


def _started_tasks(engine: Engine, array: str) -> list[Job]:
    """Return the running tasks of an array, else the suspended ones; jobs are searched only if there may be some."""
    state, phase = engine.context.state, Phase.RUNNING
    if not state.running_tasks(array):
        phase = Phase.SUSPENDED
        if not state.totals(SITE, phase).count:
            return []
    return [job for job in state.in_phase(phase) if job.extras.array == array]


def _row_of_task(engine: Engine, task: str) -> list[Job]:
    """Return the pending array of a task that has not left it, as far as known."""
    if engine.parts.live.has_departed((task, 0)):
        return []
    rows = [job for array in arrays_of(task) for job in engine.context.state.attempts_of(array)]
    return [job for job in rows if job.phase in LIVE and is_row(job)]


def _estimates(engine: Engine, job: Job) -> Iterator[tuple[float, float | None, dict[str, float] | None]]:
    """Yield the published estimates of a job, the first one first: time, wait, and bounds."""
    method, later, again = engine.settings.method, job.later, list[LaterEstimate]()
    if (first := job.estimates.get(method)) is not None:
        yield job.submit, first.wait_s, bounds_of(job, method, engine.settings.bounds)
    while later is not None:
        again.append(later)
        later = later.before
    yield from ((one.made_at, one.estimate.wait_s, one.estimate.bounds) for one in reversed(again))


def _published_start(job: Job, at: float, wait_s: float | None, bounds: Mapping[str, float] | None) -> PublishedStart:
    by = {q: job.ready + bound_s for q, bound_s in (bounds or {}).items()}
    return PublishedStart(at=at, start=start_of(job, wait_s), starts_by=by)


def live_jobs(engine: Engine, jobs: list[Job], now: float) -> list[LiveJob]:
    """Describe live jobs with the estimates of the default method and the start expected now."""
    orders, blocked_by = Orders(engine, now), BlockedBy(engine, now)
    return [_live_job(engine, job, orders, blocked_by) for job in jobs]


def _live_job(engine: Engine, job: Job, orders: Orders, blocked_by: BlockedBy) -> LiveJob:
    method, expected_start = engine.settings.method, orders.start(job)
    estimate = job.estimates.get(method) if job.later is None else job.later.estimate
    first = bounds_of(job, method, engine.settings.bounds)
    bounds = first if job.later is None else job.later.estimate.bounds
    in_force = engine.methods.re_estimate(job, engine.context, orders.now) if job.phase is Phase.QUEUED else None
    if in_force is not None:
        estimate, bounds = in_force, in_force.bounds
    wait_s = None if estimate is None else estimate.wait_s
    held = blocked_by.of(job, expected_start) if job.phase is Phase.QUEUED else None
    why = held or "" if held or expected_start is None else explained(orders, job, expected_start - job.ready).text
    share = 0.0 if held else passed(job, first, orders.now)
    unusual = f"it has waited longer than {100 * share:.0f} % of jobs like it" if share >= UNUSUAL else ""
    return LiveJob(
        job=job.id,
        user=job.user,
        attempt=job.attempt,
        phase=(job.phase if job.progress.suspended_at is None else Phase.SUSPENDED).value,
        queue=job.queue,
        cpus=job.counted_cpus,
        walltime=job.limit_s,
        submit=job.submit,
        start=job.start,
        predicted_wait_s=wait_s,
        predicted_run_s=_run_s(job, engine),
        predicted_start=start_of(job, wait_s),
        expected_start=None if held else expected_start,
        bounds=bounds,
        method=method,
        reason="" if estimate is None else estimate.reason,
        why="; ".join(dict.fromkeys(filter(None, (why, pending_reasons_of(job), unusual)))) or None,
        priority=_known(job.extras.priority),
        pending_reason=_known(job.extras.pending_reason),
        tasks_remaining=job.tasks_remaining if is_row(job) else msgspec.UNSET,
        tasks_running=engine.context.state.running_tasks(job.id) if is_row(job) else msgspec.UNSET,
        expected_by=_expected_by(job, engine),
        blocked_by=_known(held),
        eligible=job.ready if job.ineligible_s else msgspec.UNSET,
    )


def _run_s(job: Job, engine: Engine) -> float | None:
    """Return the published run time; after a change of the method, that of the former one."""
    estimate = job.run_estimates.get(engine.settings.runtimes)
    return job.run_s if estimate is None else estimate.run_s


def passed(job: Job, bounds: Mapping[str, float] | None, now: float) -> float:
    """Return the highest bound at submission that a pending job's wait has exceeded; 0 if none."""
    if job.phase is not Phase.QUEUED:
        return 0.0
    return max((float(q) for q, bound_s in (bounds or {}).items() if now - job.ready > bound_s), default=0.0)


def count_overdue(engine: Engine, most: int) -> int:
    """Count how many of the `most` longest-pending jobs have exceeded their upper bound (`UNUSUAL`)."""
    method, lender, now = engine.settings.method, engine.settings.bounds, engine.time
    count = 0
    for job in engine.context.state.first_queued(most):
        waited_s = now - job.ready
        for q, bound_s in (bounds_of(job, method, lender) or {}).items():
            if waited_s > bound_s and float(q) >= UNUSUAL:
                count += 1
                break
    return count


def _known(value: T | None) -> T | msgspec.UnsetType:
    return msgspec.UNSET if value is None else value


def _expected_by(job: Job, engine: Engine) -> dict[str, float] | msgspec.UnsetType:
    """Return the first external estimates of the start of a pending job, by name."""
    rivals = () if job.start is not None else engine.scores.rivals
    estimates = {name: estimate for name, estimate in job.estimates.items() if name in rivals}
    return {name: job.ready + (estimate.wait_s or 0.0) for name, estimate in estimates.items()} or msgspec.UNSET


def _site(question: SiteQuestion, engine: Engine, now: float) -> SiteAnswer:
    context = engine.context
    queued, held, running = (context.state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.HELD, Phase.RUNNING))
    return SiteAnswer(
        id=question.id,
        site=engine.site,
        made_at=now,
        cpus=context.cpus,
        down_nodes=0 if context.capacity is None else context.capacity.down_nodes,
        live=live_state(engine, gpus_of(engine.context)),
        held_jobs=held.count,
        queued_cpus=queued.cpus,
        running_cpus=running.cpus,
        remaining_work_s=remaining_work_s(engine, now),
        queues=engine.open_queues(MAX_OPEN_QUEUES),
        method=engine.settings.method,
        degraded=engine.degraded,
        history_jobs=len(context.history),
        weeks=weeks(engine, now),
        queued=live_jobs(engine, context.state.first_queued(question.limit), now),
        partitions=partition_states(context, now) or msgspec.UNSET,
        answers=_acted(engine),
        recent=recent(engine),
        while_waiting=while_waiting(engine),
        features=context.history.correlations(),
        order_fit=_known(engine.methods.counting.order_fit),
        trends=engine.trends.kept if question.trends else msgspec.UNSET,
    )
