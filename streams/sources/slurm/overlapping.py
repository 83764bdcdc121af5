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

from streams.sources.slurm.attempt_events import Entry
from streams.sources.slurm.attempt_rows import ENDED, QUEUED, REQUEUED, RUNNING, SUSPENDED, UNCLEAR, JobRow
from streams.sources.slurm.job_table import JobTable
from streams.sources.slurm.recorded import OneFile, latest

DUPLICATES = "duplicate rows"
CACHE_KIB = 16 * 1024  # the most memory that the rows take before they go to the temporary file, KiB
BATCH_ROWS = 1000

_TABLES = f"""
    PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-{CACHE_KIB}; PRAGMA temp_store=FILE;
    CREATE TABLE attempts (job TEXT, submit REAL, file INTEGER, row BLOB);
"""

_BY_JOB = """
    SELECT job, file, row FROM (
        SELECT job, file, row, rowid AS place, MIN(submit) OVER job AS first_submit, MIN(rowid) OVER job AS first
        FROM attempts WINDOW job AS (PARTITION BY job)
    ) ORDER BY first_submit, first, place
"""

_INFORMATION = {QUEUED: 0, UNCLEAR: 1, RUNNING: 2, SUSPENDED: 2, REQUEUED: 3, ENDED: 3}
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

    `processed` is the number of the `rows` that were processed.
    """

    at: float = 0.0
    entries: dict[str, Entry] = {}
    rows: int = 0
    processed: int = 0

    def add(self, table: JobTable, at: float) -> None:
        """Add the state of these jobs."""
        self.at = max(self.at, at)
        self.entries |= table.entries


def events_of(files: Sequence[OneFile], site: str, dump_end: DumpEnd) -> Iterator[tuple[int, Any]]:
    """Yield the events of files, each with its file number; those of one job are in order.

    Duplicate rows are counted as left out; `dump_end` receives the state at the end of the files.

    Raises:
        UserError: a file cannot be read. sqlite3.Error: no space is left for the rows.
    """
    batch = _Batch(site, dump_end)
    with closing(sqlite3.connect("", isolation_level=None)) as base:
        base.executescript(_TABLES)
        base.execute("BEGIN")
        ends = [_store(base, number, file) for number, file in enumerate(files)]
        dump_end.rows = sum(file.records for file in files)
        for _, group in groupby(base.execute(_BY_JOB), itemgetter(0)):
            source_rows = [SourceRow(_decode(blob), number, ends[number]) for _, number, blob in group]
            dump_end.processed += len(source_rows)
            kept, repeated = (source_rows, []) if len(source_rows) == 1 else _deduplicated(files, source_rows)
            estimates = [found for found in repeated if found.row.phase == QUEUED and found.row.expected]
            at = max(found.at for found in source_rows)
            if estimates or at != batch.at or len(batch.rows) >= BATCH_ROWS:
                yield from batch.events()
                batch.at = max(found.at for found in estimates) if estimates else at
            if estimates:
                batch.add(estimates)
                yield from batch.events(incomplete=True)
                batch.at = at
            batch.add(kept)
        yield from batch.events()


class _Batch:
    """Rows of whole jobs that are compared together, because each comparison has a fixed cost."""

    def __init__(self, site: str, dump_end: DumpEnd) -> None:
        self.rows: list[JobRow] = []
        self.at = 0.0
        self._dump_end = dump_end
        self._files: dict[str, int] = {}
        self._table = JobTable(site)

    def add(self, source_rows: Sequence[SourceRow]) -> None:
        """Add rows of a job and its tasks."""
        for found in source_rows:
            self.rows.append(found.row)
            self._files[found.row.job] = self._files[found.row.array or found.row.job] = found.file

    def events(self, incomplete: bool = False) -> Iterator[tuple[int, Any]]:
        """Yield the events, each with its file number; `incomplete` means that more rows of these jobs follow."""
        for event in self._table.update(self.rows, self.at):
            yield self._files[event.job], event
        self.rows = []
        if not incomplete:
            self._dump_end.add(self._table, self.at)
            self._files, self._table = {}, JobTable(self._table.site)


def _deduplicated(
    files: Sequence[OneFile], source_rows: Sequence[SourceRow]
) -> tuple[list[SourceRow], list[SourceRow]]:
    """Deduplicate as `one_per_attempt`, and count the duplicates; records of jobcomp come twice by design."""
    records = [found for found in source_rows if files[found.file].kind == "records"]
    kept, repeated = one_per_attempt([found for found in source_rows if files[found.file].kind != "records"])
    for found in repeated:
        files[found.file].left_out.add(DUPLICATES, f"job {found.row.job}")
    return [*kept, *records], repeated


def _store(base: sqlite3.Connection, number: int, file: OneFile) -> float:
    """Store a file's rows; return the last time in it."""
    end = 0.0

    def rows() -> Iterator[tuple[str, float, int, bytes]]:
        nonlocal end
        for row in file.rows():
            end = max(end, latest(row))
            yield row.array or row.job, row.submit, number, _encode(row)

    base.executemany("INSERT INTO attempts VALUES (?, ?, ?, ?)", rows())
    return end


def one_per_attempt(source_rows: Sequence[SourceRow]) -> tuple[list[SourceRow], list[SourceRow]]:
    """Select one row of each attempt of a job and its tasks, and return the others too; both in their order."""
    attempts: dict[tuple[str, float], dict[float | None, list[SourceRow]]] = {}
    for found in source_rows:
        row = found.row
        attempts.setdefault((row.job, row.submit), {}).setdefault(row.start, []).append(found)
    kept = {id(best): best for by_start in attempts.values() for best in _best(by_start)}
    sizes = {(row.job, row.submit): 0 for row in (found.row for found in kept.values()) if row.array_size}
    for found in source_rows:
        key = (found.row.job, found.row.submit)
        if key in sizes:
            sizes[key] = max(sizes[key], found.row.array_size or 0)
    chosen = [found for found in source_rows if id(found) in kept]
    return [_with_size(found, sizes) for found in chosen], [one for one in source_rows if id(one) not in kept]


def _best(by_start: dict[float | None, list[SourceRow]]) -> list[SourceRow]:
    """Select the row with the most information of each attempt with the same submission, by its start.

    A row of a pending job counts unless the job started after it: a job may be pending again after a run, with the same
    submission.
    """
    best = {start: max(same, key=_information) for start, same in by_start.items()}
    queued, last = best.get(None), max((start for start in best if start is not None), default=-inf)
    if queued is not None and queued.row.phase == QUEUED and last >= queued.at:
        del best[None]
    return list(best.values())


def _information(found: SourceRow) -> tuple[int, float, int]:
    return _INFORMATION[found.row.phase], found.at, found.file


def _with_size(found: SourceRow, sizes: dict[tuple[str, float], int]) -> SourceRow:
    """Set an array's size to the largest of its rows, because started tasks have rows of their own."""
    size = sizes.get((found.row.job, found.row.submit), 0)
    if size <= (found.row.array_size or 0):
        return found
    return found._replace(row=msgspec.structs.replace(found.row, array_size=size))
