"""The engine of one site: an event goes in, predictions and outcomes come out.

`state(n) = apply(state(n-1), event n)`. There is no clock here and no chance, so whoever applies the same events from
the same state gets the same records, to the last bit. The stream, the replay and the tests all come in through
`Engine.apply`.

The file is long because it is one story: what each kind of event does to the same few objects, read from top to bottom.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from statistics import median
from typing import Any, ClassVar

from models.engine.declared import obstacle
from models.engine.events.arrays import extras_of_task, is_row, scored_as
from models.engine.events.plausible import doubt
from models.engine.outgoing import (
    EFFECTIVE,
    Anomaly,
    Record,
    bounds_of,
    count_from_eligible,
    degradation,
    nodes_down,
    stale,
    withhold,
)
from models.engine.past import PAST_BOUND
from models.engine.reestimates import worth_telling
from models.engine.state import EngineState
from models.method import Happened
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    End,
    ExpectedStart,
    Hold,
    JobEvent,
    JobKey,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)
from models.site.clock import MAX_AHEAD_S
from models.site.extras import EXTRAS, PROGRESS, progress_at_start
from models.site.job import Job, Phase

EVENTS_PER_SWEEP = 64
"""Events between two looks for jobs to give up."""

PREEMPTED = "preempted"
"""The state of an end or a requeue by which a job made room for others."""

INTERRUPTED = (PREEMPTED, "node_fail")
"""The states of ends that say nothing of how long a job would have run."""

SKEW_S = 60.0
"""Clocks differ: a start at most this long before its submit counts as one at it, an end before its start likewise."""


def _end_of(told: bool) -> Happened:
    """What the end of an attempt is, by whether it tells a run time."""
    return Happened.ENDED if told else Happened.INTERRUPTED


class Engine(EngineState):
    """One site's state, history and methods.

    >>> from models.engine.settings import EngineSettings
    >>> engine = Engine("ctc", EngineSettings(method="median"))
    >>> engine.apply(Submit(site="ctc", time=100.0, job="1", user="ada", cpus=8, walltime=3600.0))[0].reason
    'no history'
    >>> engine.apply(Start(site="ctc", time=160.0, job="1"))[0].actual_wait_s
    60.0
    """

    def apply(self, event: AnyEvent, arrived: float | None = None) -> list[Record]:
        """Take one event in; gives the records it leads to. O(1) in the live jobs, plus what the methods cost.

        Parameters:
            arrived: when the event arrived at the broker (Unix seconds, by the broker's clock); None offline. It is
                stored with the message, so an event that is delivered again has the same.
        """
        self.events += 1
        doubted = doubt(event, arrived, self.clock, self.context)
        records: list[Record] = [doubted] if doubted is not None else self._take(event, arrived)
        if self.events % EVENTS_PER_SWEEP == 0 and self._live.expiry.times:
            records.extend(self._give_up())
            self.scores.begin_week(median(self._live.expiry.times))  # some of these events may have come late
        for record in records:
            if isinstance(record, Anomaly):
                self.anomalies[record.reason] = self.anomalies.get(record.reason, 0) + 1
        return records

    def _take(self, event: AnyEvent, arrived: float | None) -> list[Record]:
        """Take a plausible event in; one that changes no job leaves the clock alone too, and nothing follows it."""
        self._arrived, self._live.event_time = arrived, event.time
        if isinstance(event, JobEvent) and self._live.may_be_forgotten(event.key, event.time):
            return [Anomaly("forgotten_job", f"job {event.job} is not known, and may have left before", rejected=True)]
        records = list(self._HANDLERS[type(event)](self, event))
        for record in records:
            if isinstance(record, Anomaly) and record.reason not in EFFECTIVE:
                return records
        if isinstance(event, Submit) and event.late:
            return records  # it says nothing of the time
        self._live.expiry.tick(self.clock.of(event.time, arrived))
        self.clock.tick(event.time, arrived)
        self.past.pass_to(self.clock.now, self.context.state)
        if self._reestimates.any_due(self.clock.now):
            records.extend(self._estimate_again())
        return records

    # What an event does, a handler for each kind; the README has them as a table.

    def _submit(self, event: Submit) -> Iterator[Record]:
        job = Job.of(event)
        if event.past:
            job.progress = job.progress.but(past=True)
        if self.clock.too_late(event.time, self._arrived):
            job.unscored = True
            yield Anomaly("late_submit", f"job {job.id} was submitted long ago: its wait is neither scored nor learnt")
        elif event.late:
            job.unscored, job.progress = True, job.progress.but(late=True)
        if job.walltime is not None and job.walltime > self.settings.max_walltime_s:
            job.walltime = None
            yield Anomaly("unlimited_walltime", f"job {job.id} asks for {event.walltime} s: taken for no limit")
        if event.array_size is not None and event.key not in self.context.state.jobs:
            yield from self._submit_of_tasks(job)
        if job.tasks_left:
            yield from self._admit(job)
        row = self._arrays.row_of(event)
        if row is not None and row is not job and self._live.get(job.key) is job:
            self._arrays.lose(row)

    def _submit_of_tasks(self, row: Job) -> Iterator[Record]:
        """An array is submitted of which tasks have started: their request is known now; its row is without them."""
        tasks, gone = self._arrays.began(row.id), self._arrays.early.pop(row.id, 0)
        if not tasks and not gone:
            return
        for task in tasks:
            self._fill_in(task, Job(task.id, task.attempt, row.submit, **row.request | {"extras": extras_of_task(row)}))
            yield Anomaly("submit_after_start", f"job {task.id}: its array was submitted after it had started")
        row.progress, row.unscored = row.progress.but(tasks_gone=gone + len(tasks)), True
        if not row.tasks_left:
            self._live.remember(row.key)

    def _admit(self, job: Job) -> Iterator[Record]:
        """A job enters the queue, unless it is known already."""
        known = self.context.state.jobs.get(job.key)
        if known is not None and not known.requested:
            self._fill_in(known, job)
            yield Anomaly("submit_after_start", f"job {job.id} was submitted after it had started")
        elif known is not None or self._live.has_left(job.key):
            yield Anomaly("duplicate_submit", f"job {job.id} was submitted before")
        elif self._live.full:
            yield self._live.no_room(job.id)
        elif job.progress.late:
            self._predict_run(job)
            self._live.enter(job)
            self.queues.see(job)
            self._observe(job, Happened.SUBMITTED, job.submit)
        else:
            yield from self._enter(job)

    def _enter(self, job: Job) -> Iterator[Record]:
        """A new job: predict it from the state that it finds, then add it to that state."""
        context = self.context
        self._suspensions.keep_still(job.submit)
        self._predict_run(job)
        self.methods.predict_wait(job, context)
        withhold(job, obstacle(job, context, self.settings.withhold_down))
        self._groups.wait_together(job)
        count_from_eligible(job)
        last_task_s = self.methods.last_task_s(job, context)
        self._live.enter(job)
        self._observe(job, Happened.SUBMITTED, job.submit)
        self._groups.join(job)
        self._reestimates.watch(job)
        self.queues.see(job)
        if not job.progress.past:
            self.scores.count_waits(job)
            yield from self.outgoing.predictions(job, self.degraded, last_task_s)

    def _estimate_again(self) -> Iterator[Record]:
        """Look again at the queued jobs whose turn it is; tell the estimates that have moved."""
        context, method, now = self.context, self.methods.counting, self.clock.now
        withhold_down = self.settings.withhold_down
        if context.areas is None and nodes_down(context.capacity, withhold_down) is not None:
            return
        self._suspensions.keep_still(now)
        for job in self._reestimates.take(now):
            if job.progress.past:
                continue
            if context.areas is not None and obstacle(job, context, withhold_down) is not None:
                continue
            told = self.methods.re_estimate(job, context, now)
            if told is not None and job.extras.het_group is not None:
                told = self._groups.latest(job, method.name, told, again=True)
            later = worth_telling(job, method.name, told, now)
            if later is not None and not job.unscored:
                job.later = later
                self._live.touch(job)
                yield self.outgoing.again(job, later, self.degraded)

    def _observe(self, job: Job, what: Happened, at: float) -> None:
        """Methods see what befalls an attempt, whether or not it is scored."""
        self.methods.observe(job, what, at, self.context)

    def _predict_run(self, job: Job) -> None:
        self.methods.predict_run(job, self.context)
        if not job.progress.past:
            self.scores.count_runs()

    def _fill_in(self, job: Job, request: Job) -> None:
        """A submit that comes after its start: the request is known now, the wait stays unscored."""
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

    def _start(self, event: Start) -> Iterator[Record]:
        job = self._live.get(event.key)
        row = self._arrays.row_of(event) if job is None else None
        if job is None and self._live.has_left(event.key):
            yield Anomaly("duplicate_start", f"job {event.job} has left already")
        elif job is None and self._live.full:
            yield self._live.no_room(event.job)
        elif row is not None:
            yield from self._start_task(row, event)
        elif job is None:
            yield self._first_seen_running(event)
            yield from self._crowd_out()
        elif job.start is not None:
            yield Anomaly("duplicate_start", f"job {event.job} is running already")
        elif job.end is not None and event.time > job.end + SKEW_S:
            yield Anomaly("start_after_end", f"job {event.job}: start {event.time} > end {job.end}", rejected=True)
        elif event.time < job.submit - SKEW_S:
            self._begin_unscored(job, event)
            yield Anomaly("start_before_submit", f"job {event.job}: start {event.time} < submit {job.submit}")
        elif job.unscored:
            self._begin_unscored(job, event)
        else:
            yield from self._begin(job, event)

    def _start_task(self, row: Job, event: Start) -> Iterator[Record]:
        """A task of an array leaves its row; the first one's wait is that of the array."""
        phase, scored = row.phase, not row.unscored
        if event.time < row.submit - SKEW_S:
            scored = False
            self.methods.forget(row.key)
            yield Anomaly("start_before_submit", f"job {event.job}: start {event.time} < submit {row.submit}")
        if scored:
            yield from self._begin(row, event)
        task = self._arrays.begin(row, event, phase, scored)
        self._observe(task, Happened.STARTED, event.time)

    def _first_seen_running(self, event: Start) -> Anomaly:
        job = Job(id=event.job, attempt=event.attempt, submit=event.time, cpus=event.cpus or 1)
        job.allocated, job.progress = event.cpus, progress_at_start(event, job.progress)
        job.phase, job.start = Phase.RUNNING, event.time
        job.unscored, job.requested = True, False
        if event.array is not None:
            job.extras = EXTRAS.but(array=event.array)
        self._predict_run(job)
        self._live.enter(job)
        return Anomaly("start_without_submit", f"job {event.job} was never seen submitted")

    def _begin_unscored(self, job: Job, event: Start) -> None:
        """A start whose wait is unknown, or not to be learnt."""
        job.unscored = True
        self.methods.forget(job.key)
        if job.end is None:
            self._live.run(job, event)
            self._observe(job, Happened.STARTED, event.time)
        else:
            self._live.leave(job)
            job.phase, job.start, job.allocated = Phase.RUNNING, event.time, event.cpus
            self._observe(job, _end_of(job.progress.interrupted is None), max(job.end, event.time))
        if job.progress.late and event.time >= job.submit - SKEW_S:
            self.methods.learn_late(job, max(event.time - job.ready, 0.0), self.context)

    def _crowd_out(self) -> Iterator[Record]:
        for job in self._live.crowd_out():
            yield Anomaly("gave_up_unsubmitted", f"job {job.id} cannot run still, beside those that do")

    def _begin(self, job: Job, event: Start) -> Iterator[Record]:
        """A queued job starts: its wait is known, and the methods learn from it."""
        self._live.run(job, event)
        yield from self._crowd_out()
        wait_s = max(event.time - job.ready, 0.0)
        if job.extras.array_size is None:  # else it is a row: its task is what starts
            self._observe(job, Happened.STARTED, event.time)
        self.methods.learn(job, wait_s, self.context)
        self._note_past(job, wait_s)
        self._histories.add_started(job, wait_s)
        self.gaps.see_started(self.context.history.count)
        if not job.progress.past:
            self.scores.add_started(job, wait_s)
            yield from self.outgoing.outcomes(job, event.time, wait_s)
        if job.end is not None:
            yield from self._finish(job, job.end, job.progress.interrupted)

    def _note_past(self, job: Job, waited_s: float) -> None:
        """A job has left the queue: what was predicted beside what happened, by the method that counts."""
        method = self.settings.method
        told = job.estimates.get(method)
        bound_s = (bounds_of(job, method, self.settings.bounds) or {}).get(PAST_BOUND)
        self.past.left(self.clock.now, None if told is None else told.wait_s, bound_s, waited_s)

    def _end(self, event: End) -> Iterator[Record]:
        job = self._live.get(event.key)
        if job is None and self._live.has_left(event.key):
            yield Anomaly("duplicate_end", f"job {event.job} has left already")
        elif job is None:
            self._live.remember(event.key)
            row = self._arrays.row_of(event)
            if row is None:
                self._arrays.left(event.array)
            else:
                row.unscored = True  # its first task may have been this one
                self._arrays.lose(row)
            yield Anomaly("end_without_start", f"job {event.job} was never seen submitted or started")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("duplicate_end", f"job {event.job} has ended already")
        elif is_row(job):
            self._live.leave(job)
            self.methods.forget(job.key)
            yield Anomaly("end_of_array", f"job {event.job}: what is left of the array has ended")
        elif job.start is None:
            yield from self._end_before_start(job, event)
        elif event.time < job.start - SKEW_S:
            self._leave_started(job)
            yield Anomaly("end_before_start", f"job {event.job}: end {event.time} < start {job.start}")
        else:
            yield from self._finish(job, event.time, event.state)

    def _end_before_start(self, job: Job, event: End) -> Iterator[Record]:
        """The end of a job that is queued as far as is known: it leaves the queue, and its start may still come."""
        self._live.move(job, Phase.ENDED_BEFORE_START)
        job.end = event.time
        if event.state in INTERRUPTED:
            job.progress = job.progress.but(interrupted=event.state)
        self._live.remember(job.key)
        yield Anomaly("end_seen_before_start", f"job {event.job} ended and its start has not been seen")

    def _finish(self, job: Job, end: float, state: str | None) -> Iterator[Record]:
        """A running job has ended: its run time is known; that of one that was interrupted says nothing of the job."""
        assert job.start is not None
        preempted = state == PREEMPTED
        run_s = job.ran_s(end)
        self._leave_started(job)
        clear = job.start >= job.submit - SKEW_S  # else it is unknown which of its times is right
        told = clear and state not in INTERRUPTED
        if told:
            for run_method in self.methods.runs.values():
                run_method.learn(job, run_s, self.context.runs)
            self._histories.add_run(job, run_s)
        self._observe(job, _end_of(told), end)
        if not job.unscored:
            wait_s, job = max(job.start - job.ready, 0.0), scored_as(job)
            self.methods.ended(job, wait_s, run_s, self.context)
            if job.progress.past:
                return
            if not preempted:
                self.scores.add_ended(job, wait_s, run_s)
            yield from self.outgoing.outcomes(job, end, wait_s, run_s, preempted=preempted)

    def _leave_started(self, job: Job) -> None:
        self._live.leave(job)
        if not job.requested:
            self._arrays.left(job.extras.array)

    def _cancel(self, event: Cancel) -> Iterator[Record]:
        job = self._live.get(event.key)
        if job is None:
            known, row = self._live.has_left(event.key), self._arrays.row_of(event)
            self._live.remember(event.key)
            if row is not None and not known:
                yield from self._cancel_task(row, event.time)
                return
            if not known:
                self._arrays.left(event.array)
            yield Anomaly("duplicate_cancel" if known else "cancel_without_submit", f"job {event.job} is not here")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("cancel_after_end", f"job {event.job} has ended already")
        elif job.start is not None:
            yield Anomaly("cancel_while_running", f"job {event.job} is running: taken for its end")
            yield from self._end(End(site=event.site, time=event.time, job=event.job, attempt=event.attempt))
        elif event.time < job.submit - SKEW_S:
            self._live.leave(job)
            self.methods.forget(job.key)
            yield Anomaly("cancel_before_submit", f"job {event.job}: cancel {event.time} < submit {job.submit}")
        else:
            yield from self._abandon(job, event.time)

    def _cancel_task(self, row: Job, at: float) -> Iterator[Record]:
        """A task of an array is cancelled in its row; with the last one the array is."""
        if row.tasks_left == 1:
            yield from self._abandon(row, at)
        else:
            self._arrays.lose(row)

    def _abandon(self, job: Job, at: float) -> Iterator[Record]:
        """A queued job leaves without having started: its wait is censored."""
        self._live.leave(job)
        self._observe(job, Happened.WITHDRAWN, at)
        waited_s = max(at - job.ready, 0.0)
        if not job.unscored:
            self.methods.cancelled(job, waited_s, self.context)
        self.methods.forget(job.key)
        if job.unscored:
            return
        self._note_past(job, waited_s)
        if job.progress.past:
            return
        self.scores.add_cancelled(job, waited_s)
        yield from self.outgoing.outcomes(job, at, waited_s, censored=True)

    def _hold(self, event: Hold) -> Iterator[Record]:
        return self._eligibility.hold(event)

    def _release(self, event: Release) -> Iterator[Record]:
        return self._eligibility.release(event)

    def _suspend(self, event: Suspend) -> Iterator[Record]:
        return self._stand_still(event, self._suspensions.suspend(event), Happened.SUSPENDED)

    def _resume(self, event: Resume) -> Iterator[Record]:
        return self._stand_still(event, self._suspensions.resume(event), Happened.RESUMED)

    def _stand_still(self, event: Suspend | Resume, refused: Iterable[Anomaly], what: Happened) -> Iterator[Record]:
        """A running job stands still or runs on, unless that is refused."""
        anomalies = list(refused)
        job = self._live.get(event.key)
        if not anomalies and job is not None:
            self._observe(job, what, event.time)
        yield from anomalies

    def _expect(self, event: ExpectedStart) -> Iterator[Record]:
        return self._rivals.expect(event)

    def _alter(self, event: Alter) -> Iterator[Record]:
        yield from self._alters.alter(event)
        job = self._live.get(event.key)
        if job is not None:
            self._reestimates.watch(job)

    def _requeue(self, event: Requeue) -> Iterator[Record]:
        job = self._live.get(event.key)
        if job is None:
            known = self._live.has_left(event.key)
            self._live.remember(event.key)
            yield Anomaly("duplicate_requeue" if known else "requeue_of_unknown_job", f"job {event.job} is not here")
        elif job.phase is Phase.ENDED_BEFORE_START:
            yield Anomaly("requeue_after_end", f"job {event.job} has ended already")
        elif event.time < (job.submit if job.start is None else job.start) - SKEW_S:
            yield Anomaly("requeue_before_start", f"job {event.job}: requeue at {event.time}", rejected=True)
        else:
            yield from self._enter_again(job, event)

    def _enter_again(self, job: Job, event: Requeue) -> Iterator[Record]:
        """This attempt is over, whether or not its start was seen; the next one enters the queue."""
        if job.start is None:
            self.methods.forget(job.key)
            yield Anomaly("requeue_seen_before_start", f"job {job.id} was requeued and its start has not been seen")
        self._leave_started(job)
        self._observe(job, Happened.INTERRUPTED if job.start is not None else Happened.WITHDRAWN, event.time)
        again = Job(job.id, job.attempt + 1, event.time, **job.request)
        again.extras = again.extras.again
        if event.state is not None or event.past:
            again.progress = PROGRESS.but(requeued=event.state, past=event.past)
        yield from self._admit(again)

    def _take_capacity(self, event: Capacity) -> Iterator[Record]:
        known = self.context.capacity
        if known is not None and event.time < known.time <= max(self.clock.now, self._arrived or 0.0) + MAX_AHEAD_S:
            yield stale(event)
        else:
            self.context.resize(event)

    _HANDLERS: ClassVar[Mapping[type, Callable[["Engine", Any], Iterable[Record]]]] = {
        Submit: _submit,
        Start: _start,
        End: _end,
        Cancel: _cancel,
        Hold: _hold,
        Release: _release,
        Suspend: _suspend,
        Resume: _resume,
        ExpectedStart: _expect,
        Alter: _alter,
        Requeue: _requeue,
        Capacity: _take_capacity,
    }

    def _give_up(self) -> Iterator[Record]:
        """Jobs whose end was never reported leave: unscored, and history for no method."""
        for job in self._live.give_up():
            if job.start is None:
                self.methods.forget(job.key)
            yield Anomaly(f"gave_up_{job.phase}", f"job {job.id} has been {job.phase} for too long to be true")

    def forget_job(self, key: JobKey) -> str:
        """A live job is taken out by an operator; returns in words what was done."""
        job = self._live.get(key)
        if job is None:
            return f"job {key[0]} is not here"
        self._live.leave(job)
        self.methods.forget(key)
        return f"job {key[0]}, {job.phase}, is forgotten"

    # What may be read.

    @property
    def degraded(self) -> str | None:
        """Why predictions are worse than usual now, if they are."""
        started = self.context.history.count
        gap, missed = started < self.gaps.gap_until, started < self.gaps.missed_until
        return degradation(self.context.capacity, self.gaps.lost, gap, missed, self.methods.counting.degraded)

    def pending(self) -> Future[Any] | None:
        """What `apply` would have to wait for, such as the end of a training in another thread; None: nothing."""
        return self.methods.pending()

    def miss_events(self) -> None:
        """Note that events were lost on their way here; predictions say so until enough jobs have started since."""
        self.gaps.miss_events(self.context.history.count)

    def open_queues(self, most: int) -> list[str]:
        """The queues with live jobs or with a submission in the last week; of more than `most`, the busiest."""
        return self.queues.open(self.context.state, self.time, most)
