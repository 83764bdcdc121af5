"""A job starts: its wait is known, and the methods learn from it."""

from collections.abc import Iterator

from models.durations import SKEW_S
from models.engine.attempts.ends import EndHandler, end_of
from models.engine.components import AttemptHandler, EngineComponents
from models.engine.outgoing import Anomaly, Record
from models.method import JobTransition
from models.records import Start
from models.site.job import EXTRAS, Job, Phase, progress_at_start


class StartHandler(AttemptHandler):
    """Handle job starts, in order or out of order."""

    def __init__(self, parts: EngineComponents, ends: EndHandler) -> None:
        super().__init__(parts)
        self._ends = ends

    def start(self, event: Start) -> Iterator[Record]:
        """Handle the start of a job, or of a task of an array."""
        job = self._live.get(event.key)
        row = self._arrays.row_of(event) if job is None else None
        if job is None and self._live.has_departed(event.key):
            yield Anomaly("duplicate_start", f"job {event.job} has already left")
        elif job is None and self._live.full:
            yield self._live.no_room(event.job)
        elif row is not None:
            yield from self._start_task(row, event)
        elif job is None:
            yield self._first_seen_running(event)
            yield from self._crowd_out()
        elif job.start is not None:
            yield Anomaly("duplicate_start", f"job {event.job} is already running")
        elif job.end is not None and event.time > job.end + SKEW_S:
            yield Anomaly("start_after_end", f"job {event.job}: start {event.time} > end {job.end}", rejected=True)
        elif event.time < job.submit - SKEW_S:
            self._begin_unscored(job, event)
            yield Anomaly("start_before_submit", f"job {event.job}: start {event.time} < submit {job.submit}")
        elif event.time < job.ready - SKEW_S:
            self._begin_unscored(job, event)
            yield Anomaly("start_before_eligible", f"job {event.job}: start {event.time} < eligible {job.ready}")
        elif job.unscored:
            self._begin_unscored(job, event)
        else:
            yield from self._begin(job, event)

    def _start_task(self, row: Job, event: Start) -> Iterator[Record]:
        """Start a task of an array, which leaves its row; the wait of the first task is that of the array."""
        phase, scored = row.phase, not row.unscored
        if event.time < row.submit - SKEW_S:
            scored = False
            self._methods.forget(row.key)
            yield Anomaly("start_before_submit", f"job {event.job}: start {event.time} < submit {row.submit}")
        elif event.time < row.ready - SKEW_S:
            scored = False
            self._methods.forget(row.key)
            yield Anomaly("start_before_eligible", f"job {event.job}: start {event.time} < eligible {row.ready}")
        if scored:
            yield from self._begin(row, event)
        task = self._arrays.begin(row, event, phase, scored)
        self._observe(task, JobTransition.TASK_STARTED, event.time)

    def _first_seen_running(self, event: Start) -> Anomaly:
        job = Job(id=event.job, attempt=event.attempt, submit=event.time, cpus=event.cpus or 1)
        job.allocated, job.progress = event.cpus, progress_at_start(event, job.progress)
        doubtful = self._live.unsubmitted_starts.doubtful
        job.phase, job.start = Phase.UNCONFIRMED if doubtful else Phase.RUNNING, event.time
        job.unscored, job.requested = True, False
        if event.array is not None:
            job.extras = EXTRAS.replaced(array=event.array)
        self._predict_run(job)
        self._live.enter(job)
        return Anomaly("start_without_submit", f"job {event.job}: no submit event received")

    def _begin_unscored(self, job: Job, event: Start) -> None:
        """Start a job whose wait is unknown, or excluded from learning."""
        job.unscored = True
        self._methods.forget(job.key)
        if job.end is None:
            self._live.run(job, event)
            self._observe(job, JobTransition.STARTED, event.time)
        else:
            self._live.leave(job)
            job.phase, job.start, job.allocated = Phase.RUNNING, event.time, event.cpus
            self._observe(job, end_of(job.progress.interrupted is None), max(job.end, event.time))
        if job.progress.late and event.time >= job.ready - SKEW_S:
            self._methods.learn_late(job, max(event.time - job.ready, 0.0), self._context)

    def _crowd_out(self) -> Iterator[Record]:
        for job in self._live.crowd_out():
            yield Anomaly("gave_up_unsubmitted", f"job {job.id} removed: the running jobs exceed the site's CPUs")

    def _begin(self, job: Job, event: Start) -> Iterator[Record]:
        """Start a pending job: its wait is known, and the methods learn from it."""
        wait_s = max(event.time - job.ready, 0.0)
        noted = self._landmarks.job_dequeued(job, event.time, wait_s)
        self._live.run(job, event)
        yield from self._crowd_out()
        if job.extras.array_size is None:  # otherwise a task of the row starts, not the row
            self._observe(job, JobTransition.STARTED, event.time)
        self._methods.learn(job, wait_s, self._context)
        self._ends.add_trend(job, wait_s)
        self._histories.add_started(job, wait_s)
        self._parts.gaps.see_started(self._context.history.count)
        if not job.progress.historical:
            self._scores.add_started(job, wait_s, noted)
            yield from self._outgoing.outcomes(job, event.time, wait_s)
        if job.end is not None:
            yield from self._ends.finish(job, job.end, job.progress.interrupted)
