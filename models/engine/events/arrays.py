"""Job arrays that queue as one row: their tasks leave it one by one, as jobs of their own."""

from collections.abc import Callable

import msgspec

from models.engine.live import LiveJobs
from models.records import Cancel, End, JobKey, Start, Submit
from models.site.job import PROGRESS, Extras, Job, Phase, progress_at_start

MAX_EARLY = 256  # arrays of which tasks were seen before the array; the one heard of longest ago is forgotten first


class Arrays:
    """Knows which task is of which row, and takes it out.

    The first task's wait is the array's, so that task has what was predicted of the row; the waits of the others are
    unscored. What befalls each of them is observed all the same, and how long each runs is learnt.

    Parameters:
        forget: called with the key of a row of which no task is left.
    """

    def __init__(self, live: LiveJobs, forget: Callable[[JobKey], None]) -> None:
        self._live = live
        self._forget = forget
        self.early: dict[str, int] = {}
        """How many tasks of an array that was never seen submitted have left already; it is stored."""

    def row_of(self, event: Submit | Start | End | Cancel) -> Job | None:
        """The row of which a task is, while it queues."""
        if event.array is None or event.attempt:  # a later attempt queues by itself
            return None
        row = self._live.get((event.array, 0))
        return row if row is not None and is_row(row) else None

    def left(self, array: str | None) -> None:
        """A task has left whose row was never seen: it will not be in it when it comes."""
        if array is not None and not self._live.has_left((array, 0)):
            self.early[array] = self.early.pop(array, 0) + 1
            if len(self.early) > MAX_EARLY:
                del self.early[next(iter(self.early))]

    def began(self, row: str) -> list[Job]:
        """The tasks of an array that run already though it was never seen submitted."""
        return [job for job in self._live.unsubmitted() if job.extras.array == row]

    def begin(self, row: Job, event: Start, phase: Phase, scored: bool) -> Job:
        """A task starts, and the row goes on in its phase without it; it leaves with its last task. Gives the task."""
        task = task_of(row, event)
        task.phase, task.start, task.allocated = Phase.RUNNING, event.time, event.cpus
        known = PROGRESS.but(historical=row.progress.historical, old=row.progress.old)
        before = known.but(row=row.key) if scored else known
        task.progress = progress_at_start(event, before)
        task.run_s, task.planned_run_s, task.run_estimates = row.run_s, row.planned_run_s, dict(row.run_estimates)
        task.unscored = not scored
        if scored:
            task.estimates, task.features, task.later = dict(row.estimates), row.features, row.later
        self.lose(row, phase=phase, start=None, allocated=None, unscored=True)
        self._live.enter(task)
        return task

    def lose(self, row: Job, **changes: object) -> None:
        """A row has one task less."""
        gone = row.progress.tasks_gone + 1
        progress = row.progress.but(tasks_gone=gone, partition=None, nodes=None, gpus=None)
        self._live.alter(row, progress=progress, **changes)
        if row.tasks_left == 0:
            self._live.leave(row)
            self._forget(row.key)


def is_row(job: Job) -> bool:
    """Whether it is an array that queues as one row."""
    return job.extras.array_size is not None and job.start is None


def task_of(row: Job, event: Start | Cancel) -> Job:
    """A task of the row, in the same phase, as the job of its own that it is when it leaves."""
    task = Job(event.job, event.attempt, row.submit, eligible=row.eligible, **row.request)
    task.extras, task.phase = extras_of_task(row), row.phase
    return task


def extras_of_task(row: Job) -> Extras:
    """What a task of the row asks for."""
    return row.extras.but(array=row.id, array_size=None, array_limit=None, dependency=None, pending_reason=None)


def scored_as(job: Job) -> Job:
    """The job whose prediction is scored when this one starts and ends: of the first task of an array its row."""
    if job.progress.row is None:
        return job
    name, attempt = job.progress.row
    return msgspec.structs.replace(job, id=name, attempt=attempt)
