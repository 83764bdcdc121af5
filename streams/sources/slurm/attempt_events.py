"""Events that lead from the last reported state of a job's attempt to its next row."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from models.records import Alter, Cancel, End, ExpectedStart, Hold, JobEvent, Release, Requeue, Resume, Start, Suspend
from streams.sources.logs.fields import in_turn
from streams.sources.slurm.attempt_rows import (
    QUEUED,
    REQUEUED,
    RUNNING,
    SUSPENDED,
    UNCLEAR,
    JobRow,
    fingerprint,
    priority_of,
    reason_of,
    request_of,
)

QUEUING, HELD, RUNS, STILL, DEPARTED = range(5)  # the phases of an entry: queued, held, running, suspended, ended
BY = "slurm"  # under this name Slurm's own estimates are scored


PRIORITY_SHARE = 0.25
"""Relative change above which a priority is reported immediately: with an age factor it grows with every poll."""


class Entry(msgspec.Struct, array_like=True, gc=False, omit_defaults=True):
    """Last reported state of a job's last attempt; times are Unix seconds.

    `request` is the fingerprint of the request in the last queue poll, 0 before one. `pending_tasks` counts the tasks
    of an array that are still pending as this row. `awaited`: it was requeued, and not seen pending again. `of_row`: a
    task of which only its array was reported, as pending. `depends`: it waits for other jobs. `resized` is when the
    accounting last reported another size of it. `featured`: it requests node features. The other fields have their last
    reported values.
    """

    attempt: int
    submit: int
    phase: int
    since: int
    request: int = 0
    pending_tasks: int = 0
    expected: bool = False
    awaited: bool = False
    of_row: bool = False
    reason: str = ""
    priority: int = 0
    depends: bool = False
    resized: int = 0
    featured: bool = False


class AttemptEvents:
    """The events from an entry to a row of the same attempt; the entry is updated."""

    def __init__(self, site: str, row: JobRow, entry: Entry, at: float, queue: bool, share: float) -> None:
        self._row, self._entry, self._at, self._queue, self._share = row, entry, at, queue, share
        self._name: Any = {"site": site, "job": row.job, "attempt": entry.attempt}

    def events(self, superseded: bool) -> Iterator[JobEvent]:
        """Yield the events; `superseded` means that a later attempt of the job is among the rows."""
        row, entry = self._row, self._entry
        if entry.phase == DEPARTED or row.phase == UNCLEAR:
            return
        if row.phase == QUEUED:
            if entry.phase in (QUEUING, HELD):
                yield from self._queued()
        elif row.phase in (RUNNING, SUSPENDED):
            yield from self._started()
            yield from self._runs()
        else:
            yield from self._started()
            yield from self._ends(row.phase == REQUEUED or (superseded and row.state in _AGAIN))

    def _queued(self) -> Iterator[JobEvent]:
        row, entry = self._row, self._entry
        if self._queue:  # the accounting keeps the reason of the submission
            if row.held != (entry.phase == HELD):
                entry.phase = HELD if row.held else QUEUING
                yield Hold(**self._name, time=self._at) if row.held else Release(**self._name, time=self._released())
            yield from self._altered(request_of(row))
        if row.expected is not None and not entry.expected and not row.held:
            entry.expected = True
            yield ExpectedStart(**self._name, time=self._at, by=BY, expected=row.expected)

    def _released(self) -> float:
        """Return the time of a release: Slurm records when a released job becomes eligible."""
        eligible = self._row.eligible
        return eligible if eligible is not None and self._row.submit < eligible <= self._at else self._at

    def _altered(self, request: dict[str, Any]) -> Iterator[JobEvent]:
        row, entry = self._row, self._entry
        before, entry.request = entry.request, fingerprint(request)
        kept = {"dependency": entry.depends, "node_features": entry.featured}  # what was never there is not taken away
        entry.depends, entry.featured = "dependency" in row.request, bool(row.request.get("node_features"))
        present = {name: x for name, x in request.items() if x is not None and (x or kept.get(name, True))}
        changed = {} if before == entry.request else present
        if not before:  # another input reported it, with fewer fields
            changed = {name: row.request[name] for name in ("dependency",) if name in row.request}
        if row.phase == QUEUED:
            if (reason := reason_of(row)) != entry.reason:
                entry.reason = changed["pending_reason"] = reason
            priority = priority_of(row)
            if priority and abs(priority - entry.priority) > self._share * entry.priority:
                entry.priority = priority
                changed["priority"] = float(priority)
        if changed:
            yield Alter(**self._name, time=self._at, **changed)

    def _started(self) -> Iterator[JobEvent]:
        row, entry = self._row, self._entry
        if row.start is None or entry.phase not in (QUEUING, HELD):
            return
        if entry.phase == HELD:
            yield Release(**self._name, time=min(self._released(), row.start))
        if entry.depends and row.eligible is not None and row.submit < row.eligible <= row.start:  # met since the look
            yield Alter(**self._name, time=row.eligible, eligible=row.eligible, dependency="")
        entry.phase, entry.since, entry.request = RUNS, int(row.start), 0
        yield Start(
            **self._name,
            time=row.start if row.began is None else in_turn(row.began, row.submit),
            cpus=row.started_cpus,
            nodes=row.started_nodes,
            gpus=row.started_gpus,
            partition=row.partition,
            array=row.array if entry.of_row else None,
        )
        entry.of_row = False

    def _runs(self) -> Iterator[JobEvent]:
        row, entry = self._row, self._entry
        if entry.phase not in (RUNS, STILL):
            return
        since = row.still_since if row.still_since is not None and row.still_since >= entry.since else self._at
        if row.phase == SUSPENDED and entry.phase == RUNS:
            entry.phase, entry.since = STILL, int(since)
            yield Suspend(**self._name, time=since)
        elif row.phase == RUNNING and entry.phase == STILL:
            entry.phase, entry.since = RUNS, int(since)
            yield Resume(**self._name, time=since)
        if self._queue:
            request = {"cpus": row.started_cpus, "walltime": row.request.get("walltime"), "unlimited": row.unlimited}
            yield from self._altered(request)

    def _ends(self, again: bool) -> Iterator[JobEvent]:
        row, entry = self._row, self._entry
        if row.end is None:
            return
        ran = entry.phase in (RUNS, STILL)
        entry.phase, entry.since = DEPARTED, int(row.end)
        if again and ran:
            yield Requeue(**self._name, time=row.end, state=row.state or None)
            entry.attempt, entry.submit, entry.phase, entry.awaited = entry.attempt + 1, int(row.end), QUEUING, True
            entry.request, entry.expected = 0, False
        elif ran:
            state = sys.intern(row.state or "unknown")  # msgspec omits the default where it is the same object
            yield End(**self._name, time=row.end, state=state)
        else:
            yield Cancel(**self._name, time=row.end, array=row.array if entry.of_row else None)


def is_resized(row: JobRow, entry: Entry) -> bool:
    """Check if a row is another size of an attempt that ran: its start is the attempt's, and not after its end."""
    if entry.phase not in (RUNS, STILL, DEPARTED) or int(row.submit) <= entry.submit:
        return False
    began = row.start if row.began is None else row.began
    same = began is not None and entry.submit <= began and began < entry.since + (entry.phase != DEPARTED)
    return row.resized or same


_AGAIN = frozenset({"preempted", "node_fail", "requeued"})
"""States of an end after which a later attempt is the same job, queued again."""
