"""Lifecycle of each live job in a log, so that each event is emitted once and in a valid order.

Logs begin in the middle of a job, repeat records, and omit what others contain. For example, an accounting log may have
only the end of a job, which also states when it was submitted and started. The rules are the same for all sources:

- a job without a lifecycle is submitted, with the fields that the record has, before it starts or ends;
- a job that ends without a start, in a record that states its start time, has started then;
- a job that starts again after a requeue is another attempt;
- a repeated record is passed on only if it adds something new.

The lifecycles are part of a source's cursor, so their size is bounded: beyond `MAX_KNOWN_BYTES` the oldest are dropped.
The engine ignores the duplicates that may follow.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from models.records import Alter, AnyEvent, Cancel, End, Hold, Release, Requeue, Resume, Start, Submit, Suspend

MAX_KNOWN_BYTES = 500_000  # maximum size of the lifecycles in a cursor: about 20,000 jobs
LIFECYCLE_BYTES = 30  # size of a job in a cursor, without its name
QUEUED, BARE, HELD, RUNNING, SUSPENDED, GONE = "queued", "bare", "held", "running", "suspended", "gone"
ALL_STARTED = -1  # the tasks left of an array when all have started
MakeSubmit = Callable[[], Submit | None]  # the submission that a record describes; None if it does not


def no_submit() -> None:
    """Return None: the record does not describe the submission."""


class JobLifecycle(msgspec.Struct, array_like=True):
    """Lifecycle of a job, as last recorded.

    Attributes:
        phase: pending (`bare`: without its request), held, running, suspended, or left with a possible
            duplicate record (`end_before_duplicate`).
        attempt: number of the attempt.
        tasks: of an array, the number of tasks that have not started.
        task: if an array's size is missing, the task that has the name of the whole array.
        note: state of the source.
    """

    phase: str = QUEUED
    attempt: int = 0
    tasks: int = 0
    task: int = 0
    note: str = ""


Known = dict[str, JobLifecycle]


class LifecycleTracker:
    """Lifecycles of a site's jobs in `known`, oldest first."""

    def __init__(self, site: str, known: Known) -> None:
        self.site, self.known = site, known
        self._bytes = sum(_size(job) for job in known)

    def phase(self, job: str) -> str | None:
        """Return the last phase of a job; None if it has no lifecycle."""
        lifecycle = self.known.get(job)
        return lifecycle.phase if lifecycle is not None else None

    def runs(self, job: str) -> bool:
        """Check if a job is running or suspended."""
        return self.phase(job) in (RUNNING, SUSPENDED)

    def attempt(self, job: str) -> int:
        """Return the number of a job's current attempt."""
        lifecycle = self.known.get(job)
        return lifecycle.attempt if lifecycle is not None else 0

    def submit(self, submit: Submit, phase: str = QUEUED) -> list[AnyEvent]:
        """Submit a job; no event if it has a lifecycle already."""
        if submit.job in self.known:
            return []
        self._see(submit.job, phase, submit.array_size or 0)
        return [submit]

    def start(self, start: Start, make_submit: MakeSubmit = no_submit) -> list[AnyEvent]:
        """Start a job, unless it is running; its attempt is filled in.

        A task of an array that is pending as one row has no submission.
        """
        row = self.known.get(start.array) if start.array is not None and start.job not in self.known else None
        if row is not None and row.tasks > 0:
            row.tasks = row.tasks - 1 or ALL_STARTED
            self._see(start.job, RUNNING)
            return [start]
        events = self._submitted(start.job, make_submit)
        lifecycle = self.known[start.job]
        if lifecycle.phase in (RUNNING, SUSPENDED, GONE):
            return events
        lifecycle.phase = RUNNING
        is_plain = start.array is None and not lifecycle.attempt
        events.append(start if is_plain else msgspec.structs.replace(start, array=None, attempt=lifecycle.attempt))
        return events

    def ran(
        self, job: str, start: Start | None, time: float, state: str | None, make_submit: MakeSubmit
    ) -> list[AnyEvent]:
        """Record a whole run from an accounting log.

        Without a state the job is requeued after it. Without a start, and if the job is not running, it has left the
        queue.
        """
        if start is None and self.phase(job) not in (RUNNING, SUSPENDED, GONE):
            return self._submitted(job, make_submit) + self.cancel(job, time)
        if state is None and start is not None:
            return self.start(start, make_submit) + self.requeue(job, time)
        return self.end(job, time, state or "unknown", start, make_submit)

    def end(
        self, job: str, time: float, state: str, start: Start | None = None, make_submit: MakeSubmit = no_submit
    ) -> list[AnyEvent]:
        """End a job, and drop its lifecycle."""
        lifecycle = self.known.get(job)
        events: list[AnyEvent] = []
        if lifecycle is not None and lifecycle.phase == GONE:
            self._forget(job)
            return events
        if not self.runs(job):
            events = self.start(start, make_submit) if start is not None else self._submitted(job, make_submit)
        events.append(End(site=self.site, time=time, job=job, attempt=self.attempt(job), state=state))
        self._forget(job)
        return events

    def end_before_duplicate(
        self, job: str, time: float, state: str, make_submit: MakeSubmit = no_submit
    ) -> list[AnyEvent]:
        """End a job as `end`, but expect a later duplicate record."""
        if self.phase(job) == GONE:
            return []
        attempt = self.attempt(job)
        events = self.end(job, time, state, make_submit=make_submit)
        self._see(job, GONE)
        self.known[job].attempt = attempt
        return events

    def forget(self, job: str) -> None:
        """Drop a job that has left and expects no more records."""
        if self.phase(job) == GONE:
            self._forget(job)

    def cancel(self, job: str, time: float, again: bool = False) -> list[AnyEvent]:
        """Remove a pending job from the queue; no event if it is not pending, or if all its tasks have started.

        With `again`, a duplicate record may follow and is ignored.
        """
        lifecycle = self.known.get(job)
        if lifecycle is None or lifecycle.phase not in (QUEUED, BARE, HELD):
            return []
        if again:
            self.known[job] = JobLifecycle(GONE, lifecycle.attempt)
        else:
            self._forget(job)
        if lifecycle.tasks == ALL_STARTED:
            return []
        return [Cancel(site=self.site, time=time, job=job, attempt=lifecycle.attempt)]

    def leave(self, job: str, time: float, state: str) -> list[AnyEvent]:
        """Remove a job: end it if it is running, else cancel it."""
        return self.end(job, time, state) if self.runs(job) else self.cancel(job, time)

    def abort(self, job: str, time: float, state: str) -> list[AnyEvent]:
        """Remove a job, running or not; a duplicate record of its end may follow and is ignored."""
        lifecycle = self.known.get(job)
        if lifecycle is None or lifecycle.phase not in (RUNNING, SUSPENDED):
            return self.cancel(job, time)
        lifecycle.phase = GONE
        return [End(site=self.site, time=time, job=job, attempt=lifecycle.attempt, state=state)]

    def requeue(self, job: str, time: float, state: str | None = None, phase: str = QUEUED) -> list[AnyEvent]:
        """Requeue a running job; no event if it is not running."""
        lifecycle = self.known.get(job)
        if lifecycle is None or lifecycle.phase not in (RUNNING, SUSPENDED):
            return []
        before, lifecycle.attempt, lifecycle.phase = lifecycle.attempt, lifecycle.attempt + 1, phase
        return [Requeue(site=self.site, time=time, job=job, attempt=before, state=state)]

    def suspend(self, job: str, time: float) -> list[AnyEvent]:
        """Suspend a running job."""
        return self._move(job, RUNNING, SUSPENDED, Suspend, time)

    def resume(self, job: str, time: float) -> list[AnyEvent]:
        """Resume a suspended job."""
        return self._move(job, SUSPENDED, RUNNING, Resume, time)

    def hold(self, job: str, time: float) -> list[AnyEvent]:
        """Hold a pending job."""
        return self._move(job, QUEUED, HELD, Hold, time) or self._move(job, BARE, HELD, Hold, time)

    def release(self, job: str, time: float) -> list[AnyEvent]:
        """Release a held job."""
        return self._move(job, HELD, QUEUED, Release, time)

    def alter(self, job: str, time: float, **changes: Any) -> list[AnyEvent]:
        """Change a job's request or allocation; no event without a lifecycle or without changes."""
        lifecycle = self.known.get(job)
        if lifecycle is None or lifecycle.phase == GONE or not changes:
            return []
        return [Alter(site=self.site, time=time, job=job, attempt=lifecycle.attempt, **changes)]

    def _move(
        self, job: str, before: str, after: str, kind: type[Hold | Release | Suspend | Resume], time: float
    ) -> list[AnyEvent]:
        lifecycle = self.known.get(job)
        if lifecycle is None or lifecycle.phase != before:
            return []
        lifecycle.phase = after
        return [kind(site=self.site, time=time, job=job, attempt=lifecycle.attempt)]

    def _submitted(self, job: str, make_submit: MakeSubmit) -> list[AnyEvent]:
        """Create the lifecycle of a job; return its submission if it was missing."""
        if job in self.known:
            return []
        self._see(job, QUEUED)
        submit = make_submit()
        return [submit] if submit is not None else []

    def _see(self, job: str, phase: str, tasks: int = 0) -> None:
        self.known[job] = JobLifecycle(phase, tasks=tasks)
        self._bytes += _size(job)
        if self._bytes > MAX_KNOWN_BYTES:  # many at once: finding the first of a dictionary is O(those removed)
            for oldest in list(islice(self.known, len(self.known) // 8 + 1)):
                self._forget(oldest)

    def _forget(self, job: str) -> None:
        if self.known.pop(job, None) is not None:
            self._bytes -= _size(job)


def as_late(events: list[AnyEvent]) -> list[AnyEvent]:
    """Mark a submission as late if it comes in the same record as the job's start or end.

    The information available by then must not be used to predict the wait.
    """
    if len(events) < 2:
        return events
    departed = {event.job for event in events if isinstance(event, Start | End | Cancel)}
    return [
        msgspec.structs.replace(event, late=True) if isinstance(event, Submit) and event.job in departed else event
        for event in events
    ]


def _size(job: str) -> int:
    return len(job.encode()) + LIFECYCLE_BYTES
