"""Grid Engine's files `reporting` and `accounting` (SGE, Son of Grid Engine, Open Cluster Scheduler, UGE).

`accounting` has a line for each run that ended: `QUEUE:HOST:GROUP:OWNER:NAME:JOB:…`, all that is known of it.
`reporting` (with `reporting=true joblog=true` in `qconf -mconf`) tells what happens as it happens, in lines
`TIME:TYPE:…` of type new_job, job_log and acct (a line of `accounting`; each night one of every job that runs on, for
the time since the night before). What a job asks for is in `accounting` alone, as the category of the job, so of a job
that queues or runs it is unknown. Times are Unix seconds; UGE 8 writes milliseconds. Open Cluster Scheduler from 9
writes lines of JSON (`gridengine_json`), with microseconds.

What neither says: holds at submission, the size of an array, that nodes go down, how large the machine is.
"""

import re
from functools import lru_cache
from typing import Any, ClassVar, Literal, Self

from models.records import Alter, AnyEvent, End, Start, Submit
from streams.sources.contract import IDLE_S, OnSkipped, refuse
from streams.sources.logs.fields import MAX_SECONDS, BadRecord, bytes_of, count_of, job_of, name_of, seconds_of, whole
from streams.sources.logs.source import LogSource, Records
from streams.sources.logs.stories import GONE, QUEUED
from streams.sources.schedulers.gridengine_json import record_of

FIRST = re.compile(
    rb"^(?:(\d{9,10}):(?:new_job|job_log|acct|host|queue|host_consumable|queue_consumable|sharelog):"
    rb"|[^:\n]*:[^:\n]*:[^:\n]*:[^:\n]*:[^:\n]*:\d+:[^:\n]*:-?\d+:(\d{9,13}):\d+:\d+:\d+:\d+:"
    rb'|\{"time":(\d{9,17}),"type":"(?:new_job|job_log|acct|host|queue|host_consumable|queue_consumable|sharelog)"'
    rb'|\{"job_number":\d+,"task_number":\d+,[^\n]{0,9999}?"(?:submission|start)_time":(\d{9,17}))',
    re.MULTILINE,
)
"""How a line of either file begins, with its time."""

FIELDS = 43
"""Fields that each version of `accounting` has, up to maxvmem."""

TIMES = (8, "field 9 (submission time)"), (9, "field 10 (start time)"), (10, "field 11 (end time)")

CATEGORY = 39
"""The field of what a job asked for."""

WALLCLOCK = re.compile(r"\d{1,11}(?:\.\d{1,9})?", re.ASCII)

FRACTION = re.compile(r"\d+\.\d+", re.ASCII)

NUMBER_OF_FIELD = re.compile(r"field \d+ \((.*)\)")

NONE = "NONE"
NO_TASK = {NONE, "none", ""}
"""What stands in a record of a job as a whole, where one of its parallel tasks would be named."""

RESCHEDULED = {"24", "25"}
"""Codes in the field `failed` of a run after which the job goes back into the queue."""

BEFORE_START = set(map(str, range(1, 12))) | {"26", "28"}
"""Such codes of a run that never began."""

RUNS_ON = {"-1", "4294967295"}
"""The exit status of a run that goes on, as the master writes it."""

SIGNALLED = 128


class GridEngineRecords(Records):
    """Lines of `reporting` or `accounting` as events. What is asked for of GPUs is for each slot."""

    gpus_of_job = False

    def take(self, line: str) -> list[AnyEvent]:
        """The events of a line; some 8 µs."""
        if not line.strip() or line.startswith("#"):
            return []
        if line.startswith("{"):
            return self._of_json(line)
        parts = line.split(":")
        if len(parts) >= FIELDS and not parts[0].isdecimal():
            return self.accounted(parts)
        kind = parts[1] if len(parts) > 2 else ""
        if kind == "acct" and len(parts) >= FIELDS + 2:
            return self.accounted(parts[2:])
        if kind == "new_job":
            return self.new_job(_at_least(parts, 13))
        if kind == "job_log":
            return self.job_log(_at_least(parts, 18))
        if kind and parts[0].isdecimal():
            return self.leave_out(f"records of type {kind[:40]}")
        raise BadRecord(None, f"{len(parts)} fields", f"a line of reporting, or {FIELDS} fields or more of accounting")

    def _of_json(self, line: str) -> list[AnyEvent]:
        kind, parts = record_of(line)
        if not parts:
            return self.leave_out(f"records of type {kind[:40]}")
        make = {"acct": self.accounted, "new_job": self.new_job, "job_log": self.job_log}[kind]
        try:
            return make(parts)
        except BadRecord as bad:  # here a field has a name alone
            bad.field = NUMBER_OF_FIELD.sub(r"\1", bad.field or "")
            raise

    def new_job(self, parts: list[str]) -> list[AnyEvent]:
        """A job was submitted."""
        job = job_of(parts[3], "field 4 (job)")
        submit = self._submit(job, _time(parts[2], "field 3 (submission time)"), *parts[6:10])
        return self.stories.submit(submit)

    def job_log(self, parts: list[str]) -> list[AnyEvent]:
        """Something happened to a job or a task of it."""
        at = _time(parts[2], "field 3 (event time)")
        event, petask = parts[3], parts[6]
        if petask not in NO_TASK:
            return self.leave_out("tasks of parallel jobs")
        whole(parts[4], "field 5 (job)")
        if event in ("pending", "sent"):
            return self.leave_out(f"job_log: {event}")
        job, array = self._job(parts[4], max(count_of(parts[5]) or 0, 0))
        submission = _time(parts[12], "field 13 (submission time)")

        def asked() -> Submit:
            return self._submit(job, submission, *parts[13:17], array=array)

        if event == "delivered":
            events = self.stories.start(Start(site=self.site, time=at, job=job), asked)
        elif event == "finished":
            end = End(site=self.site, time=at, job=job, state="unknown")
            events = self.stories.gone(end, lambda: None, asked) if self._runs(job) else []
        elif event == "deleted":
            events = self.stories.cancel(job, at)
            self.stories.forget(job)
        elif event in ("restart", "migrated"):
            events = self.stories.requeue(job, at)
        else:
            move = self._MOVES.get(event)
            events = getattr(self.stories, move)(job, at) if move is not None else []
        return events or self.leave_out(f"job_log: {event[:40]} of a job of which it says nothing new")

    def accounted(self, parts: list[str]) -> list[AnyEvent]:
        """A run of a job, or of a task, has ended."""
        parts = _with_category(parts)
        failed, petask = parts[11], parts[41]
        if petask not in NO_TASK:
            return self.leave_out("tasks of parallel jobs")
        if parts[12] in RUNS_ON:
            return self.leave_out("records of runs that go on")
        whole(parts[5], "field 6 (job)")
        submission, started, ended = (_time(parts[place], field, unknown=True) for place, field in TIMES)
        if not ended and failed in RESCHEDULED:
            return self.leave_out("rescheduled runs without times")
        if not ended and not started and failed in BEFORE_START:
            return self.leave_out("runs that never began")
        job, array = self._job(parts[5], count_of(parts[35]) or 0)
        if not submission and self.stories.phase(job) is None:
            raise BadRecord("field 9 (submission time)", parts[8], "Unix seconds")
        if not ended:
            raise BadRecord("field 11 (end time)", parts[10], "Unix seconds")
        if started - 1 > ended - _ran(parts[13]) >= submission:  # that was its last night
            started = ended - _ran(parts[13])
        started = max(started, submission) if started else 0.0
        ended = max(ended, started, submission)
        request = _request(parts[CATEGORY], parts[34], self.gpus_of_job)
        late: list[AnyEvent] = []
        if self.stories.phase(job) not in (None, GONE):
            changes = {"queue": name_of(parts[0]), **request}
            late = self.stories.alter(Alter(site=self.site, time=started or ended, job=job, **changes))

        def asked() -> Submit:
            return self._submit(
                job, submission, parts[4], parts[3], parts[2], parts[31], queue=parts[0], array=array, **request
            )

        def start() -> Start | None:
            return Start(site=self.site, time=started, job=job, cpus=request.get("cpus")) if started else None

        if not started or (failed in BEFORE_START and started == ended):
            return late + (self.stories.submit(asked()) + self.stories.cancel(job, ended))
        if failed in RESCHEDULED:
            begun = self.stories.start(Start(site=self.site, time=started, job=job, cpus=request.get("cpus")), asked)
            return late + begun + self.stories.requeue(job, ended)
        state = _state(failed, parts[12], ended - started, request.get("walltime"))
        return late + self.stories.end(End(site=self.site, time=ended, job=job, state=state), start, asked)

    _MOVES: ClassVar[dict[str, str]] = {
        "suspended": "suspend",
        "unsuspended": "resume",
        "held": "hold",
        "released": "release",
    }

    def _runs(self, job: str) -> bool:
        return self.stories.phase(job) not in (None, QUEUED, GONE)

    def _job(self, job: str, task: int) -> tuple[str, str | None]:
        """The id of a job or of a task, and the array of the latter.

        An array that was submitted as a job of unknown size becomes the first of its tasks that is told of.
        """
        if not task:
            return job_of(job, "field 6 (job)"), None
        story = self.stories.known.get(job)
        if story is not None and story.task in (0, task) and story.phase != GONE:
            story.task = task
            return job, None
        return job_of(f"{job}.{task}", "field 6 (job)"), job

    def _submit(
        self, job: str, at: float, name: str, owner: str, group: str, project: str, queue: str = "", **more: Any
    ) -> Submit:
        return Submit(
            site=self.site,
            time=at,
            job=job,
            user=name_of(owner),
            group=name_of(group),
            account=name_of(project) if project != NONE else None,
            queue=name_of(queue),
            executable=name_of(name),
            **more,
        )


class GpusOfJob(GridEngineRecords):
    """The same, where what is asked for of GPUs is for the whole job (`consumable JOB` in `qconf -sc`)."""

    gpus_of_job = True


class GridEngineSource(LogSource):
    """Grid Engine's `reporting` or `accounting`, in `$SGE_ROOT/$SGE_CELL/common`."""

    name: ClassVar[str] = "gridengine"
    records_of = GridEngineRecords

    @classmethod
    def open(
        cls,
        location: str,
        site: str | None = None,
        on_skipped: OnSkipped = refuse,
        timezone: str | None = None,
        pause_s: float = IDLE_S,
        gpus_per: Literal["slot", "job"] = "slot",
    ) -> Self:
        """As of any log. `gpus_per` says whether `-l gpu=2` is for each slot or for the whole job."""
        made = super().open(location, site, on_skipped, timezone, pause_s)
        if gpus_per == "job":
            made.records_of = GpusOfJob
        return made

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """The time of the first record: when it was written, or when its job was submitted."""
        found = FIRST.search(head)
        if found is None:
            return None
        return _seconds(int(next(filter(None, found.groups()))))


def _time(text: str, field: str, unknown: bool = False) -> float:
    """Unix seconds of a time; 0 where it may be unknown and is."""
    value = _seconds(whole(text, field, most=10**17))
    if not value and not unknown:
        raise BadRecord(field, text, "Unix seconds")
    return value


def _seconds(value: int) -> float:
    """Of a time in seconds, in milliseconds where it is so large, or in microseconds where it is larger still."""
    seconds = float(value)
    while seconds > MAX_SECONDS:
        seconds /= 1000
    return seconds


def _ran(text: str) -> float:
    """Seconds for which a job ran in all; 0 where it is not told."""
    return float(text) if WALLCLOCK.fullmatch(text) else 0.0


def _with_category(parts: list[str]) -> list[str]:
    """The fields of a run, where a colon in the category (`-l h_rt=24:00:00`) has parted it: a fraction follows it."""
    if "." in parts[CATEGORY + 1]:
        return parts
    end = next((place for place in range(CATEGORY + 2, len(parts) - 1) if FRACTION.fullmatch(parts[place])), None)
    if end is None:
        return parts
    return [*parts[:CATEGORY], ":".join(parts[CATEGORY:end]), *parts[end:]]


def _at_least(parts: list[str], fields: int) -> list[str]:
    if len(parts) < fields:
        raise BadRecord(None, f"{len(parts)} fields", f"{fields} or more, as in records of this type")
    return parts


@lru_cache(4096)
def _request(category: str, slots: str, gpus_of_job: bool) -> dict[str, Any]:
    """What a job asked for, from its category: `-l h_rt=600,h_vmem=2G -pe smp 4`.

    Memory is for each slot, and so are GPUs, unless they are of the job.
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
    memory = next((size for name in ("h_vmem", "mem_free", "s_vmem") if (size := bytes_of(named.get(name)))), None)
    gpus = next((many for name in ("gpu", "gpus", "ngpus") if (many := count_of(named.get(name)))), None)
    if walltime is not None:
        found["walltime"] = walltime
    if memory is not None and memory * granted <= 1 << 60:
        found["memory"] = memory * granted
    if gpus is not None and (total := gpus if gpus_of_job else gpus * granted) <= 1_000_000_000:
        found["gpus"] = total
    return found


def _state(failed: str, status: str, ran_s: float, walltime: float | None) -> str:
    """How a run ended: by `failed`, which is 0 where Grid Engine itself had no problem, and its exit status."""
    if failed == "0" and status == "0":
        return "completed"
    if walltime is not None and ran_s >= walltime:
        return "timeout"
    if failed == "100" and (count_of(status) or 0) > SIGNALLED:
        return "cancelled"
    return "failed"
