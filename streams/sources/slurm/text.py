"""Rows of `sacct --parsable` and `--parsable2`: columns by their names, in any order, between any separators.

What users put into names is not escaped there: a name may have line breaks, separators and bytes that are no UTF-8.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from streams.sources.contract import OnSkipped, Skipped
from streams.sources.slurm.rows import (
    ENDED,
    MAX_NAME,
    NO_RESOURCES,
    QUEUED,
    REQUEUED,
    JobRow,
    array_of,
    count_of,
    end_of,
    gres_of,
    memory_of,
    name_of,
    never_ran,
    phase_of,
    queues_of,
    resources_of,
    time_of,
    walltime_of,
)

COLUMNS = (
    "jobid",
    "jobidraw",
    "cluster",
    "partition",
    "qos",
    "account",
    "group",
    "gid",
    "user",
    "uid",
    "submit",
    "eligible",
    "start",
    "end",
    "elapsed",
    "exitcode",
    "state",
    "nnodes",
    "ncpus",
    "reqcpus",
    "reqmem",
    "reqtres",
    "alloctres",
    "timelimit",
    "nodelist",
    "jobname",
)
"""The columns of a file without a header: the 26 that XDMoD's collectors write."""

MAX_RECORD = 1 << 16
"""Characters of one record; what is longer is no record."""

NEEDED = ("State", "Submit", "Start", "End")
"""Columns without which nothing can be said of a job."""

_HEADER = re.compile(r"^(?:[A-Za-z]+)([^A-Za-z0-9_%./ ]+)[A-Za-z]")
_BLANKS = re.compile(r"\s*JobID(?:Raw)?\s+\w", re.IGNORECASE)
_NO_TIMES = frozenset({"", "Unknown", "None", "N/A", "0"})


def read_sacct(
    lines: Iterable[str],
    on_skipped: OnSkipped,
    file: str = "sacct",
    zone: tzinfo = UTC,
    separator: str | None = None,
    left_out: dict[str, int] | None = None,
) -> Iterator[JobRow]:
    """The rows of jobs, in their order; those of steps are passed over. 12 µs a row.

    Parameters:
        lines: with or without their ends; the first may be the header.
        file: what `on_skipped` is told.
        zone: that of the times, which sacct writes in local time unless TZ=UTC.
        separator: between columns; without it the header tells.
        left_out: where the steps are counted.
    """
    reader: Callable[[list[str]], JobRow | str | None] | None = None
    layout, head = _Layout(separator), ""
    for number, text in records(lines, layout):
        if reader is None:
            header = layout.read_header(text)
            if missing := [name for name in NEEDED if name.lower() not in layout.columns]:
                on_skipped(
                    Skipped(file, number, None, f"no column {', '.join(missing)}", f"columns {', '.join(NEEDED)}")
                )
                return
            reader = _reader(layout.columns, zone)
            if header:
                head = text
                continue
            if unlike := _unlike(text):
                on_skipped(Skipped(file, number, None, unlike, f"what `{COMMAND}` prints, its header too"))
                return
        elif text == head:  # of files that were put together
            continue
        width, name_at = len(layout.columns), layout.name_at
        fields = text.split(layout.separator)
        if len(fields) > width and name_at is not None:  # separators in a job's name
            end = name_at + len(fields) - width + 1
            fields[name_at:end] = [layout.separator.join(fields[name_at:end])]
        if len(fields) != width:
            on_skipped(Skipped(file, number, None, f"{len(fields)} columns", f"{width} columns"))
            continue
        found = reader(fields)
        if isinstance(found, str):
            on_skipped(Skipped(file, number, found, repr(layout.value(fields, found)[:40]), _EXPECTED[found]))
        elif found is not None:
            yield found
        elif left_out is not None:
            left_out["job steps"] = left_out.get("job steps", 0) + 1


COMMAND = "TZ=UTC sacct -XDP -a -S now-180days -o JobID,User,Partition,Submit,Eligible,Start,End,State,TimelimitRaw,…"


def _unlike(text: str) -> str | None:
    """What a first line that is no header looks like; None where it may be a row."""
    if text.lstrip().startswith('"'):
        return "columns in quotes"
    return "columns between blanks" if _BLANKS.match(text) else None


_EXPECTED = {
    "State": "a state of a job, such as PENDING or COMPLETED",
    "Submit": "a time",
    "JobID": "the number of a job",
    "End": "a time after the submission, for a job that has ended",
}


class _Layout:
    """The columns, and what stands between them: given, or read from the header, else a bar."""

    def __init__(self, separator: str | None) -> None:
        self.separator = separator or "|"
        self.columns: tuple[str, ...] = ()
        self.name_at: int | None = None
        self._given = separator is not None

    def value(self, fields: list[str], column: str) -> str:
        """What stands in a column; the first one's where that is not there."""
        name = column.lower()
        return fields[self.columns.index(name) if name in self.columns else 0]

    def read_header(self, line: str) -> bool:
        """Take the columns from the first line, where it is a header; else they are those of `COLUMNS`."""
        separator = self.separator
        if not self._given and (found := _HEADER.match(line)):
            separator = found[1]
        names = tuple(column.partition("%")[0].strip().lower() for column in line.split(separator))
        header = "jobid" in names or "jobidraw" in names
        if header:
            self.separator = separator
        self.columns = names if header else COLUMNS
        self.name_at = self.columns.index("jobname") if "jobname" in self.columns else None
        return header


def records(lines: Iterable[str], layout: _Layout) -> Iterator[tuple[int, str]]:
    """Records with the numbers of their first lines: a line with too few columns goes on in the next one.

    Unless that is a whole record by itself: then the short one was broken, and comes alone.
    """
    begun, separators = 0, 0
    parts: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.rstrip("\r\n")
        needed = len(layout.columns) - 1
        here = text.count(layout.separator)
        if parts and (here >= needed or sum(map(len, parts)) + len(text) > MAX_RECORD):
            yield begun, "\n".join(parts)
            parts, separators = [], 0
        if not parts:
            begun = number
            if not text:
                continue
        parts.append(text)
        separators += here
        if separators >= needed:
            yield begun, "\n".join(parts)
            parts, separators = [], 0
    if parts:
        yield begun, "\n".join(parts)


def _reader(columns: Sequence[str], zone: tzinfo) -> Callable[[list[str]], "JobRow | str | None"]:
    """What turns the fields of a record into a row: the name of the field that is wrong, or None for a step."""
    place = {name: number for number, name in reversed(list(enumerate(columns)))}
    blank = len(columns)

    def at(name: str) -> int:
        return place.get(name, blank)

    jobid, raw, state, submit, eligible, start, end = map(
        at, ("jobid", "jobidraw", "state", "submit", "eligible", "start", "end")
    )
    jobid = raw if jobid == blank else jobid
    elapsed, nodelist, restarts, reqtres, alloctres = map(
        at, ("elapsed", "nodelist", "restarts", "reqtres", "alloctres")
    )
    reqcpus, ncpus, nnodes, reqmem = at("reqcpus"), at("ncpus"), at("nnodes"), at("reqmem")
    if ncpus == blank:
        ncpus = at("alloccpus")
    limit_raw, limit, partition, cluster = at("timelimitraw"), at("timelimit"), at("partition"), at("cluster")
    user, group, account, qos, name = at("user"), at("group"), at("account"), at("qos"), at("jobname")
    reservation, reason, priority = at("reservation"), at("reason"), at("priority")
    reqgres, allocgres = at("reqgres"), at("allocgres")

    def read(fields: list[str]) -> JobRow | str | None:
        fields.append("")  # the place of every column that is not there
        identity = fields[jobid]
        if "." in identity:
            return None
        parts = _identity(identity, fields[raw] or identity)
        if parts is None:
            return "JobID"
        job, array, size, most, het = parts
        word = fields[state].partition(" ")[0].rstrip("+")
        phase = phase_of((word,))
        if phase is None:
            return "State"
        submitted = _time(fields[submit], zone)
        if submitted is None:
            return "Submit"
        started, ended = _time(fields[start], zone), end_of(phase[0], submitted, _time(fields[end], zone))
        asked = resources_of(fields[reqtres]) if fields[reqtres] else NO_RESOURCES
        got = resources_of(fields[alloctres]) if fields[alloctres] else NO_RESOURCES
        if phase[0] in (ENDED, REQUEUED) and ended is None:
            return "End"
        if phase[0] == QUEUED or (
            started == ended
            and never_ran(phase[1], fields[nodelist], got.cpus)
            and (phase[1] != "failed" or nodelist != blank)
            and not _whole(fields[elapsed])
        ):
            started = None
        if size is not None and started is not None:  # tasks that ran, told in one row
            job, array, size, most = identity[:MAX_NAME], job, None, None
        cpus = asked.cpus or count_of(_whole(fields[reqcpus])) or count_of(_whole(fields[ncpus]))
        nodes = asked.nodes if (asked.nodes or 0) > 1 else count_of(_whole(fields[nnodes])) or asked.nodes
        gpus = _gpus(fields[allocgres], fields[reqgres], nodes or 1)
        walltime, unlimited = walltime_of(fields[limit_raw] or fields[limit])
        queue, partitions = queues_of(fields[partition])
        return JobRow(
            job=job,
            phase=phase[0],
            state=phase[1],
            submit=submitted,
            eligible=_time(fields[eligible], zone),
            start=started,
            end=ended,
            restarts=_whole(fields[restarts]),
            cluster=name_of(fields[cluster]),
            user=name_of(fields[user]),
            group=name_of(fields[group]),
            account=name_of(fields[account]),
            queue=queue,
            partitions=partitions,
            partition=None if started is None or partitions else queue,
            qos=name_of(fields[qos]),
            name=name_of(fields[name]),
            cpus=cpus,
            nodes=nodes,
            gpus=asked.gpus or (0 if asked.cpus else got.gpus) or sum(gpus.values()),
            gpu_types=asked.gpu_types or {kind: count for kind, count in gpus.items() if kind} or None,
            memory=asked.memory or _memory(fields[reqmem], cpus or 1, nodes or 1),
            walltime=walltime,
            unlimited=unlimited,
            licences=asked.licences,
            reservation=name_of(fields[reservation]),
            array=array,
            array_size=size,
            array_limit=most,
            het_group=het,
            priority=float(number) if phase[0] == QUEUED and (number := _whole(fields[priority])) else None,
            reason=name_of(fields[reason]) if phase[0] == QUEUED else None,
            held=phase[0] == QUEUED and fields[reason].startswith("JobHeld"),
            started_cpus=None if started is None else got.cpus or count_of(_whole(fields[ncpus])),
            started_nodes=None if started is None else got.nodes or count_of(_whole(fields[nnodes])),
            started_gpus=None if started is None or not got.cpus else got.gpus,
        )

    return read


def _identity(text: str, raw: str) -> tuple[str, str | None, int | None, int | None, str | None] | None:
    """The job, its array, that one's size and limit where it is queued as one row, and the heterogeneous job's number.

    From `4711`, `4711_3`, `4711_[1-3%2]` or `4711+1`, and the job's own number.
    """
    if _is_number(text):
        return text, None, None, None, None
    job, under, task = text.partition("_")
    if under and _is_number(job):
        if _is_number(task):
            return f"{job}_{task}", job, None, None, None
        size, limit = array_of(task)
        return (job, None, size or 1, limit, None) if task.startswith("[") else None
    leader, plus, offset = text.partition("+")
    if plus and _is_number(leader) and _is_number(offset):
        return (raw if _is_number(raw) else text), None, None, None, leader
    return None


def _is_number(text: str) -> bool:
    return len(text) < 20 and text.isdecimal() and text.isascii()


_EPOCH = datetime(1970, 1, 1)


@lru_cache(65536)
def _time(text: str, zone: tzinfo) -> float | None:
    """Unix seconds of `2026-11-22T12:00:00` there, or of Unix seconds; None for Slurm's words for no time."""
    if text in _NO_TIMES:
        return None
    try:
        if text.isdecimal():
            return time_of(float(text))
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return time_of(found.timestamp())
        if zone is UTC:
            return time_of((found - _EPOCH).total_seconds())
        return time_of(found.replace(tzinfo=zone).timestamp())
    except (ValueError, OverflowError, OSError):
        return None


def _gpus(allocated: str, asked: str, nodes: int) -> dict[str, int]:
    """GPUs of the whole job by type, from columns of releases before 21.08: what it got, or asked of each node."""
    if "gpu" in allocated:
        return gres_of(allocated)
    return {kind: count * nodes for kind, count in gres_of(asked).items()} if "gpu" in asked else {}


def _whole(text: str) -> int | None:
    """A whole number, or the seconds of `HH:MM:SS`; None where it is neither, or too long for one."""
    if not text or len(text) > 18:
        return None
    try:
        return int(text)
    except ValueError:
        seconds = walltime_of(text)[0] if ":" in text else None
        return None if seconds is None else int(seconds)


def _memory(text: str, cpus: int, nodes: int) -> int | None:
    """Bytes of the whole job from `3000Mc` (each processor), `31000Mn` (each node) or `4G` (all of it)."""
    if not text:
        return None
    times = {"c": cpus, "n": nodes}.get(text[-1])
    size = memory_of(text if times is None else text[:-1])
    if size is None or size > 1 << 50:  # more than a PiB a processor is the mark of a broken release
        return None
    return min(size * (times or 1), 1 << 60)
