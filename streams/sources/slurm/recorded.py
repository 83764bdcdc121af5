"""Recorded poll results in files: the output of sacct, and folders of polls of a queue."""

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import tzinfo
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

from streams.errors import BROKEN_ZIP, UserError, file_error
from streams.sources.contract import IgnoredRecords, OnSkipped, SkippedPart
from streams.sources.logs.log_files import BROKEN, is_zipped, open_log
from streams.sources.slurm.attempt_rows import JobRow
from streams.sources.slurm.days import NO_ROWS, DayCounts, OldRows, RowDays
from streams.sources.slurm.jobcomp import read_record
from streams.sources.slurm.json_jobs import BrokenOffError, JobsDocument, JobsInTurn, read_jobs, rows_of
from streams.sources.slurm.machine import Machine, read_text
from streams.sources.slurm.polling import Poller, PollResult, SlurmCursor
from streams.sources.slurm.text import read_sacct

BLOCK_BYTES = 1 << 20
LARGE_BYTES = 64 << 20  # a larger response is read job by job
OTHERS = "jobs of other clusters"

SURE_ROWS, FEW_ROWS = 2, 10
"""Number of rows that confirm a cluster's name; in a file with few rows one is enough."""
NEWLINE = b"\n"

_NAME = re.compile(r"\d+-(squeue|sacct)\.(json|txt)(\.gz|\.bz2|\.xz)?$")


class RecordedPoller(Poller):
    """A folder of poll results, in name order.

    The files are named `0001-squeue.json`, `0002-sacct.txt.gz`, `0003-sacct.json` and so on. Beside `0001-squeue.json`
    there may be `0001-nodes.txt`, `0001-partitions.txt` and `0001-reservations.txt`, as scontrol prints them in one
    line each. Times are UTC. The time of a result is the latest time in it.

    Raises:
        UserError: the folder has none.
    """

    def __init__(self, directory: Path, on_skipped: OnSkipped) -> None:
        super().__init__()
        self._files = sorted(path for path in directory.iterdir() if _NAME.match(path.name))
        self._on_skipped = on_skipped
        if not self._files:
            raise UserError(
                f"{directory}: no recorded polls; expected files such as 0001-squeue.json or 0001-sacct.txt"
            )

    def results(self, place: SlurmCursor) -> Iterator[PollResult]:
        """Yield the results after the place."""
        for path in self._files[place.polls :]:
            place.polls += 1
            queue = "squeue" in path.name
            try:
                document = self._read(path)
            except ValueError as error:
                self._on_skipped(SkippedPart(str(path), None, None, str(error)[:200], "a response of Slurm"))
                continue
            self.records += len(document.rows)
            at = document.last_update or max(map(latest, document.rows), default=0.0)
            yield PollResult(document.rows, at, queue=queue, machine=_machine(path) if queue else None)

    def _read(self, path: Path) -> JobsDocument:
        with closing(open_log(path)) as file:
            try:
                data = b"".join(iter(lambda: file.read(BLOCK_BYTES), b""))
            except BROKEN as error:
                raise ValueError(f"cannot be read: {error}") from None
        if ".json" in path.suffixes:
            return read_jobs(data, self._on_skipped, str(path))
        lines = data.decode("utf-8", "replace").split("\n")
        return JobsDocument(list(read_sacct(lines, self._on_skipped, str(path))))


def latest(row: JobRow) -> float:
    """Return the last time in a row."""
    return max(row.submit, row.start or 0.0, row.end or 0.0, row.still_since or 0.0)


def _machine(path: Path) -> Machine | None:
    """Read the machine files beside a result; None if there are none."""
    number, tables = path.name.partition("-")[0], list[list[Any]]()
    for what in ("nodes", "partitions", "reservations"):
        beside = path.with_name(f"{number}-{what}.txt")
        tables.append(read_text(what, beside.read_text(errors="replace") if beside.exists() else ""))
    return Machine(*tables) if tables[0] else None


Kind = Literal["records", "json", "text"]
"""Records of jobcomp, one a line; a document of squeue, slurmrestd or sacct; what sacct prints as text."""


_DOCUMENTS = re.compile(rb'\n(?=\{(\s*"(?:meta|jobs|errors|warnings|last_\w+)")?)')
"""Between answers that were appended to one file. A job may begin a line too, after a comma or a bracket."""

MAX_BLANKS = 64  # blanks between a comma and the job after it

_UNDECIDED = re.compile(rb'\S?\s*\n\{?[\s"\w]{0,40}$')
"""The end of a block that may be such a place, which the next one shows."""


def documents(blocks: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """The answers in a file, each in parts; to be read in their order."""
    return (map(itemgetter(1), parts) for _, parts in groupby(_pieces(blocks), itemgetter(0)))


def _pieces(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Parts of answers, with the number of the answer."""
    number, kept = 0, b""
    for block in blocks:
        text, begin = kept + block, 0
        for found in _DOCUMENTS.finditer(text):
            before = text[max(begin, found.start() - MAX_BLANKS) : found.start()].rstrip()[-1:]
            if found[1] is not None or before not in (b",", b"[", b":"):
                yield number, text[begin : found.end() - 1]
                number, begin = number + 1, found.end()
        undecided = _UNDECIDED.search(text, max(begin, len(text) - 200))
        end = undecided.start() if undecided is not None else len(text)
        kept = text[end:]
        yield number, text[begin:end]
    yield number, kept


class _CountingIterator:
    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self.bytes, self.lines = parts, 0, 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        part = next(self._parts)
        self.bytes, self.lines = self.bytes + len(part), self.lines + part.count(NEWLINE)
        return part


_JOBS = re.compile(rb'"jobs"\s*:\s*\[')


def kind_of(head: bytes) -> Kind | None:
    """Detect the kind of a file from its beginning; None if it is not of Slurm."""
    if head.lstrip().startswith((b"{", b"[")):
        if b'"jobid"' in head and (b'"@submit"' in head or b'"@start"' in head):
            return "records"
        ours = (b'"submit_time"', b'"submission"', b"lurm OpenAPI", b"data_parser")
        return "json" if _JOBS.search(head) and any(word in head for word in ours) else None
    lines = head.decode("utf-8-sig", "replace").lstrip("\r\n").split("\n")
    first = set(re.split(r"[^a-z]+", lines[0].lower()))
    if first & {"jobid", "jobidraw"} and first & {"state", "submit", "start", "end"}:
        return "text"
    skipped: list[SkippedPart] = []
    rows = read_sacct(islice(lines[:-1], 20), skipped.append, separator="|")
    return "text" if next(rows, None) or any(part.field not in (None, "JobID") for part in skipped) else None


class OneFile(Poller):
    """A file written by sacct, squeue or slurmrestd, plain or compressed; read once.

    Args:
        path: the file.
        kind: its format.
        on_skipped: receives each skipped part.
        zone: time zone of sacct's text.
        left_out: counts the job steps.
        cluster: the cluster whose jobs are read; by default the only one in the file.
        old: rows of sacct's text to skip.

    Raises:
        UserError: the file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        kind: Kind,
        on_skipped: OnSkipped,
        zone: tzinfo,
        left_out: IgnoredRecords,
        cluster: str | None = None,
        old: OldRows = NO_ROWS,
    ) -> None:
        super().__init__()
        self.kind, self.left_out = kind, left_out
        self.clusters: dict[str, list[Path]] = {}  # the files of the first rows of each; files of one log share it
        self._cluster = cluster
        self._path, self._on_skipped, self._zone, self._old = path, on_skipped, zone, old

    def results(self, place: SlurmCursor) -> Iterator[PollResult]:
        """Yield the file, unless the place is behind it."""
        if place.polls:
            return
        place.polls = 1
        rows = list(self.rows())
        yield PollResult(rows, max(map(latest, rows), default=0.0), accounting=True)

    def rows(self) -> Iterator[JobRow]:
        """Yield its rows, counted as records.

        Raises:
            UserError: the file cannot be read, or contains several clusters, whose job numbers overlap.
        """
        for row in self._read():
            self.records += 1
            if self._cluster is not None and row.cluster not in (None, self._cluster):
                self.left_out.add(OTHERS, f"job {row.job} of {row.cluster}")
                continue
            if row.cluster is not None:
                self._count(row.cluster)
            yield row
        if self.records <= FEW_ROWS:
            self._check_clusters(1)

    def _count(self, cluster: str) -> None:
        """Count a row of a cluster; a single row of another one may be damaged."""
        files = self.clusters.setdefault(cluster, [])
        if len(files) < SURE_ROWS:
            files.append(self._path)
            self._check_clusters(SURE_ROWS)

    def _check_clusters(self, rows: int) -> None:
        first_files = {name: files[0] for name, files in self.clusters.items() if len(files) >= rows}
        if len(first_files) < 2:
            return
        names = " and ".join(f"{name} ({path})" for name, path in first_files.items())
        raise UserError(
            f"jobs of several clusters, {names}, with overlapping job numbers: each is a site of its own; choose one "
            f"with --set cluster={next(iter(first_files))}"
        )

    def _read(self) -> Iterator[JobRow]:
        if self.kind == "text":
            yield from read_sacct(self._lines(), self._skip_row, str(self._path), self._zone, left_out=self.left_out)
            return
        if self.kind == "records":
            for number, line in enumerate(self._raw_lines(), 1):
                if line:
                    yield from read_record(line, str(self._path), number, self._on_skipped).rows
            return
        place, first = 0, 1
        for document in documents(self._blocks()):
            counted = _CountingIterator(document)
            yield from self._jobs(counted, place, first)
            for _ in counted:
                continue
            place, first = place + counted.bytes + 1, first + counted.lines + 1

    def _lines(self) -> Iterator[str]:
        """Its lines without their ends; old ones are empty, so that the others keep their numbers."""
        lines, old = self._raw_lines(), self._old
        first = next(lines, b"")
        yield first.decode("utf-8-sig", "replace")
        days = RowDays(first)
        for line in lines:
            yield "" if old.before and days.is_old(line, old) else line.decode("utf-8", "replace")

    def days(self, jobs: int) -> DayCounts | None:
        """Count the jobs by submission day if the last `jobs` are needed; None if the file is not text."""
        if self.kind != "text":
            return None
        lines = self._raw_lines(tells=False)
        return RowDays(first := next(lines, b"")).count(chain((first,), lines), jobs)

    def _raw_lines(self, tells: bool = True) -> Iterator[bytes]:
        parts = list[bytes]()
        for block in chain(self._blocks(tells), (NEWLINE,)):
            first, *more = block.split(NEWLINE)
            parts.append(first)
            if more:
                yield b"".join(parts)
                yield from more[:-1]
                parts = more[-1:]

    def _blocks(self, tells: bool = True) -> Iterator[bytes]:
        """Yield the file, decompressed; a damaged compressed file is reported and read as far as possible."""
        try:
            with closing(open_log(self._path)) as file:
                try:
                    yield from iter(lambda: file.read(BLOCK_BYTES), b"")
                except BROKEN:
                    if not is_zipped(file):
                        raise
                    if tells:
                        self._skip(BROKEN_ZIP, "a whole one")
        except BROKEN as error:
            raise file_error(self._path, error) from None

    def _jobs(self, document: Iterator[bytes], place: int, line: int) -> Iterator[JobRow]:
        """Yield the rows of a document that begins at this byte and line; of a truncated one the complete jobs."""
        name, read_parts, in_turn = str(self._path), list[bytes](), False
        for part in document:
            read_parts.append(part)
            if in_turn := sum(map(len, read_parts)) > LARGE_BYTES:
                break
        if not in_turn:
            whole = b"".join(read_parts)
            try:
                if whole.strip():
                    yield from read_jobs(whole, self._on_skipped, name).rows
                return
            except BrokenOffError:
                read_parts = [whole]
            except ValueError as error:
                self._skip(str(error)[:200], "a response of Slurm, as JSON")
                return
        jobs = JobsInTurn(chain(read_parts, document))
        yield from rows_of(jobs, self._on_skipped, name)
        if not jobs.is_whole:
            where = f"line {line + jobs.lines}, byte {place + jobs.end}"
            self._skip(f"it breaks off in {where}, after {jobs.jobs} whole jobs", "a whole answer, as JSON")

    def _skip_row(self, part: SkippedPart) -> None:
        self.records += 1
        self._on_skipped(part)

    def _skip(self, found: str, expected: str) -> None:
        self._on_skipped(SkippedPart(str(self._path), None, None, found, expected))
