"""Workload traces in the Standard Workload Format, as events.

The format has eighteen fields a line (Chapin et al. 1999; the Parallel Workloads Archive describes it); -1 means
missing, lines that begin with `;` are the header. Files may be compressed. Recent traces have further columns with
meanings of their own. They are counted, and read if they state a size in the format of Frontier's,
`frontier:excl:2500x112` (nodes, CPUs of each), because its fifth and eighth columns sometimes count nodes and sometimes
CPUs. In such a line the nineteenth column is the number of GPUs used; the twentieth, a soft walltime, has no
counterpart in events.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Self, cast

import msgspec
from msgspec import Meta

from models.records import AnyEvent, Cancel, Capacity, End, Start, Submit
from streams.errors import InvalidInput, file_error
from streams.sources.contract import Cursor, OnSkipped, SkippedPart, Source, Step, counted, refuse
from streams.sources.logs.fields import MAX_COUNT, by_name
from streams.sources.logs.log_files import BROKEN, fingerprint, fingerprint_of_all, open_text

FIELDS = tuple(
    name.replace("_", " ")
    for name in by_name(
        "job_number submit_time wait_time run_time allocated_processors average_CPU_time used_memory"
        " requested_processors requested_time requested_memory status user group executable queue partition"
        " preceding_job think_time"
    )
)
GPUS = len(FIELDS)  # where a line with a size of Frontier's has the GPUs that its job used
STATES = {0: "failed", 1: "completed", 2: "completed", 3: "completed", 4: "failed", 5: "cancelled"}
KIB = 1024
WIDER = "lines with columns beyond the eighteenth, of which only a size such as 2500x112, and GPUs with it, are read"

Since = Annotated[float, Meta(ge=0.0, le=1e11)]
Number = Annotated[float, Meta(ge=-1e11, le=1e11)]
Size = Annotated[int, Meta(le=MAX_COUNT)]


class SwfJob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a trace: times in seconds from the trace's start, memory in KiB per processor, -1 for unknown."""

    number: int
    submit: Since
    wait: Number
    run: Number
    allocated: Size
    cpu_time: Number
    used_memory: Number
    requested: Size
    walltime: Number
    requested_memory: Number
    status: int
    user: int
    group: int
    executable: int
    queue: int
    partition: int
    preceding: int
    think_time: Number
    nodes: Size = -1
    gpus: Size = 0

    @property
    def started(self) -> bool:
        """False for a job that was cancelled in the queue: status 5 and no run time."""
        return not (self.status == 5 and self.run <= 0)


_HEADER = re.compile(rb"^;\s*UnixStartTime:", re.MULTILINE)
_SIZE = re.compile(r"[^:]+:[^:]+:([1-9]\d{0,5})x([1-9]\d{0,3})", re.ASCII)
_FRACTION = re.compile(r"(?<=\d)\.0+$")
_KINDS = tuple(field.type for field in msgspec.structs.fields(SwfJob))
_WHOLE = "a whole number, -1 for unknown"
_EXPECTED = {int: _WHOLE, Size: _WHOLE, Since: "seconds from the trace's start"}


class Trace(msgspec.Struct):
    """A trace: its header's entries by name, and its jobs in submission order.

    `without_wait` counts jobs that are left out, `wider` the lines with columns beyond the format's.
    """

    path: Path
    header: dict[str, str]
    jobs: list[SwfJob]
    without_wait: int
    wider: int = 0

    @property
    def site(self) -> str:
        """The file's name without its endings."""
        return self.path.name.removesuffix(".gz").removesuffix(".swf")

    def first(self, jobs: int) -> Self:
        """The trace with its first jobs alone."""
        return msgspec.structs.replace(self, jobs=self.jobs[:jobs])

    @property
    def start(self) -> float:
        """Unix time of the trace's second 0; 0 if the header lacks it."""
        return _number(self.header.get("UnixStartTime"))

    @property
    def begin(self) -> float:
        """Unix time of the first submission."""
        return self.start + self.jobs[0].submit

    @property
    def cpus(self) -> int:
        """Number of CPUs of the machine; 0 if the header lacks it."""
        return int(_number(self.header.get("MaxProcs")))

    @property
    def nodes(self) -> int | None:
        """Number of nodes of the machine, if the header has it."""
        return int(_number(self.header.get("MaxNodes"))) or None


def read_swf(path: Path, on_skipped: OnSkipped = refuse) -> Trace:
    """Read a trace. Jobs without a wait are left out and counted.

    Args:
        path: the file; compressed if its first bytes show it.
        on_skipped: receives each invalid line, which is then skipped; without it the first invalid line is an
            error.

    Raises:
        UserError: the file cannot be read, a line is invalid, or the file contains no job.
    """
    return _trace(path, _lines(path), on_skipped)


def _trace(path: Path, lines: Iterable[str], on_skipped: OnSkipped) -> Trace:
    trace = Trace(path, {}, [], 0)
    trace.jobs.extend(_jobs(trace, lines, on_skipped))
    trace.jobs.sort(key=lambda job: job.submit)
    return trace


def _jobs(trace: Trace, lines: Iterable[str], on_skipped: OnSkipped) -> Iterator[SwfJob]:
    """The jobs with a wait, in the order of a trace's lines; its header and counts are filled in."""
    found, wrong = False, ""
    for number, line in enumerate(lines, 1):
        if not _take_header(trace, line) and (fields := line.split()):
            job = _job(fields)
            trace.wider += len(fields) > len(FIELDS)
            if job is None:
                part = _skipped(str(trace.path), number, fields)
                wrong = wrong or f"; {part}"
                on_skipped(part)
            elif job.wait < 0:
                trace.without_wait += 1
            else:
                found = True
                yield job
    if not found:
        raise InvalidInput(
            f"{trace.path}: no job with a wait time; expected a trace in the Standard Workload Format{wrong}"
        )


def _take_header(trace: Trace, line: str) -> bool:
    name, colon, value = line[1:].partition(":")
    is_header = line.startswith(";")
    if is_header and colon:
        trace.header.setdefault(name.strip(), value.strip())
    return is_header


def _job(fields: list[str]) -> SwfJob | None:
    if len(fields) < len(FIELDS):
        return None
    known = fields[: len(FIELDS)]
    size = next(filter(None, map(_SIZE.fullmatch, fields[len(FIELDS) :])), None)
    if size and (cpus := int(size[1]) * int(size[2])) <= MAX_COUNT:
        known[4] = known[7] = str(cpus)
        known.append(size[1])
        if len(fields) > GPUS + 1 and fields[GPUS].isdecimal():
            known.append(fields[GPUS])
    for text in (known, _whole(known)):
        try:
            return msgspec.convert(text, SwfJob, strict=False)
        except msgspec.ValidationError:
            continue
    return None


def _whole(fields: list[str]) -> list[str]:
    """Fields of which whole numbers are written as such, not as 4.0."""
    return [_FRACTION.sub("", text) for text in fields]


def _skipped(file: str, line: int, fields: list[str]) -> SkippedPart:
    if len(fields) < len(FIELDS):
        return SkippedPart(file, line, None, f"{len(fields)} fields", f"{len(FIELDS)} or more: {', '.join(FIELDS)}")
    for position, (text, kind) in enumerate(zip(_whole(fields), _KINDS, strict=False)):
        try:
            msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError:
            name = f"field {position + 1} ({FIELDS[position]})"
            return SkippedPart(file, line, name, repr(text[:40]), _EXPECTED.get(kind, "a number, -1 if missing"))
    raise AssertionError("every field is valid")


class SwfSource(Source):
    """A trace as the events of one site.

    Memory holds the live jobs only, but all jobs of a pipe or of a trace that is not in submission order. A cursor
    counts the events before it.
    """

    name: ClassVar[str] = "swf"

    def __init__(self, location: str, site: str | None = None, on_skipped: OnSkipped = refuse) -> None:
        """Open a trace, which is read on first use; by default the site is named after the file."""
        self._path = path = Path(location)
        super().__init__(location, Trace(path, {}, [], 0).site if site is None else site, on_skipped)

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Detect a trace: one of the first lines has eighteen numbers or more, or the header has its start time."""
        lines = (line for line in head.splitlines() if not line.startswith(b";"))
        jobs = (_job(line.decode(errors="replace").split()) for line in islice(lines, 20))
        return any(jobs) or _HEADER.search(head) is not None

    def read_all(self) -> Iterator[AnyEvent]:
        """The events in time order, as of `events_of`."""
        site, trace = self.sites[0], Trace(self._path, {}, [], 0)
        if not self._path.is_file() or not _is_sorted(_lines(self._path), trace):
            yield from self._sorted(_lines(self._path))
            return
        jobs, count = _jobs(trace, _lines(self._path), self._on_skipped), 1
        first = next(jobs)  # there is one
        yield from _capacity(trace, site, first.submit)

        def passing() -> Iterator[SwfJob]:
            nonlocal count
            yield first
            for count, job in enumerate(jobs, 2):  # noqa: B007
                yield job

        for _, event in _in_order(passing(), trace.start, site):
            yield event
        self._count(trace, count)

    def _sorted(self, lines: Iterable[str]) -> Iterator[AnyEvent]:
        """The events of all lines, which are read at once."""
        trace = _trace(self._path, lines, self._on_skipped)
        self._count(trace, len(trace.jobs))
        return events_of(trace, self.sites[0])

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        """The events, each with its cursor, which holds for the same trace alone, as a file or through a pipe."""
        events: Callable[[], Iterator[AnyEvent]] = self.read_all
        if self._path.is_file():
            known_by = fingerprint_of_all(self._path)
        else:  # it can be read once
            content = _content(self._path)
            known_by, lines = fingerprint(content), TextIOWrapper(BytesIO(content), "utf-8-sig", "replace")
            events = partial(self._sorted, lines)
        return counted(lambda count: islice(events(), count, None), known_by, self._location, cursor)

    def _count(self, trace: Trace, jobs: int) -> None:
        self.records = jobs + trace.without_wait
        self.left_out = +Counter({"jobs without a wait": trace.without_wait, WIDER: trace.wider})


def _is_sorted(lines: Iterable[str], trace: Trace) -> bool:
    """Check if the jobs are in submission order; also collect the header, parts of which may follow jobs."""
    last, ordered = -math.inf, True
    for line in lines:
        if not _take_header(trace, line):
            with suppress(IndexError, ValueError):  # of a broken line
                submit = float(line.split(maxsplit=2)[1])
                last, ordered = submit, ordered and submit >= last
    return ordered


def events_of(trace: Trace, site: str) -> Iterator[AnyEvent]:
    """Yield a trace's events in time order, the machine's size first.

    In the same second, ends and starts come before submissions; a job that starts at its submission starts after it.
    """
    yield from _capacity(trace, site, trace.jobs[0].submit)
    for _, event in _in_order(trace.jobs, trace.start, site):
        yield event


def _capacity(trace: Trace, site: str, submit: float) -> Iterator[Capacity]:
    """Return the machine in the header, at the first submission."""
    if trace.cpus:
        yield Capacity(site=site, time=trace.start + submit, cpus=trace.cpus, nodes=trace.nodes)


_Moment = tuple[float, int, int, int]  # time, rank within the second, the job's place in the trace, step within the job


def _in_order(jobs: Iterable[SwfJob], origin: float, site: str) -> Iterator[tuple[_Moment, AnyEvent]]:
    """Merge submissions, which are sorted, with what follows from them, held in a heap the size of the live jobs."""
    pending: list[tuple[_Moment, AnyEvent]] = []
    for place, job in enumerate(jobs):
        moment = (origin + job.submit, 2, place, 0)
        while pending and pending[0][0] < moment:
            yield heappop(pending)
        yield moment, _submit(job, origin, site)
        for later in _rest(job, place, origin, site):
            heappush(pending, later)
    while pending:
        yield heappop(pending)


def _rest(job: SwfJob, place: int, origin: float, site: str) -> Iterator[tuple[_Moment, AnyEvent]]:
    """Yield the later events of a submitted job: start and end, or cancel.

    Ranks compare the computed times, because rounding may make a short wait zero.
    """
    identity, submitted = str(job.number), origin + job.submit
    dequeued_at = submitted + job.wait
    waited = dequeued_at > submitted
    if not job.started:
        yield (dequeued_at, 0 if waited else 3, place, 1), Cancel(site=site, time=dequeued_at, job=identity)
        return
    rank = 1 if waited else 3
    yield (dequeued_at, rank, place, 1), Start(site=site, time=dequeued_at, job=identity, cpus=_positive(job.allocated))
    ended = dequeued_at + max(job.run, 0.0)
    state = STATES.get(job.status, "unknown")
    yield (ended, 0 if ended > dequeued_at else rank, place, 2), End(site=site, time=ended, job=identity, state=state)


def _submit(job: SwfJob, origin: float, site: str) -> Submit:
    cpus = _positive(job.requested) or _positive(job.allocated) or 1
    memory = int(job.requested_memory * KIB) * cpus if job.requested_memory > 0 else None
    return Submit(
        site=site,
        time=origin + job.submit,
        job=str(job.number),
        user=_named("u", job.user),
        group=_named("g", job.group),
        queue=_named("q", job.queue),
        executable=_named("x", job.executable),
        cpus=cpus,
        nodes=_positive(job.nodes),
        gpus=job.gpus,
        memory=memory,
        walltime=job.walltime if job.walltime > 0 else None,
    )


def _lines(path: Path) -> Iterator[str]:
    """Yield a file's lines, decompressed, with undecodable bytes replaced."""
    try:
        with open_text(path) as file:
            yield from file
    except BROKEN as error:
        raise file_error(path, error) from None


def _content(path: Path) -> bytes:
    """Read all data of a pipe, decompressed."""
    try:
        with open_text(path) as file:
            return bytes(cast(TextIOWrapper, file).buffer.read())
    except BROKEN as error:
        raise file_error(path, error) from None


def _number(text: str | None) -> float:
    """Return the number at the start of a header entry; 0 if it has none, or -1 (missing)."""
    try:
        value = float((text or "").split()[0])
    except (IndexError, ValueError):
        return 0.0
    return value if math.isfinite(value) and value > 0 else 0.0


def _named(letter: str, number: int) -> str | None:
    return f"{letter}{number}" if number >= 0 else None


def _positive(value: int) -> int | None:
    return value if value > 0 else None
