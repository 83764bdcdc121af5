"""Rows of `sacct --parsable` and `--parsable2`: columns by their names, in any order, between any separators.

What users put into names is not escaped there: a name may have line breaks, separators and bytes that are no UTF-8.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from operator import itemgetter

from streams.sources.contract import IgnoredRecords, OnSkipped, SkippedPart
from streams.sources.logs.fields import by_name
from streams.sources.slurm.attempt_fields import EXPECTED, AttemptFields, RequestFields, request_fields_of, row_of
from streams.sources.slurm.attempt_rows import JobRow, walltime_of
from streams.sources.slurm.local_times import LocalTimes
from streams.sources.slurm.separators import FREE, put_together

COLUMNS = tuple(
    by_name(
        "jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed exitcode"
        " state nnodes ncpus reqcpus reqmem reqtres alloctres timelimit nodelist jobname"
    )
)
"""The columns of a file without a header: the 26 that XDMoD's collectors write."""

MAX_RECORD = 1 << 16  # characters of one record; what is longer is no record
MAX_PLAIN = 500  # rows kept as samples of names, to resolve rows with ambiguous separators
NEEDED = ("State", "Submit", "Start", "End")  # required columns
_HEADER = re.compile(r"^(?:[A-Za-z]+)([^A-Za-z0-9_%./ ]+)[A-Za-z]")
_BLANKS = re.compile(r"\s*JobID(?:Raw)?\s+\w", re.IGNORECASE)


def read_sacct(
    lines: Iterable[str],
    on_skipped: OnSkipped,
    file: str = "sacct",
    zone: tzinfo = UTC,
    separator: str | None = None,
    left_out: IgnoredRecords | None = None,
) -> Iterator[JobRow]:
    """Yield the rows of jobs, in their order; job steps are skipped.

    Args:
        lines: with or without their line ends; the first may be the header.
        on_skipped: receives each skipped line.
        file: name of the input for `on_skipped`.
        zone: time zone; sacct writes local time unless TZ=UTC.
        separator: between columns; by default detected from the header.
        left_out: counts the job steps.
    """
    reader: Callable[[list[str]], JobRow | str | None] | None = None
    layout, head = ColumnLayout(separator), ""
    plain: list[list[str]] = []
    for number, text in records(lines, layout):
        if reader is None:
            header = layout.read_header(text)
            if missing := [name for name in NEEDED if name.lower() not in layout.columns]:
                on_skipped(
                    SkippedPart(file, number, None, f"no column {', '.join(missing)}", f"columns {', '.join(NEEDED)}")
                )
                return
            reader = _reader(layout.columns, zone)
            if header:
                head = text
                continue
            if unlike := _header_fault(text):
                on_skipped(SkippedPart(file, number, None, unlike, f"the output of `{COMMAND}`, including its header"))
                return
        elif text == head:  # of files that were put together
            continue
        width, fields = len(layout.columns), text.split(layout.separator)
        if len(fields) > width:  # separators in what users wrote
            cells = put_together(fields, layout.columns, layout.separator, plain)
            if isinstance(cells, str):
                ambiguous = f"{len(fields)} columns, {cells}"
                on_skipped(SkippedPart(file, number, None, ambiguous, f"{width} columns; use {DELIMITER} of sacct"))
                continue
            fields = cells
        elif len(fields) == width and len(plain) < MAX_PLAIN:
            plain.append(fields)
        if len(fields) != width:
            on_skipped(SkippedPart(file, number, None, f"{len(fields)} columns", f"{width} columns"))
            continue
        found = reader(fields)
        if isinstance(found, str):
            column = _WRONG[found]
            on_skipped(SkippedPart(file, number, column, repr(layout.value(fields, column)[:40]), EXPECTED[found]))
        elif found is not None:
            yield found
        elif left_out is not None:
            left_out.add("job steps", text)


DELIMITER = "--delimiter=$'\\x1f'"
"""A delimiter that no user types, in shell syntax."""

_USUAL = "JobID,User,Partition,Submit,Eligible,Start,End,State,TimelimitRaw,…"
COMMAND = f"TZ=UTC sacct -XDP -a {DELIMITER} -S now-180days -o {_USUAL}"


def _header_fault(text: str) -> str | None:
    """Describe a first line that is not a header; None if it may be a row."""
    if text.lstrip().startswith('"'):
        return "columns in quotes"
    return "columns between blanks" if _BLANKS.match(text) else None


_WRONG = {"job_id": "JobID", "job_state": "State", "submit_time": "Submit", "end_time": "End"}


class ColumnLayout:
    """The columns and their separator: given, or detected from the header, else a bar."""

    def __init__(self, separator: str | None) -> None:
        self.separator = separator or "|"
        self.columns: tuple[str, ...] = ()
        self._given = separator is not None

    @property
    def ends_free(self) -> bool:
        """True if users write the last column, and not the first."""
        return len(self.columns) > 1 and self.columns[-1] in FREE and self.columns[0] not in FREE

    def value(self, fields: list[str], column: str) -> str:
        """Return the value of a column, or of the first column if it is missing."""
        name = column.lower()
        return fields[self.columns.index(name) if name in self.columns else 0]

    def read_header(self, line: str) -> bool:
        """Read the columns from the first line if it is a header; else use `COLUMNS`."""
        separator = self.separator
        if not self._given and (found := _HEADER.match(line)):
            separator = found[1]
        names = tuple(column.partition("%")[0].strip().lower() for column in line.split(separator))
        header = "jobid" in names or "jobidraw" in names
        if header:
            self.separator = separator
        self.columns = names if header else COLUMNS
        return header


def records(lines: Iterable[str], layout: ColumnLayout) -> Iterator[tuple[int, str]]:
    """Yield records with their first line numbers. If users write the last column, lines without a separator continue
    it.
    """
    last: tuple[int, str] | None = None
    for number, text in _records(lines, layout):
        if last is not None and layout.ends_free and layout.separator not in text and len(last[1]) < MAX_RECORD:
            last = (last[0], f"{last[1]}\n{text}")
            continue
        if last is not None:
            yield last
        last = (number, text)
        if not layout.ends_free:
            yield last
            last = None
    if last is not None:
        yield last


def _records(lines: Iterable[str], layout: ColumnLayout) -> Iterator[tuple[int, str]]:
    """Yield records with their first line numbers: a line with too few columns continues in the next one.

    If the next one is a complete record by itself, the short line is broken and is yielded alone.
    """
    first_line, separators = 0, 0
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        needed = len(layout.columns) - 1
        here = text.count(layout.separator)
        if parts and (here >= needed or sum(map(len, parts)) + len(text) > MAX_RECORD):
            yield first_line, "\n".join(parts)
            parts, separators = [], 0
        if not parts and here >= needed and text:
            yield number, text
            continue
        if not parts:
            first_line = number
            if not text:
                continue
        parts.append(text)
        separators += here
        if separators >= needed:
            yield first_line, "\n".join(parts)
            parts, separators = [], 0
    if parts:
        yield first_line, "\n".join(parts)


_COLUMNS = by_name(
    "jobname:name state:job_state submit:submit_time eligible:eligible_time start:start_time end:end_time"
    " restarts:restart_cnt nodelist:nodes priority reason:state_reason sluid originalsluid:original_sluid"
)
_REQUEST_COLUMNS = by_name(
    "cluster user:user_name group:group_name account partition qos nnodes:node_count alloccpus:cpus ncpus:cpus"
    " reqcpus:required_cpus reqmem:requested_memory reqtres:tres_req_str alloctres:tres_alloc_str reqgres:tres_per_node"
    " allocgres:tres_per_job reservation:resv_name constraints:features timelimit:time_limit timelimitraw:walltime"
)
"""The columns by the fields of `AttemptFields`: its own, and those that many attempts share. If two columns give one
field, the later one counts."""


def _reader(columns: Sequence[str], zone: tzinfo) -> Callable[[list[str]], JobRow | str | None]:
    """Return a function that parses a record as a row: the name of the wrong field, or None for a step."""
    place = {name: number for number, name in reversed(list(enumerate(columns)))}
    nothing = len(columns)
    own, common = (
        {ours: place[name] for name, ours in of.items() if name in place} for of in (_COLUMNS, _REQUEST_COLUMNS)
    )
    key = itemgetter(nothing, nothing, *common.values())
    raw, elapsed = place.get("jobidraw", nothing), place.get("elapsed", place.get("elapsedraw", nothing))
    jobid, in_seconds = place.get("jobid", raw), "elapsed" not in place
    times = LocalTimes(zone)

    @lru_cache(65536)
    def request_of(cells: tuple[str, ...]) -> RequestFields:
        attempt = AttemptFields(**dict(zip(common, cells[2:], strict=True)))  # type: ignore[arg-type]
        attempt.walltime, attempt.unlimited = walltime_of(str(attempt.walltime or attempt.time_limit or ""))
        attempt.time_limit = None
        return request_fields_of(attempt)

    def read(fields: list[str]) -> JobRow | str | None:
        fields.append("")  # the place of every column that is not there
        identity = fields[jobid]
        if _STEP.match(identity):
            return None
        named = _identity(identity, fields[raw] or identity)
        if named is None:
            return "job_id"
        attempt = AttemptFields(**{ours: fields[at] for ours, at in own.items()}, **named)  # type: ignore[arg-type]
        attempt.job_state = fields[place["state"]].partition(" ")[0].rstrip("+")
        attempt.elapsed = _elapsed(fields[elapsed], in_seconds)
        row = row_of(attempt, times.of(attempt), request=request_of(key(fields)))
        if isinstance(row, JobRow) and "+" in identity and not _is_number(fields[raw]):
            row.job = identity
        return row

    return read


def _identity(text: str, raw: str) -> dict[str, str] | None:
    """Parse a job id such as `4711`, `4711_3`, `4711_[1-3%2]` or `4711+1`; None if it is invalid.

    Returns:
        The fields of `AttemptFields` that identify the job, and the job's own number.
    """
    if _is_number(text):
        return {"job_id": text}
    job, under, task = text.partition("_")
    if under and _is_number(job):
        kind = "array_task_id" if _is_number(task) else "array_task_string"
        is_one = _is_number(task) or task.startswith("[")
        return {"job_id": job, "array_job_id": job, kind: task} if is_one else None
    leader, plus, offset = text.partition("+")
    if plus and _is_number(leader) and _is_number(offset):
        return {"job_id": raw if _is_number(raw) else leader, "het_job_id": leader}
    return None


_STEP = re.compile(r"[^.\[]+\.")
"""Beginning of a step's id; a list of tasks truncated by Slurm has dots too: `302_[1,3,...]`."""


def _elapsed(text: str, in_seconds: bool) -> float | None:
    if in_seconds:
        return float(text) if _is_number(text) else None
    return 0.0 if text == "00:00:00" else walltime_of(text)[0]


def _is_number(text: str) -> bool:
    return len(text) < 20 and text.isdecimal() and text.isascii()
