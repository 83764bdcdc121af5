"""Files of one Slurm as one log. Such files overlap: what was queued or ran at the end of one dump is in the next too.

An attempt is one, whoever tells of it: a job with the same submission and the same start. The row that says most
counts, a start and an end rather than none. Memory is that of the rows of one job and its tasks: all rows wait in a
temporary file. An answer in JSON of up to 64 MiB is in memory as it is read.
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

TWICE = "rows told twice"
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
"""How much a row says of an attempt, by its phase."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JobRow).decode


class Telling(NamedTuple):
    """A row, the number of its file, and the last time in that file."""

    row: JobRow
    file: int
    at: float


class Reached(msgspec.Struct):
    """What files told up to their end: their last time (Unix seconds), and the jobs that had not left long before.

    Of their `rows`, how many were told.
    """

    at: float = 0.0
    entries: dict[str, Entry] = {}
    rows: int = 0
    told: int = 0

    def add(self, table: JobTable, at: float) -> None:
        """So much was told of these jobs."""
        self.at = max(self.at, at)
        self.entries |= table.entries


def events_of(files: Sequence[OneFile], site: str, reached: Reached) -> Iterator[tuple[int, Any]]:
    """The events of files, each with the number of the file that it is from. Those of a job come in their order, those
    of different jobs in any. Some 30 µs a row. Rows that were told twice are counted as left out; `reached` takes in
    how far the files go. Raises UserError: a file cannot be read; sqlite3.Error: there is no room for the rows.
    """
    batch = _Batch(site, reached)
    with closing(sqlite3.connect("", isolation_level=None)) as base:
        base.executescript(_TABLES)
        base.execute("BEGIN")
        ends = [_keep(base, number, file) for number, file in enumerate(files)]
        reached.rows = sum(file.records for file in files)
        for _, group in groupby(base.execute(_BY_JOB), itemgetter(0)):
            told = [Telling(_decode(blob), number, ends[number]) for _, number, blob in group]
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
    """Rows of whole jobs that are looked at together, since each look costs something of its own."""

    def __init__(self, site: str, reached: Reached) -> None:
        self.rows: list[JobRow] = []
        self.at = 0.0
        self._reached = reached
        self._files: dict[str, int] = {}
        self._table = JobTable(site)

    def add(self, told: Sequence[Telling]) -> None:
        """Rows of a job and its tasks."""
        for telling in told:
            self.rows.append(telling.row)
            self._files[telling.row.job] = self._files[telling.row.array or telling.row.job] = telling.file

    def events(self, begun: bool = False) -> Iterator[tuple[int, Any]]:
        """The events, each with the number of its file; `begun`: more is told of these jobs."""
        for event in self._table.look(self.rows, self.at):
            yield self._files[event.job], event
        self.rows = []
        if not begun:
            self._reached.add(self._table, self.at)
            self._files, self._table = {}, JobTable(self._table.site)


def _counted_once(files: Sequence[OneFile], told: Sequence[Telling]) -> tuple[list[Telling], list[Telling]]:
    """As `once`, with those that were told twice counted; records of jobcomp come twice by their nature."""
    records = [telling for telling in told if files[telling.file].kind == "records"]
    kept, repeated = once([telling for telling in told if files[telling.file].kind != "records"])
    for telling in repeated:
        files[telling.file].left_out.add(TWICE, f"job {telling.row.job}")
    return [*kept, *records], repeated


def _keep(base: sqlite3.Connection, number: int, file: OneFile) -> float:
    """Keep a file's rows; gives the last time in it."""
    end = 0.0

    def rows() -> Iterator[tuple[str, float, int, bytes]]:
        nonlocal end
        for row in file.rows():
            end = max(end, latest(row))
            yield row.array or row.job, row.submit, number, _encode(row)

    base.executemany("INSERT INTO told VALUES (?, ?, ?, ?)", rows())
    return end


def once(told: Sequence[Telling]) -> tuple[list[Telling], list[Telling]]:
    """Of what was told of a job and its tasks one telling of each attempt, and the others; both in their order."""
    attempts: dict[tuple[str, float], dict[float | None, list[Telling]]] = {}
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


def _best(by_start: dict[float | None, list[Telling]]) -> list[Telling]:
    """The telling that says most of each attempt with the same submission, by its start.

    One that says that the job is queued counts where it is not known to have started after that: a job may be queued
    again, with the same submission, when it has run.
    """
    best = {start: max(same, key=_says) for start, same in by_start.items()}
    queued, last = best.get(None), max((start for start in best if start is not None), default=-inf)
    if queued is not None and queued.row.phase == QUEUED and last >= queued.at:
        del best[None]
    return list(best.values())


def _says(telling: Telling) -> tuple[int, float, int]:
    return _SAYS[telling.row.phase], telling.at, telling.file


def _with_size(telling: Telling, sizes: dict[tuple[str, float], int]) -> Telling:
    """An array had as many tasks as any row of it says: those that have started are told by themselves."""
    size = sizes.get((telling.row.job, telling.row.submit), 0)
    if size <= (telling.row.array_size or 0):
        return telling
    return telling._replace(row=msgspec.structs.replace(telling.row, array_size=size))
