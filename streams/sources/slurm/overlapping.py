"""Merge files of one Slurm into one log. They overlap: pending or running jobs of one dump are in the next one too.

Rows with the same job, submission and start are one attempt. The row with the most information counts, such as one with
a start and an end. Memory is bounded by the rows of one job and its tasks: all rows are kept in a temporary file. A
JSON response of up to 64 MiB is in memory while it is read.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from streams.sources.slurm.recorded import OneFile, latest
from streams.sources.slurm.rows import ENDED, QUEUED, REQUEUED, RUNNING, SUSPENDED, UNCLEAR, JobRow
from streams.sources.slurm.table import Entry, JobTable

TWICE = "duplicate rows"
CACHE_KIB = 16 * 1024  # the most memory that the rows take before they go to the temporary file, KiB
BATCH_ROWS = 1000

_TABLES = f"""
    PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=FILE;
    CREATE TABLE told (job TEXT, submit REAL, file INTEGER, row BLOB);
"""

_BY_JOB = """
    SELECT job, file, row FROM (
        SELECT job, file, row, rowid AS place, MIN(submit) OVER job AS begun, MIN(rowid) OVER job AS first
        FROM told WINDOW job AS (PARTITION BY job)
    ) ORDER BY begun, first, place
"""

_SAYS = {QUEUED: 0, UNCLEAR: 1, RUNNING: 2, SUSPENDED: 2, REQUEUED: 3, ENDED: 3}
"""Information content of a row about an attempt, by its phase."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JobRow).decode


class SourceRow(NamedTuple):
    """A row, the number of its file, and the last time in that file."""

    row: JobRow
    file: int
    at: float


class DumpEnd(msgspec.Struct):
    """State at the end of the files: their last time (Unix seconds), and the jobs that were live shortly before.

    `told` is the number of the `rows` that were processed.
    """

    at: float = 0.0
    entries: dict[str, Entry] = {}
    rows: int = 0
    told: int = 0

    def add(self, table: JobTable, at: float) -> None:
        """Add the state of these jobs."""
        self.at = max(self.at, at)
        self.entries |= table.entries


def events_of(files: Sequence[OneFile], site: str, reached: DumpEnd) -> Iterator[tuple[int, Any]]:
    """Yield the events of files, each with its file number; those of one job are in order.

    Duplicate rows are counted as left out; `reached` receives the state at the end of the files.

    Raises:
        UserError: a file cannot be read. sqlite3.Error: no space is left for the rows.
    """
    batch = _Batch(site, reached)
    with closing(sqlite3.connect("", isolation_level=None)) as base:
        base.executescript(_TABLES)
        base.execute("BEGIN")
        ends = [_keep(base, number, file) for number, file in enumerate(files)]
        reached.rows = sum(file.records for file in files)
        for _, group in groupby(base.execute(_BY_JOB), itemgetter(0)):
            told = [SourceRow(_decode(blob), number, ends[number]) for _, number, blob in group]
            reached.told += len(told)
            kept, repeated = (told, []) if len(told) == 1 else _counted_once(files, told)
            estimates = [telling for telling in repeated if telling.row.phase == QUEUED and telling.row.expected]
            at = max(telling.at for telling in told)
            if estimates or at != batch.at or len(batch.rows) >= BATCH_ROWS:
                yield from batch.events()
                batch.at = max(telling.at for telling in estimates) if estimates else at
            if estimates:
                batch.add(estimates)
                yield from batch.events(begun=True)
                batch.at = at
            batch.add(kept)
        yield from batch.events()


class _Batch:
    """Rows of whole jobs that are compared together, because each comparison has a fixed cost."""

    def __init__(self, site: str, reached: DumpEnd) -> None:
        self.rows: list[JobRow] = []
        self.at = 0.0
        self._reached = reached
        self._files: dict[str, int] = {}
        self._table = JobTable(site)

    def add(self, told: Sequence[SourceRow]) -> None:
        """Add rows of a job and its tasks."""
        for telling in told:
            self.rows.append(telling.row)
            self._files[telling.row.job] = self._files[telling.row.array or telling.row.job] = telling.file

    def events(self, begun: bool = False) -> Iterator[tuple[int, Any]]:
        """Yield the events, each with its file number; `begun` means that more rows of these jobs follow."""
        for event in self._table.look(self.rows, self.at):
            yield self._files[event.job], event
        self.rows = []
        if not begun:
            self._reached.add(self._table, self.at)
            self._files, self._table = {}, JobTable(self._table.site)


def _counted_once(files: Sequence[OneFile], told: Sequence[SourceRow]) -> tuple[list[SourceRow], list[SourceRow]]:
    """Deduplicate as `once`, and count the duplicates; records of jobcomp come twice by design."""
    records = [telling for telling in told if files[telling.file].kind == "records"]
    kept, repeated = once([telling for telling in told if files[telling.file].kind != "records"])
    for telling in repeated:
        files[telling.file].left_out.add(TWICE, f"job {telling.row.job}")
    return [*kept, *records], repeated


def _keep(base: sqlite3.Connection, number: int, file: OneFile) -> float:
    """Store a file's rows; return the last time in it."""
    end = 0.0

    def rows() -> Iterator[tuple[str, float, int, bytes]]:
        nonlocal end
        for row in file.rows():
            end = max(end, latest(row))
            yield row.array or row.job, row.submit, number, _encode(row)

    base.executemany("INSERT INTO told VALUES (?, ?, ?, ?)", rows())
    return end


def once(told: Sequence[SourceRow]) -> tuple[list[SourceRow], list[SourceRow]]:
    """Select one row of each attempt of a job and its tasks, and return the others too; both in their order."""
    attempts: dict[tuple[str, float], dict[float | None, list[SourceRow]]] = {}
    for telling in told:
        row = telling.row
        attempts.setdefault((row.job, row.submit), {}).setdefault(row.start, []).append(telling)
    kept = {id(best): best for by_start in attempts.values() for best in _best(by_start)}
    sizes = {(row.job, row.submit): 0 for row in (telling.row for telling in kept.values()) if row.array_size}
    for telling in told:
        key = (telling.row.job, telling.row.submit)
        if key in sizes:
            sizes[key] = max(sizes[key], telling.row.array_size or 0)
    chosen = [telling for telling in told if id(telling) in kept]
    return [_with_size(telling, sizes) for telling in chosen], [one for one in told if id(one) not in kept]


def _best(by_start: dict[float | None, list[SourceRow]]) -> list[SourceRow]:
    """Select the row with the most information of each attempt with the same submission, by its start.

    A row of a pending job counts unless the job started after it: a job may be pending again after a run, with the same
    submission.
    """
    best = {start: max(same, key=_says) for start, same in by_start.items()}
    queued, last = best.get(None), max((start for start in best if start is not None), default=-inf)
    if queued is not None and queued.row.phase == QUEUED and last >= queued.at:
        del best[None]
    return list(best.values())


def _says(telling: SourceRow) -> tuple[int, float, int]:
    return _SAYS[telling.row.phase], telling.at, telling.file


def _with_size(telling: SourceRow, sizes: dict[tuple[str, float], int]) -> SourceRow:
    """Set an array's size to the largest of its rows, because started tasks have rows of their own."""
    size = sizes.get((telling.row.job, telling.row.submit), 0)
    if size <= (telling.row.array_size or 0):
        return telling
    return telling._replace(row=msgspec.structs.replace(telling.row, array_size=size))
