"""The last reported state of each job, and the events that follow from the next poll.

All pollers share one table, so an event is emitted once, whichever poller sees it first. The table is in the source's
cursor, so entries are kept small.

A log describes changes in order, and `logs.lifecycles` completes it. A poll describes a state, and several attempts of
a job may lie between two polls. So this module compares rows; only the events are in common.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from models.records import Alter, Cancel, End, JobEvent, Requeue, Start
from streams.sources.slurm.attempt_events import (
    DEPARTED,
    PRIORITY_SHARE,
    QUEUING,
    RUNS,
    STILL,
    AttemptEvents,
    Entry,
    is_resized,
)
from streams.sources.slurm.attempt_rows import (
    QUEUED,
    JobRow,
    eligible_again,
    fingerprint,
    priority_of,
    reason_of,
    request_of,
    submit_of,
)

REMEMBER_S = 3600.0
"""Seconds for which a departed job is kept, longer than any poller repeats its records."""


ORDER_S = 1800.0
"""Interval in seconds after which all changed priorities are reported if their order has changed: the order decides
which job starts first, even by a small difference."""


class _SortKey(NamedTuple):
    """Sort key of an event within a poll: its time, and at equal times first the events that free CPUs."""

    time: float
    rank: int


_RANKS: dict[type[JobEvent], int] = {End: 0, Requeue: 0, Cancel: 0, Start: 1}
_SUBMIT_RANK = 2
_SortedEvent = tuple[_SortKey, JobEvent]


class JobTable:
    """The jobs of one site, by name.

    Args:
        site: name of the site.
        entries: entries of an earlier table.
        accounted: True if the accounting is polled too. Then it reports the end of an attempt that the queue
            last showed running: the queue only shows the next attempt's submission, which is a little later.
    """

    def __init__(self, site: str, entries: dict[str, Entry] | None = None, accounted: bool = False) -> None:
        self.site = site
        self.entries = {} if entries is None else entries
        self._accounted = accounted
        self._shown: set[str] = set()
        self._queued_again: set[str] = set()
        self._unreported: set[str] = set()
        self._forgot_at = 0.0
        self._ordered_at = 0.0

    def update(self, rows: Sequence[JobRow], at: float, queue: bool = False, late: bool = False) -> list[Any]:
        """Return the events that lead from the reported state to these rows, by time.

        Args:
            rows: the rows of a poll.
            at: the scheduler's time of the poll, for changes without a time of their own, such as a hold.
            queue: True if this is the whole current queue: then requests are compared with the last queue poll, and
                the tasks in an array's row are those that have not started.
            late: True if started jobs are reported too late for a prediction of their waits.
        """
        ordered = _sorted(rows)
        if queue and self._accounted:
            ordered = self._without_queued_again(ordered)
        last = {row.job: row for row in ordered}
        share = 0.0 if queue and self._is_out_of_order(last.values(), at) else PRIORITY_SHARE
        sorted_events = list(self._arrays(ordered, queue, late))
        for row in ordered:
            newest = last[row.job]
            superseded = (newest.submit, newest.start) != (row.submit, row.start)
            sorted_events += self._row_events(row, at, queue, late, superseded, share)
        sorted_events.sort(key=itemgetter(0))
        if queue:
            self._shown = set(last)
        self._forget(at)
        return [event for _, event in sorted_events]

    def _is_out_of_order(self, rows: Iterable[JobRow], at: float) -> bool:
        """Check if the reported priorities of pending jobs have another order than the current ones.

        O(jobs · log jobs), at most every `ORDER_S` seconds if they have.
        """
        if at - self._ordered_at < ORDER_S:
            return False
        both: list[tuple[int, int]] = []
        for row in rows:
            entry = self.entries.get(row.job)
            if row.phase == QUEUED and entry is not None and entry.priority and (now := priority_of(row)):
                both.append((now, entry.priority))
        both.sort()
        changed = any(one > other for (_, one), (_, other) in pairwise(both))
        if changed:
            self._ordered_at = at
        return changed

    def _without_queued_again(self, rows: list[JobRow]) -> list[JobRow]:
        """Remove the rows of requeued jobs: the accounting reports how their previous attempts ended.

        An attempt may have begun and ended between two polls, including the first one of a new job.
        """
        unreported, self._unreported, self._queued_again = self._unreported, set(), set()
        for row in rows:
            entry = self.entries.get(row.job)
            if entry is None:
                again = bool(row.restarts)
            else:
                again = entry.phase != DEPARTED and not entry.awaited and int(row.submit) > entry.submit
            if again:
                self._queued_again.add(row.job)
        self._queued_again -= unreported
        return [row for row in rows if row.job not in self._queued_again]

    def vanished(self) -> list[str]:
        """Return the live jobs missing in the last queue poll, and the jobs whose last attempt only the queue has."""
        live = [job for job, entry in self.entries.items() if entry.phase != DEPARTED and job not in self._shown]
        return live + [job for job in self._queued_again if job not in self.entries]

    def give_up(self, jobs: Iterable[str], at: float) -> list[JobEvent]:
        """Return the final events of jobs whose end can no longer be determined.

        For requeued jobs, the next queue poll reports the time of the requeue.
        """
        events: list[JobEvent] = []
        for job in jobs:
            if job in self._queued_again:
                self._unreported.add(job)
                continue
            entry = self.entries[job]
            name: Any = {"site": self.site, "time": max(at, float(entry.since)), "job": job, "attempt": entry.attempt}
            events.append(End(**name, state="unknown") if entry.phase in (RUNS, STILL) else Cancel(**name))
            entry.phase, entry.since = DEPARTED, int(at)
        return events

    def _forget(self, at: float) -> None:
        """Remove jobs that left long ago. O(jobs), so only every six minutes."""
        if at - self._forgot_at < REMEMBER_S / 10:
            return
        self._forgot_at, oldest = at, at - REMEMBER_S
        for job in [job for job, entry in self.entries.items() if entry.phase == DEPARTED and entry.since < oldest]:
            if job not in self._shown:
                del self.entries[job]

    def _arrays(self, rows: list[JobRow], queue: bool, late: bool) -> Iterator[_SortedEvent]:
        """Yield submissions of new arrays: as one row, with all tasks that the array had."""
        tasks: dict[str, list[JobRow]] = {}
        heads: dict[str, JobRow] = {}
        for row in rows:
            if row.array_size:
                heads[row.job] = row
            elif row.array and row.job not in self.entries:
                tasks.setdefault(row.array, []).append(row)
        for array in [array for array in dict.fromkeys((*heads, *tasks)) if array not in self.entries]:
            head, parts = heads.get(array), tasks.get(array, [])
            if head is None and (len(parts) < 2 or len({part.submit for part in parts}) > 1):
                continue  # a task by itself: it queues as a job
            size = (head.array_size or 1) if head else 0
            size = size + len(parts) if queue or not head else max(size, len(parts))
            first = head or msgspec.structs.replace(parts[0], job=array, array=None)
            self._enter(first, 0, queue).pending_tasks = size
            place = _SortKey(first.submit, _SUBMIT_RANK)
            row = msgspec.structs.replace(first, array_size=size)
            yield place, submit_of(row, self.site, late=late and bool(parts))

    def _row_events(
        self, row: JobRow, at: float, queue: bool, late: bool, superseded: bool, share: float
    ) -> Iterator[_SortedEvent]:
        """Yield the events of one row.

        Args:
            row: the row.
            at: the scheduler's time of the poll.
            queue: True for a queue poll.
            late: True if started jobs are reported too late.
            superseded: True if a later attempt of the job is among the rows.
            share: relative change of the priority above which it is reported again.
        """
        entry = self.entries.get(row.job)
        before: Iterable[JobEvent] = ()
        if entry is not None and is_resized(row, entry):
            before, row = self._resized(row, entry), msgspec.structs.replace(row, submit=float(entry.submit))
        if entry is not None and int(row.submit) < entry.submit < (row.start or row.end or 0.0):
            row = msgspec.structs.replace(
                row, submit=float(entry.submit)
            )  # reported with the submission of the first attempt
        if entry is not None and entry.awaited and int(row.submit) >= entry.submit:
            entry.submit, entry.awaited = int(row.submit), False
            before = eligible_again(self.site, row, entry.attempt)
        elif entry is not None and int(row.submit) < entry.submit:
            return  # an attempt before the last one
        if entry is None or int(row.submit) > entry.submit:
            entry, before = self._new(row, entry, queue, (late or row.resized) and row.phase != QUEUED)
        steps = AttemptEvents(self.site, row, entry, at, queue, share)
        place = _SortKey(row.submit, _SUBMIT_RANK) if entry.of_row else _SortKey(0.0, 0)
        for event in chain(before, steps.events(superseded)):  # they stay in their order, whatever their times
            place = max(place, _SortKey(event.time, _RANKS.get(type(event), _SUBMIT_RANK)))
            yield place, event

    def _new(self, row: JobRow, before: Entry | None, queue: bool, late: bool) -> tuple[Entry, list[JobEvent]]:
        """Add a new job, or a new attempt of one."""
        attempt = row.restarts or 0
        if before is None:
            entry, parent = self._enter(row, attempt, queue), self.entries.get(row.array or "")
            if (
                parent is None or parent.pending_tasks == 0
            ):  # a row whose list of tasks was cut had fewer than there are
                unseen = parent is not None and row.phase != QUEUED
                return entry, [submit_of(row, self.site, attempt, late or unseen)]
            entry.of_row, parent.pending_tasks = row.phase != QUEUED, parent.pending_tasks - 1
            if parent.pending_tasks == 0:
                parent.phase, parent.since = DEPARTED, int(row.start or row.end or row.submit)
            return entry, [] if entry.of_row else [submit_of(row, self.site, attempt, late)]
        attempt = max(attempt, before.attempt + 1)
        name: Any = {"site": self.site, "time": row.submit, "job": row.job, "attempt": before.attempt}
        entry, ran = self._enter(row, attempt, queue), before.phase in (RUNS, STILL)
        if ran and attempt == before.attempt + 1:
            return entry, [Requeue(**name), *eligible_again(self.site, row, attempt)]
        again = submit_of(row, self.site, attempt, late)
        if before.phase == DEPARTED:
            return entry, [again]
        return entry, [End(**name, state="requeued") if ran else Cancel(**name), again]

    def _resized(self, row: JobRow, entry: Entry) -> list[JobEvent]:
        """Report the new size of a running job, unless the queue reports it or it was reported already."""
        reported = entry.phase == DEPARTED or int(row.submit) <= entry.resized or entry.request
        entry.resized = int(row.submit)
        name: Any = {"site": self.site, "time": row.submit, "job": row.job, "attempt": entry.attempt}
        return (
            [] if reported else [Alter(**name, cpus=row.started_cpus, nodes=row.started_nodes, gpus=row.started_gpus)]
        )

    def _enter(self, row: JobRow, attempt: int, queue: bool) -> Entry:
        submit = int(row.submit)
        entry = Entry(attempt, submit, QUEUING, submit, depends=row.phase == QUEUED and "dependency" in row.request)
        entry.featured = bool(row.request.get("node_features"))
        if queue and row.phase == QUEUED:  # the submission contains everything
            entry.request, entry.reason, entry.priority = fingerprint(request_of(row)), reason_of(row), priority_of(row)
        self.entries[row.job] = entry
        return entry


def _sorted(rows: Sequence[JobRow]) -> list[JobRow]:
    """Sort rows by submission; attempts of one job with the same submission by start."""
    first: dict[str, int] = {}
    turns = [
        (row.submit, first.setdefault(row.job, place), row.start or row.end or inf) for place, row in enumerate(rows)
    ]
    return [row for _, row in sorted(zip(turns, rows, strict=True), key=itemgetter(0))]
