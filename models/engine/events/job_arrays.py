"""Job arrays that are queued as one row: their tasks leave it one by one, as separate jobs."""

import re
from collections.abc import Callable

import msgspec

from models.engine.live_jobs import LiveJobs
from models.records import Cancel, End, JobKey, Start, Submit
from models.site.job import PROGRESS, Extras, Job, Phase, progress_at_start

_TASK = re.compile(r"([^_.\[]+)(?:[_.]\d+|\[\d+\](.*))", re.ASCII)

MAX_EARLY = 256  # arrays whose tasks came before the array; the least recently seen one is removed first


class Arrays:
    """Tracks the rows of array tasks, and removes tasks from their rows.

    The wait of the first task is that of the array, so this task gets the predictions of the row; the waits of the
    other tasks are not scored. Methods observe the transitions of every task, and learn its run time.

    Args:
        forget: called with the key of a row without remaining tasks.
    """

    def __init__(self, live: LiveJobs, forget: Callable[[JobKey], None]) -> None:
        self._live = live
        self._forget = forget
        self.early: dict[str, int] = {}
        """Number of departed tasks of each array without a submit event; it is stored."""

    def row_of(self, event: Submit | Start | End | Cancel) -> Job | None:
        """Return the pending row of a task; None if there is none."""
        if event.array is None or event.attempt:  # later attempts are separate jobs
            return None
        row = self._live.get((event.array, 0))
        return row if row is not None and is_row(row) else None

    def task_left(self, array: str | None) -> None:
        """Count a task that left before its row was submitted: the row will not contain it."""
        if array is not None and not self._live.has_departed((array, 0)):
            self.early[array] = self.early.pop(array, 0) + 1
            if len(self.early) > MAX_EARLY:
                del self.early[next(iter(self.early))]

    def unsubmitted_tasks(self, row: str) -> list[Job]:
        """Return the running tasks of an array whose submission is missing."""
        return [job for job in self._live.unsubmitted() if job.extras.array == row]

    def begin(self, row: Job, event: Start, phase: Phase, scored: bool) -> Job:
        """Start a task and return it. The row stays in its phase with one task less, and leaves with its last task."""
        task = task_of(row, event)
        task.phase, task.start, task.allocated = Phase.RUNNING, event.time, event.cpus
        known = PROGRESS.replaced(historical=row.progress.historical, old=row.progress.old)
        before = known.replaced(row=row.key) if scored else known
        task.progress = progress_at_start(event, before)
        task.run_s, task.planned_run_s, task.run_estimates = row.run_s, row.planned_run_s, dict(row.run_estimates)
        task.unscored = not scored
        if scored:
            task.estimates, task.features, task.later = dict(row.estimates), row.features, row.later
        self.lose(row, phase=phase, start=None, allocated=None, unscored=True)
        self._live.enter(task)
        return task

    def lose(self, row: Job, **changes: object) -> None:
        """Remove one task from a row."""
        gone = row.progress.tasks_gone + 1
        progress = row.progress.replaced(tasks_gone=gone, partition=None, nodes=None, gpus=None)
        self._live.alter(row, progress=progress, **changes)
        if row.tasks_remaining == 0:
            self._live.leave(row)
            self._forget(row.key)


def arrays_of(task: str) -> list[str]:
    """Return the ids that the array of a task can have, by the schedulers' names of tasks; [] for other names.

    >>> arrays_of("7_5"), arrays_of("7.5"), arrays_of("7[5].pbs"), arrays_of("7")
    (['7'], ['7'], ['7.pbs', '7[].pbs'], [])
    """
    named = _TASK.fullmatch(task)
    if named is None:
        return []
    array, rest = named.groups()
    return [array] if rest is None else [array + rest, f"{array}[]{rest}"]


def is_row(job: Job) -> bool:
    """Return whether the job is an array that is queued as one row."""
    return job.extras.array_size is not None and job.start is None


def task_of(row: Job, event: Start | Cancel) -> Job:
    """Return a task of the row as a separate job in the same phase."""
    task = Job(event.job, event.attempt, row.submit, eligible=row.eligible, **row.request)
    task.extras, task.phase = extras_of_task(row), row.phase
    return task


def extras_of_task(row: Job) -> Extras:
    """Return the extras of a task of the row."""
    return row.extras.replaced(array=row.id, array_size=None, array_limit=None, dependency=None, pending_reason=None)


def scored_as(job: Job) -> Job:
    """Return the job whose prediction is scored for this one: for the first task of an array, its row."""
    if job.progress.row is None:
        return job
    name, attempt = job.progress.row
    return msgspec.structs.replace(job, id=name, attempt=attempt)
