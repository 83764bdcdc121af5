"""Grid Engine's files `reporting` and `accounting` (SGE, Son of Grid Engine, Open Cluster Scheduler, UGE).

`accounting` has a line for each finished run, with all its data: `QUEUE:HOST:GROUP:OWNER:NAME:JOB:…`. `reporting` (with
`reporting=true joblog=true` in `qconf -mconf`) has a line for each change, `TIME:TYPE:…`, of type new_job, job_log and
acct. An acct line is one of `accounting`; each night there is one for every running job, for the time since the night
before. A job's request is in `accounting` alone, as the category of the job, so it is missing for pending and running
jobs. Times are Unix seconds; UGE 8 writes milliseconds. Open Cluster Scheduler from 9 writes lines of JSON, with the
fields by name and microseconds: `reporting.jsonl` and `accounting.jsonl`.

Neither file contains holds at submission, array sizes, node failures or the size of the machine.
"""

import re
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

from models.records import AnyEvent, Start, Submit
from streams.sources.contract import IDLE_S, OnSkipped, refuse
from streams.sources.logs.fields import (
    MAX_SECONDS,
    BadRecord,
    by_name,
    bytes_of,
    count_of,
    in_turn,
    job_of,
    name_of,
    natural_number,
    object_of,
    seconds_of,
)
from streams.sources.logs.lifecycles import GONE, QUEUED
from streams.sources.logs.log_source import LogSource, Records

FIRST = re.compile(
    rb"^(?:(\d{9,10}):(?:new_job|job_log|acct|host|queue|host_consumable|queue_consumable|sharelog):"
    rb"|(?:[^:\n]*:){4}[^\n]{0,512}?:\d+:[^:\n]*:-?\d+:(\d{9,13}):\d+:\d+:\d+:\d+:"
    rb'|\{"time":(\d{9,17}),"type":"(?:new_job|job_log|acct|host|queue|host_consumable|queue_consumable|sharelog)"'
    rb'|\{"job_number":\d+,"task_number":\d+,[^\n]{0,9999}?"(?:submission|start)_time":(\d{9,17}))',
    re.MULTILINE,
)
"""Beginning of a line of either file, with its time."""

FIELDS = 43  # fields that each version of `accounting` has, up to maxvmem
CATEGORY = 39  # column of a job's request
LEAST = {"new_job": 13, "job_log": 18}  # how many fields such a line of `reporting` has at least
USUAL = {"new_job": 13, "job_log": 20}  # how many it has where no name has a colon
WALLCLOCK = re.compile(r"\d{1,11}(?:\.\d{1,9})?", re.ASCII)

FRACTION = re.compile(r"\d+\.\d+", re.ASCII)

NONE = "NONE"
NO_TASK = {NONE, "none", ""}
"""Values of the parallel task in a record of the whole job."""

RESCHEDULED = {"24", "25"}  # codes in the field `failed` of a run after which the job goes back into the queue
BEFORE_START = set(map(str, range(1, 12))) | {"26", "28"}  # such codes of a run that never began
RUNS_ON = {"-1", "4294967295"}  # exit status of a continuing run, as the master writes it
SIGNALLED = 128
MEMORY = ("h_vmem", "m_mem_free", "mem_free", "s_vmem", "virtual_free")  # resources of memory, for each slot
NO_LIMIT = "INFINITY"  # a limit that is none

PLACES = {
    kind: {name: int(place) for name, place in by_name(text).items()}
    for kind, text in (
        (
            "acct",
            "qname:0 group:2 owner:3 job_name:4 job_number:5 submission_time:8 start_time:9 end_time:10 failed:11"
            " exit_status:12 ru_wallclock:13 project:31 slots:34 task_number:35 category:39 pe_taskid:41",
        ),
        ("new_job", "submission_time:2 job_number:3 job_name:6 owner:7 group:8 project:9"),
        (
            "job_log",
            "event_time:2 event:3 job_number:4 task_number:5 pe_taskid:6 submission_time:12 job_name:13 owner:14"
            " group:15 project:16",
        ),
    )
}
"""Column of each field in a line of text, from 0."""

UNSET = {"project": "NONE", "pe_taskid": "NONE"}


class Record(NamedTuple):
    """A record: its type, and its fields by name; no fields if records of this type are not read."""

    kind: str
    of: dict[str, str]
    is_json: bool = False

    @classmethod
    def of_text(cls, kind: str, parts: list[str]) -> "Record":
        """The record of a line of text."""
        return cls(kind, {name: parts[place] for name, place in PLACES[kind].items()})

    def field_location(self, name: str) -> str:
        """Describe a field for error messages: its name and, in a text record, its number."""
        label = name.removesuffix("_number").replace("_", " ")
        return label if self.is_json else f"field {PLACES[self.kind][name] + 1} ({label})"


def record_of_json(line: str) -> Record:
    """Parse a JSON line as a record; values that are not set are omitted.

    Raises:
        BadRecord: it is not such an object.
    """
    found = object_of(line)
    kind = found.get("type", "acct" if "job_number" in found else None)
    if not isinstance(kind, str):
        raise BadRecord(None, repr(line[:40]), "an object with a type, or a job_number")
    return Record(
        kind, {name: str(found.get(name, UNSET.get(name, ""))) for name in PLACES.get(kind, ())}, is_json=True
    )


class GridEngineRecords(Records):
    """Convert lines of `reporting` or `accounting` to events. Requested GPUs are per slot."""

    gpus_of_job = False

    def take(self, line: str) -> list[AnyEvent]:
        """Return the events of a line."""
        if not line.strip() or line.startswith("#"):
            return []
        record = record_of_json(line) if line.startswith("{") else self._of_text(line.split(":"))
        if not record.of:
            return self.leave_out(f"records of type {record.kind[:40]}")
        return {"acct": self.accounted, "new_job": self.new_job, "job_log": self.job_log}[record.kind](record)

    def _of_text(self, parts: list[str]) -> Record:
        if len(parts) >= FIELDS and not parts[0].isdecimal():
            return _run_of(_with_name(parts))
        kind = parts[1] if len(parts) > 2 else ""
        if kind == "acct" and len(parts) >= FIELDS + 2:
            return _run_of(_with_name(parts[2:]))
        if kind in LEAST:
            if len(parts) < LEAST[kind]:
                expected = f"{LEAST[kind]} or more, as in records of this type"
                raise BadRecord(None, f"{len(parts)} fields", expected)
            place = PLACES[kind]["job_name"]
            spare = len(parts) - USUAL[kind]
            if spare > 0:  # colons in the job's name
                parts[place : place + spare + 1] = [":".join(parts[place : place + spare + 1])]
            return Record.of_text(kind, parts)
        if kind and parts[0].isdecimal():
            return Record(kind, {})
        raise BadRecord(None, f"{len(parts)} fields", f"a line of reporting, or {FIELDS} fields or more of accounting")

    def new_job(self, record: Record) -> list[AnyEvent]:
        """Convert the submission of a job."""
        job = job_of(record.of["job_number"], record.field_location("job_number"))
        return self.lifecycles.submit(self._submit(job, _time(record, "submission_time"), record.of))

    def job_log(self, record: Record) -> list[AnyEvent]:
        """Convert a change of a job or of a task."""
        at, event = _time(record, "event_time"), record.of["event"]
        if record.of["pe_taskid"] not in NO_TASK:
            return self.leave_out("tasks of parallel jobs")
        natural_number(record.of["job_number"], record.field_location("job_number"))
        if event in ("pending", "sent"):
            return self.leave_out(f"job_log: {event}")
        job, array = self._job(record)
        submission = _time(record, "submission_time")

        def make_submit() -> Submit:
            return self._submit(job, submission, record.of, array=array)

        if event == "delivered":
            events = self.lifecycles.start(Start(site=self.site, time=at, job=job), make_submit)
        elif event == "finished":
            runs = self.lifecycles.phase(job) not in (None, QUEUED, GONE)
            events = self.lifecycles.end_before_duplicate(job, at, "unknown", make_submit) if runs else []
        elif event == "deleted":
            events = self.lifecycles.cancel(job, at)
            self.lifecycles.forget(job)
        elif event in ("restart", "migrated"):
            events = self.lifecycles.requeue(job, at)
        else:
            move = self._MOVES.get(event)
            events = getattr(self.lifecycles, move)(job, at) if move is not None else []
        return events or self.leave_out(f"job_log: {event[:40]} without new information")

    def accounted(self, record: Record) -> list[AnyEvent]:
        """Convert the accounting record of a finished run."""
        run, failed = record.of, record.of["failed"]
        if run["pe_taskid"] not in NO_TASK:
            return self.leave_out("tasks of parallel jobs")
        if run["exit_status"] in RUNS_ON:
            return self.leave_out("records of runs that continue")
        natural_number(run["job_number"], record.field_location("job_number"))
        submission, started, ended = (
            _time(record, name, unknown=True) for name in ("submission_time", "start_time", "end_time")
        )
        if not ended and failed in RESCHEDULED:
            return self.leave_out("rescheduled runs without times")
        if not ended and not started and failed in BEFORE_START:
            return self.leave_out("runs that never started")
        job, array = self._job(record)
        if not submission and self.lifecycles.phase(job) is None:
            raise BadRecord(record.field_location("submission_time"), run["submission_time"], "Unix seconds")
        if not ended:
            raise BadRecord(record.field_location("end_time"), run["end_time"], "Unix seconds")
        ran_s = float(run["ru_wallclock"]) if WALLCLOCK.fullmatch(run["ru_wallclock"]) else 0.0  # in all
        if started - 1 > ended - ran_s >= submission:  # that was its last night
            started = ended - ran_s
        started = in_turn(started, submission) if started else 0.0
        ended = in_turn(ended, started or submission)
        request = _request(run["category"], run["slots"], self.gpus_of_job)
        late: list[AnyEvent] = []
        if self.lifecycles.phase(job) not in (None, GONE):
            late = self.lifecycles.alter(job, started or ended, queue=name_of(run["qname"]), **request)

        def make_submit() -> Submit:
            return self._submit(job, submission, run, array=array, **request)

        if not started or (failed in BEFORE_START and started == ended):
            return late + self.lifecycles.submit(make_submit()) + self.lifecycles.cancel(job, ended)
        start = Start(site=self.site, time=started, job=job, cpus=request.get("cpus"))
        state = _state(failed, run["exit_status"], ended - started, request.get("walltime"))
        return late + self.lifecycles.ran(job, start, ended, None if failed in RESCHEDULED else state, make_submit)

    _MOVES: ClassVar[dict[str, str]] = {
        "suspended": "suspend",
        "unsuspended": "resume",
        "held": "hold",
        "released": "release",
    }

    def _job(self, record: Record) -> tuple[str, str | None]:
        """Return the id of a job or of a task, and the array of a task.

        An array that was submitted as a job of unspecified size takes the place of the first of its tasks in the log.
        """
        job, task = record.of["job_number"], count_of(record.of["task_number"]) or 0
        lifecycle = self.lifecycles.known.get(job)
        if not task or (task == 1 and record.is_json and lifecycle is None):  # there a job that is no array has task 1
            return job_of(job, record.field_location("job_number")), None
        if lifecycle is not None and lifecycle.task in (0, task) and lifecycle.phase != GONE:
            lifecycle.task = task
            return job, None
        return job_of(f"{job}.{task}", record.field_location("job_number")), job

    def _submit(self, job: str, at: float, columns: dict[str, str], **more: Any) -> Submit:
        return Submit(
            site=self.site,
            time=at,
            job=job,
            user=name_of(columns["owner"]),
            group=name_of(columns["group"]),
            account=name_of(columns["project"]) if columns["project"] != NONE else None,
            queue=name_of(columns.get("qname")),
            executable=name_of(columns["job_name"]),
            **more,
        )


class GpusOfJob(GridEngineRecords):
    """Convert lines as `GridEngineRecords`, but requested GPUs are per job (`consumable JOB` in `qconf -sc`)."""

    gpus_of_job = True


class GridEngineSource(LogSource):
    """Grid Engine's `reporting` or `accounting`, in `$SGE_ROOT/$SGE_CELL/common`."""

    name: ClassVar[str] = "gridengine"
    records_of = GridEngineRecords

    def __init__(
        self,
        location: str,
        site: str | None = None,
        on_skipped: OnSkipped = refuse,
        timezone: str | None = None,
        pause_s: float = IDLE_S,
        gpus_per: Literal["slot", "job"] = "slot",
    ) -> None:
        """Open the log as `LogSource`; `gpus_per` is the unit of `-l gpu=2`: per slot or per job."""
        super().__init__(location, site, on_skipped, timezone, pause_s)
        if gpus_per == "job":
            self.records_of = GpusOfJob

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """The time of the first record: when it was written, or when its job was submitted."""
        found = FIRST.search(head)
        if found is None:
            return None
        return _seconds(int(next(filter(None, found.groups()))))


def _time(record: Record, name: str, unknown: bool = False) -> float:
    value = _seconds(natural_number(record.of[name], record.field_location(name), most=10**17))
    if not value and not unknown:
        raise BadRecord(record.field_location(name), record.of[name], "Unix seconds")
    return value


def _seconds(value: int) -> float:
    """Convert a time in seconds, milliseconds or microseconds, which its magnitude shows, to seconds."""
    seconds = float(value)
    while seconds > MAX_SECONDS:
        seconds /= 1000
    return seconds


def _run_of(parts: list[str]) -> Record:
    """The record of a run."""
    if len(parts) < FIELDS:
        raise BadRecord(None, f"{len(parts)} fields", f"{FIELDS} fields or more of accounting")
    return Record.of_text("acct", _with_category(parts))


def _with_name(parts: list[str]) -> list[str]:
    """Rejoin the fields of a run that colons in the job's name have split: three times follow the job's number."""
    if _is_head(parts, 4):
        return parts
    limit = min(len(parts) - 10, 4 + 200)
    begin = next((place for place in range(5, limit) if _is_head(parts, place)), None)
    if begin is None:
        return parts
    return [*parts[:4], ":".join(parts[4 : begin + 1]), *parts[begin + 1 :]]


def _is_head(parts: list[str], name: int) -> bool:
    """Check if the next field is the job's number: its account, its priority, three times, and two codes follow it."""
    number, priority, *times = (parts[name + 1], parts[name + 3], *parts[name + 4 : name + 7])
    codes = parts[name + 7 : name + 9]
    is_time = all(time == "0" or (time.isdecimal() and len(time) >= 9) for time in times)
    is_number = number.isdecimal() and not number.startswith("0")
    return is_number and is_time and all(word.lstrip("-").isdecimal() for word in (priority, *codes))


def _with_category(parts: list[str]) -> list[str]:
    """Rejoin the fields of a run that a colon in the category (`-l h_rt=24:00:00`) has split: a fraction follows it."""
    if "." in parts[CATEGORY + 1]:
        return parts
    end = next((place for place in range(CATEGORY + 2, len(parts) - 1) if FRACTION.fullmatch(parts[place])), None)
    if end is None:
        return parts
    return [*parts[:CATEGORY], ":".join(parts[CATEGORY:end]), *parts[end:]]


@lru_cache(4096)
def _request(category: str, slots: str, gpus_of_job: bool) -> dict[str, Any]:
    """Parse the request of a job from its category: `-l h_rt=600,h_vmem=2G -pe smp 4`.

    Memory is per slot, and so are GPUs unless `gpus_of_job` is set.
    """
    granted = count_of(slots) or 1
    named = dict(
        part.split("=", 1)
        for words in re.findall(r"(?:^|\s)-l\s+(\S+)", category)
        for part in words.split(",")
        if "=" in part
    )
    found: dict[str, Any] = {"cpus": granted}
    walltime = seconds_of(named.get("h_rt") or named.get("s_rt"))
    memory = next((size for name in MEMORY if (size := bytes_of(named.get(name)))), None)
    gpus = next((many for name in ("gpu", "gpus", "ngpus") if (many := count_of(named.get(name)))), None)
    if walltime is not None:
        found["walltime"] = walltime
    elif named.get("h_rt", "").upper() == NO_LIMIT:
        found["unlimited"] = True
    if memory is not None and memory * granted <= 1 << 60:
        found["memory"] = memory * granted
    if gpus is not None and (total := gpus if gpus_of_job else gpus * granted) <= 1_000_000_000:
        found["gpus"] = total
    return found


def _state(failed: str, status: str, ran_s: float, walltime: float | None) -> str:
    """Return the final state of a run, from `failed` (0 without a problem of Grid Engine) and its exit status."""
    if failed == "0" and status == "0":
        return "completed"
    if walltime is not None and ran_s >= walltime:
        return "timeout"
    if failed == "100" and (count_of(status) or 0) > SIGNALLED:
        return "cancelled"
    return "failed"
