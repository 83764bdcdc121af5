"""What was told of each job that has not left yet, so that each event is given once, and after what it follows from.

Logs begin in the middle of a job, repeat records, and leave out what others have: an accounting log may have nothing of
a job but its end, which says when it was submitted and started too. The rules are here, the same for all sources:

- a job that is not known yet is submitted, as far as the record says how, before it starts or ends;
- a job that ends without having started, and says when it did, has started then;
- a job that starts again after a requeue is another attempt;
- what is told a second time is passed on only where it says something else.

What is remembered is part of a source's cursor, so it is bounded: of more than `MAX_KNOWN_BYTES` the oldest is
forgotten. The engine passes over what is then told twice.
"""

from collections.abc import Callable
from itertools import islice
from typing import Any

import msgspec

from models.records import Alter, AnyEvent, Cancel, End, Hold, Release, Requeue, Resume, Start, Submit, Suspend

MAX_KNOWN_BYTES = 500_000  # of what is remembered, as it stands in a cursor: some twenty thousand jobs
STORY_BYTES = 30  # what a job takes in a cursor beside its name
QUEUED, BARE, HELD, RUNNING, SUSPENDED, GONE = "queued", "bare", "held", "running", "suspended", "gone"
ALL_STARTED = -1  # the tasks left of an array when all have started
Asked = Callable[[], Submit | None]  # how a job was submitted, as far as a record says; None where it does not say that


def unsaid() -> None:
    """Of a record that says nothing of that."""


class Story(msgspec.Struct, array_like=True):
    """What was told last of a job: it queues (`bare`: its request is unknown), is held, runs, is suspended, or has left
    and may be told of again (`gone`); which attempt it is at; of an array how many tasks have not started yet; and
    where an array's size is unknown, which task goes by the name of the whole. `note` is what its source has to know.
    """

    phase: str = QUEUED
    attempt: int = 0
    tasks: int = 0
    task: int = 0
    note: str = ""


Known = dict[str, Story]


class Stories:
    """What was told of the jobs of a site that are `known`, those told of first come first."""

    def __init__(self, site: str, known: Known) -> None:
        self.site, self.known = site, known
        self._bytes = sum(_size(job) for job in known)

    def phase(self, job: str) -> str | None:
        """What was told last of a job; None where it is not known."""
        story = self.known.get(job)
        return story.phase if story is not None else None

    def runs(self, job: str) -> bool:
        """Whether a job is known to run, or to stand still."""
        return self.phase(job) in (RUNNING, SUSPENDED)

    def attempt(self, job: str) -> int:
        """Which attempt a job is at."""
        story = self.known.get(job)
        return story.attempt if story is not None else 0

    def submit(self, submit: Submit, phase: str = QUEUED) -> list[AnyEvent]:
        """A job is submitted; nothing where it is known already."""
        if submit.job in self.known:
            return []
        self._see(submit.job, phase, submit.array_size or 0)
        return [submit]

    def start(self, start: Start, asked: Asked = unsaid) -> list[AnyEvent]:
        """A job starts, unless it runs already; its attempt is filled in.

        A task of an array that queues as one row has no submission.
        """
        row = self.known.get(start.array) if start.array is not None and start.job not in self.known else None
        if row is not None and row.tasks > 0:
            row.tasks = row.tasks - 1 or ALL_STARTED
            self._see(start.job, RUNNING)
            return [start]
        events = self._submitted(start.job, asked)
        story = self.known[start.job]
        if story.phase in (RUNNING, SUSPENDED, GONE):
            return events
        story.phase = RUNNING
        is_plain = start.array is None and not story.attempt
        events.append(start if is_plain else msgspec.structs.replace(start, array=None, attempt=story.attempt))
        return events

    def ran(self, job: str, start: Start | None, time: float, state: str | None, asked: Asked) -> list[AnyEvent]:
        """An accounting tells of a whole run: without a state the job goes back into the queue after it; without a
        start, and where none is known, it has left the queue.
        """
        if start is None and self.phase(job) not in (RUNNING, SUSPENDED, GONE):
            return self._submitted(job, asked) + self.cancel(job, time)
        if state is None and start is not None:
            return self.start(start, asked) + self.requeue(job, time)
        return self.end(job, time, state or "unknown", start, asked)

    def end(
        self, job: str, time: float, state: str, start: Start | None = None, asked: Asked = unsaid
    ) -> list[AnyEvent]:
        """A job ends, and is forgotten."""
        story = self.known.get(job)
        events: list[AnyEvent] = []
        if story is not None and story.phase == GONE:
            self._forget(job)
            return events
        if not self.runs(job):
            events = self.start(start, asked) if start is not None else self._submitted(job, asked)
        events.append(End(site=self.site, time=time, job=job, attempt=self.attempt(job), state=state))
        self._forget(job)
        return events

    def gone(self, job: str, time: float, state: str, asked: Asked = unsaid) -> list[AnyEvent]:
        """As `end`, where a later record may say the same."""
        if self.phase(job) == GONE:
            return []
        attempt = self.attempt(job)
        events = self.end(job, time, state, asked=asked)
        self._see(job, GONE)
        self.known[job].attempt = attempt
        return events

    def forget(self, job: str) -> None:
        """Nothing more is told of a job that has left."""
        if self.phase(job) == GONE:
            self._forget(job)

    def cancel(self, job: str, time: float, again: bool = False) -> list[AnyEvent]:
        """A queued job leaves the queue; nothing where it is not known to queue, or all its tasks have started. With
        `again` more may be told of it, and says nothing new then.
        """
        story = self.known.get(job)
        if story is None or story.phase not in (QUEUED, BARE, HELD):
            return []
        if again:
            self.known[job] = Story(GONE, story.attempt)
        else:
            self._forget(job)
        if story.tasks == ALL_STARTED:
            return []
        return [Cancel(site=self.site, time=time, job=job, attempt=story.attempt)]

    def leave(self, job: str, time: float, state: str) -> list[AnyEvent]:
        """A job leaves: it ends where it runs, else it leaves the queue."""
        return self.end(job, time, state) if self.runs(job) else self.cancel(job, time)

    def abort(self, job: str, time: float, state: str) -> list[AnyEvent]:
        """A job leaves, whether or not it runs; a record of its end may follow, and says nothing new then."""
        story = self.known.get(job)
        if story is None or story.phase not in (RUNNING, SUSPENDED):
            return self.cancel(job, time)
        story.phase = GONE
        return [End(site=self.site, time=time, job=job, attempt=story.attempt, state=state)]

    def requeue(self, job: str, time: float, state: str | None = None, phase: str = QUEUED) -> list[AnyEvent]:
        """A running job goes back into the queue; nothing where it is not known to run."""
        story = self.known.get(job)
        if story is None or story.phase not in (RUNNING, SUSPENDED):
            return []
        before, story.attempt, story.phase = story.attempt, story.attempt + 1, phase
        return [Requeue(site=self.site, time=time, job=job, attempt=before, state=state)]

    def suspend(self, job: str, time: float) -> list[AnyEvent]:
        """A running job stands still."""
        return self._move(job, RUNNING, SUSPENDED, Suspend, time)

    def resume(self, job: str, time: float) -> list[AnyEvent]:
        """A suspended job runs on."""
        return self._move(job, SUSPENDED, RUNNING, Resume, time)

    def hold(self, job: str, time: float) -> list[AnyEvent]:
        """A queued job is held."""
        return self._move(job, QUEUED, HELD, Hold, time) or self._move(job, BARE, HELD, Hold, time)

    def release(self, job: str, time: float) -> list[AnyEvent]:
        """A held job is released."""
        return self._move(job, HELD, QUEUED, Release, time)

    def alter(self, job: str, time: float, **changes: Any) -> list[AnyEvent]:
        """A job's request changes, or what it runs on; nothing where it is not known, or nothing changes."""
        story = self.known.get(job)
        if story is None or story.phase == GONE or not changes:
            return []
        return [Alter(site=self.site, time=time, job=job, attempt=story.attempt, **changes)]

    def _move(
        self, job: str, before: str, after: str, kind: type[Hold | Release | Suspend | Resume], time: float
    ) -> list[AnyEvent]:
        story = self.known.get(job)
        if story is None or story.phase != before:
            return []
        story.phase = after
        return [kind(site=self.site, time=time, job=job, attempt=story.attempt)]

    def _submitted(self, job: str, asked: Asked) -> list[AnyEvent]:
        """A job that is known from here on; its submission, where it was not told yet."""
        if job in self.known:
            return []
        self._see(job, QUEUED)
        submit = asked()
        return [submit] if submit is not None else []

    def _see(self, job: str, phase: str, tasks: int = 0) -> None:
        self.known[job] = Story(phase, tasks=tasks)
        self._bytes += _size(job)
        if self._bytes > MAX_KNOWN_BYTES:  # many at once: finding the first of a dictionary is O(those removed)
            for oldest in list(islice(self.known, len(self.known) // 8 + 1)):
                self._forget(oldest)

    def _forget(self, job: str) -> None:
        if self.known.pop(job, None) is not None:
            self._bytes -= _size(job)


def told_late(events: list[AnyEvent]) -> list[AnyEvent]:
    """The events of a record, for who follows its source: a submission that comes together with the job's start or end
    says that it is late. What is known by then is no good for predicting the wait.
    """
    if len(events) < 2:
        return events
    left = {event.job for event in events if isinstance(event, Start | End | Cancel)}
    return [
        msgspec.structs.replace(event, late=True) if isinstance(event, Submit) and event.job in left else event
        for event in events
    ]


def _size(job: str) -> int:
    return len(job.encode()) + STORY_BYTES
