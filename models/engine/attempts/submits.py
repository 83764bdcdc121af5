"""A job enters the queue by a submission or a requeue, and pending jobs are estimated again."""

from collections.abc import Iterator

from models.durations import SKEW_S
from models.engine.attempts.ends import EndHandler
from models.engine.components import AttemptHandler, EngineComponents
from models.engine.declared import default_walltime, obstacle
from models.engine.events.job_arrays import extras_of_task
from models.engine.outgoing import Anomaly, Record, count_from_eligible, nodes_down, withhold
from models.engine.reestimates import worth_publishing
from models.method import JobTransition
from models.records import Requeue, Submit
from models.site.job import NO_LIMIT_S, PROGRESS, Job, Phase


class SubmitHandler(AttemptHandler):
    """Predict jobs that enter the queue, and estimate pending jobs again."""

    def __init__(self, parts: EngineComponents, ends: EndHandler) -> None:
        super().__init__(parts)
        self._ends = ends

    def submit(self, event: Submit) -> Iterator[Record]:
        """Handle the submission of a job or an array."""
        job = Job.of(event)
        if event.historical:
            job.progress = job.progress.replaced(historical=True, old=event.old)
        if self._live.clock.too_late(event.time, self._parts.arrived):
            job.unscored = True
            yield Anomaly("late_submit", f"job {job.id}: submit is too late; its wait is neither scored nor learnt")
        elif event.late:
            job.unscored, job.progress = True, job.progress.replaced(late=True)
        if job.walltime is None:
            job.walltime = default_walltime(self._context, job)
        elif job.walltime > self._settings.max_walltime_s and not event.unlimited:
            job.walltime = NO_LIMIT_S
            yield Anomaly("unlimited_walltime", f"job {job.id}: walltime of {event.walltime} s is handled as unlimited")
        if event.array_size is not None and event.key not in self._context.state.jobs:
            yield from self._submit_of_tasks(job)
        if job.tasks_remaining:
            yield from self._admit(job)
        row = self._arrays.row_of(event)
        if row is not None and row is not job and self._live.get(job.key) is job:
            self._arrays.lose(row)

    def _submit_of_tasks(self, row: Job) -> Iterator[Record]:
        """Submit an array with started tasks: complete their requests, and exclude them from its row."""
        tasks, gone = self._arrays.unsubmitted_tasks(row.id), self._arrays.early.pop(row.id, 0)
        if not tasks and not gone:
            return
        for task in tasks:
            self._fill_in(task, Job(task.id, task.attempt, row.submit, **row.request | {"extras": extras_of_task(row)}))
            yield Anomaly("submit_after_start", f"job {task.id}: submit event of its array came after its start")
        row.progress, row.unscored = row.progress.replaced(tasks_gone=gone + len(tasks)), True
        if not row.tasks_remaining:
            self._live.note_departure(row.key)

    def _admit(self, job: Job) -> Iterator[Record]:
        """Add a job to the queue, unless it is live or has left already."""
        known = self._context.state.jobs.get(job.key)
        if known is not None and not known.requested:
            self._fill_in(known, job)
            yield Anomaly("submit_after_start", f"job {job.id}: submit event came after its start")
        elif known is not None or self._live.has_departed(job.key):
            yield Anomaly("duplicate_submit", f"job {job.id} was already submitted")
        elif self._live.full:
            yield self._live.no_room(job.id)
        elif job.progress.late:
            self._predict_run(job)
            self._live.enter(job)
            self._queues.see(job)
            self._observe(job, JobTransition.SUBMITTED, job.submit)
        else:
            yield from self._enter(job)

    def _enter(self, job: Job) -> Iterator[Record]:
        """Predict a new job from the state before it, then add it to that state."""
        context = self._context
        self._live.keep_still(job.submit)
        self._predict_run(job)
        last_task_s = None
        if job.progress.old:
            self._methods.notice(job, context)
        else:
            self._methods.predict_wait(job, context)
            withhold(job, obstacle(job, context, self._settings.max_down_fraction))
            self._groups.wait_together(job)
            last_task_s = self._methods.last_task_s(job, context)
        count_from_eligible(job)
        self._live.enter(job)
        self._observe(job, JobTransition.SUBMITTED, job.submit)
        self._groups.join(job)
        if not job.progress.old:
            self._reestimates.watch(job)
            self._landmarks.watch(job)
        self._queues.see(job)
        if not job.progress.historical:
            self._scores.count_waits(job)
            yield from self._outgoing.predictions(job, self._parts.degraded, last_task_s)

    def _fill_in(self, job: Job, request: Job) -> None:
        """Complete a job whose submit event comes after its start: its wait stays unscored."""
        self._live.confirm(job)
        self._predict_run(request)
        self._live.alter(
            job,
            submit=min(request.submit, job.submit),
            **request.request,
            run_estimates=request.run_estimates,
            run_s=request.run_s,
            planned_run_s=request.planned_run_s,
            requested=True,
        )

    def requeue(self, event: Requeue) -> Iterator[Record]:
        """Handle a job that returns to the queue as the next attempt."""
        job = self._live.get(event.key)
        if job is None:
            known = self._live.has_departed(event.key)
            self._live.note_departure(event.key)
            yield Anomaly("duplicate_requeue" if known else "requeue_of_unknown_job", f"job {event.job} is not live")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("requeue_after_end", f"job {event.job} has already ended")
        elif event.time < (job.submit if job.start is None else job.start) - SKEW_S:
            yield Anomaly("requeue_before_start", f"job {event.job}: requeue at {event.time}", rejected=True)
        else:
            yield from self._enter_again(job, event)

    def _enter_again(self, job: Job, event: Requeue) -> Iterator[Record]:
        """End this attempt, started or not, and add the next one to the queue."""
        if job.start is None:
            self._methods.forget(job.key)
            yield Anomaly("requeue_seen_before_start", f"job {job.id} was requeued before its start event was received")
        self._ends.leave(job)
        self._observe(job, JobTransition.INTERRUPTED, event.time)
        again = Job(job.id, job.attempt + 1, event.time, **job.request)
        again.extras = again.extras.for_next_attempt
        if event.state is not None or event.historical:
            old = event.historical and job.progress.old
            again.progress = PROGRESS.replaced(requeued=event.state, historical=event.historical, old=old)
        yield from self._admit(again)

    def estimate_again(self) -> Iterator[Record]:
        """Estimate the pending jobs that are due after an event; yield the estimates that have moved."""
        context, method, now = self._context, self._methods.counting, self._live.clock.now
        max_down_fraction = self._settings.max_down_fraction
        if context.areas is None and nodes_down(context.capacity, max_down_fraction) is not None:
            return
        self._live.keep_still(now)
        able = due = self._reestimates.take(now)
        if context.areas is not None:
            able = [job for job in due if obstacle(job, context, max_down_fraction) is None]
        estimates = dict(zip((job.key for job in able), self._methods.refresh(able, context, now), strict=True))
        degraded = self._parts.degraded
        for job in due:
            estimate = estimates.get(job.key)
            if estimate is not None and job.extras.het_group is not None:
                estimate = self._groups.latest(job, method.name, estimate, again=True)
            later = worth_publishing(job, method.name, estimate, now)
            if later is not None and not job.unscored:
                self._landmarks.catch_up(job, now)
                job.later = later
                if not job.progress.historical:  # estimates of the site's history are not published
                    yield self._outgoing.again(job, later, degraded)
            self._reestimates.plan(job, estimate, now)
