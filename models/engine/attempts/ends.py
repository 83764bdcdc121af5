"""A job leaves: it ends, is cancelled while pending, or expires."""

from collections.abc import Iterator

from models.durations import SKEW_S
from models.engine.components import AttemptHandler
from models.engine.events.job_arrays import is_row, scored_as, task_of
from models.engine.outgoing import Anomaly, Record, bounds_of
from models.engine.trends import TREND_BOUND
from models.method import JobTransition
from models.records import Cancel, End
from models.site.job import Job, Phase

PREEMPTED = "preempted"  # state of an end or a requeue after preemption
INTERRUPTED = (PREEMPTED, "node_fail")  # states of ends that do not show the run time of the job


def end_of(has_run_time: bool) -> JobTransition:
    """Classify how an attempt ended."""
    return JobTransition.ENDED if has_run_time else JobTransition.INTERRUPTED


class EndHandler(AttemptHandler):
    """Handle jobs that leave, and learn from their wait and run time if these are known."""

    def end(self, event: End) -> Iterator[Record]:
        """Handle the end of a job, which releases its CPUs."""
        job = self._live.get(event.key)
        if job is None and self._live.has_departed(event.key):
            yield Anomaly("duplicate_end", f"job {event.job} has already left")
        elif job is None:
            self._live.note_departure(event.key)
            row = self._arrays.row_of(event)
            if row is None:
                self._arrays.task_left(event.array)
            else:
                row.unscored = True  # this may have been its first task
                self._arrays.lose(row)
            yield Anomaly("end_without_start", f"job {event.job}: no submit or start event received")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("duplicate_end", f"job {event.job} has already ended")
        elif is_row(job):
            self._live.leave(job)
            self._methods.forget(job.key)
            yield Anomaly("end_of_array", f"job {event.job}: the remaining tasks of the array have ended")
        elif job.start is None:
            yield from self._end_before_start(job, event)
        elif event.time < job.start - SKEW_S:
            self.leave(job)
            yield Anomaly("end_before_start", f"job {event.job}: end {event.time} < start {job.start}")
        else:
            yield from self.finish(job, event.time, event.state)

    def _end_before_start(self, job: Job, event: End) -> Iterator[Record]:
        """Handle the end of a job that is pending as far as known: it leaves the queue; its start may come later."""
        self._live.end_before_start(job, event.time)
        if event.state in INTERRUPTED:
            job.progress = job.progress.replaced(interrupted=event.state)
        yield Anomaly("end_seen_before_start", f"job {event.job} ended before its start event was received")

    def finish(self, job: Job, end: float, state: str | None) -> Iterator[Record]:
        """End a running job, and learn its run time unless the job was interrupted."""
        assert job.start is not None
        preempted = state == PREEMPTED
        if not job.requested:
            self._live.confirm(job)
        run_s = job.ran_s(end)
        self.leave(job)
        clear = job.start >= job.submit - SKEW_S  # otherwise it is unknown which of its times is correct
        is_final = clear and state not in INTERRUPTED
        if is_final:
            for run_method in self._methods.runs.values():
                run_method.learn(job, run_s, self._context.runs)
            self._histories.add_run(job, run_s)
        self._observe(job, end_of(is_final), end)
        if not job.unscored:
            wait_s, job = max(job.start - job.ready, 0.0), scored_as(job)
            self._methods.ended(job, wait_s, run_s, self._context)
            if job.progress.historical:
                return
            if not preempted:
                self._scores.add_ended(job, wait_s, run_s)
            yield from self._outgoing.outcomes(job, end, wait_s, run_s, preempted=preempted)

    def leave(self, job: Job) -> None:
        """Remove a started job from the live jobs."""
        self._live.leave(job)
        if not job.requested:
            self._arrays.task_left(job.extras.array)

    def cancel(self, event: Cancel) -> Iterator[Record]:
        """Handle the cancellation of a job that has not started."""
        job = self._live.get(event.key)
        if job is None:
            known, row = self._live.has_departed(event.key), self._arrays.row_of(event)
            self._live.note_departure(event.key)
            if row is not None and not known:
                yield from self._cancel_task(row, event)
                return
            if not known:
                self._arrays.task_left(event.array)
            yield Anomaly("duplicate_cancel" if known else "cancel_without_submit", f"job {event.job} is not live")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("cancel_after_end", f"job {event.job} has already ended")
        elif job.start is not None:
            yield Anomaly("cancel_while_running", f"job {event.job} is running: handled as its end")
            yield from self.end(End(site=event.site, time=event.time, job=event.job, attempt=event.attempt))
        elif event.time < job.submit - SKEW_S:
            self._live.leave(job)
            self._methods.forget(job.key)
            yield Anomaly("cancel_before_submit", f"job {event.job}: cancel {event.time} < submit {job.submit}")
        else:
            yield from self._abandon(job, event.time)

    def _cancel_task(self, row: Job, event: Cancel) -> Iterator[Record]:
        """Cancel a task of an array that is queued as one row; the last task removes the row."""
        if row.tasks_remaining == 1:
            yield from self._abandon(row, event.time)
        else:
            self._arrays.lose(row)
            self._observe(task_of(row, event), JobTransition.WITHDRAWN, event.time)

    def _abandon(self, job: Job, at: float) -> Iterator[Record]:
        """Remove a pending job that did not start: its wait is censored."""
        waited_s = max(at - job.ready, 0.0)
        if not job.unscored:
            self._methods.cancelled(job, waited_s, self._context)  # before it leaves: methods need their per-job values
            noted = self._landmarks.job_dequeued(job, at, waited_s)
        self._live.leave(job)
        self._observe(job, JobTransition.WITHDRAWN, at)
        self._methods.forget(job.key)
        self._reestimates.dequeued_job(job, self._live.clock.now)
        if job.unscored:
            return
        self.add_trend(job, waited_s)
        if job.progress.historical:
            return
        self._scores.add_cancelled(job, waited_s, noted)
        yield from self._outgoing.outcomes(job, at, waited_s, censored=True)

    def add_trend(self, job: Job, waited_s: float) -> None:
        """Add the predicted and the actual wait of a job that left the queue to the trends, by the default method."""
        if job.progress.old:
            return
        method = self._settings.method
        estimate = job.estimates.get(method)
        bound_s = (bounds_of(job, method, self._settings.bounds) or {}).get(TREND_BOUND)
        self._trends.job_dequeued(
            self._live.clock.now, None if estimate is None else estimate.wait_s, bound_s, waited_s
        )

    def give_up(self) -> Iterator[Record]:
        """Remove jobs whose end was never reported: they are not scored, and methods do not learn from them."""
        for job in self._live.give_up():
            if job.start is None:
                self._methods.forget(job.key)
            yield Anomaly(f"gave_up_{job.phase}", f"job {job.id} removed: {job.phase} for an implausibly long time")
