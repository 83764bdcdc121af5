"""Accounting logs of PBS: OpenPBS and PBS Professional, and Torque.

A line is `MM/DD/YYYY HH:MM:SS;TYPE;JOB;KEY=VALUE …`. The time at its head is local time, those in it are Unix seconds.
Records of type Q, S and E repeat the job's request and its submission time (OpenPBS from version 20). Before that, and
in Torque, Q has only the queue, so the request of a job is missing until it starts; an `alter` then adds it.

The logs do not contain holds and releases, node failures, or the size of the machine.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from models.records import AnyEvent, Start, Submit
from streams.sources.contract import IgnoredRecords
from streams.sources.logs.fields import (
    BadRecord,
    by_name,
    count_of,
    in_turn,
    iso_time,
    job_of,
    name_of,
    seconds_of,
    unix_time,
)
from streams.sources.logs.lifecycles import BARE, QUEUED, RUNNING
from streams.sources.logs.log_source import LinesRead, LogSource, Records
from streams.sources.schedulers.pbs_request import (
    LIST,
    NO_PROJECT,
    Fields,
    allocation,
    array_of,
    array_size,
    fields_of,
    request,
)

HEADER = re.compile(rb"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;[A-Za-z];[^;\n]*;", re.MULTILINE)
COBALT = re.compile(
    rb"^\d\d/\d\d/\d{4} \d\d:\d\d:\d\d;(?:(?:TS|TE|QA|HA|HR|YA);|[A-Za-z];[^;\n]*;(?:[^\n]* )?resource=)", re.MULTILINE
)
"""A record of Cobalt: its types have two letters, and it names its resource. It counts nodes, not CPUs."""

SECONDS_PER_ZONE_STEP = 900  # time zones differ by quarters of an hour
ARRAY = re.compile(r"\d+\[\]", re.ASCII)  # the id of an array as a whole begins so
MAX_OFFSET_S = 15 * 3600
SECONDS_TO_WRITE = 60  # maximum delay of a record that may show the time zone, seconds
TIMEOUTS = {"-11", "-29"}  # exit statuses of jobs that ran into their walltime (Torque, PBS)
SIGNALLED = 256  # exit statuses from here on: the job was ended by the signal of that number, less this


class PbsRecords(Records):
    """Accounting records as events."""

    def __init__(self, site: str, memory: LinesRead, zone: ZoneInfo | None, left_out: IgnoredRecords) -> None:
        super().__init__(site, memory, zone, left_out)
        self._bare: dict[str, Submit] = {}  # in a bulk read: submissions that have only the queue

    def take(self, line: str) -> list[AnyEvent]:
        """Return the events of a record."""
        parts = line.split(";", 3)
        if len(parts) != 4:
            if not line.strip():
                return []
            raise BadRecord(None, f"{len(parts)} fields", "4: time;type;job;attributes")
        written, kind, job, rest = parts
        at = self._seconds(written)
        make = _KINDS.get(kind)
        if make is None:
            if len(kind) == 1 and kind.isalpha():
                return self.leave_out(f"records of type {kind}")
            raise BadRecord("field 2 (type)", kind, "a letter")
        return make(self, job_of(job, "field 3 (job)"), at, fields_of(rest))

    def queued(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """Q: a job was queued, or moved to another queue."""
        queue = name_of(fields["queue"])
        if self.lifecycles.phase(job) is not None:
            return self.lifecycles.alter(job, at, queue=queue) if queue else []
        if "user" in fields:
            submit = self._submit(job, fields)
            self._learn_offset(at, submit.time)
            return self.lifecycles.submit(submit)
        if ARRAY.match(job):
            return self.leave_out("arrays whose size is missing")
        submit = Submit(site=self.site, time=at, job=job, queue=queue)
        if self.is_whole:  # the request comes with the start
            self._bare[job] = submit
            return []
        return self.lifecycles.submit(submit, BARE)

    def rest(self) -> list[AnyEvent]:
        """The submissions of jobs that have neither started nor left."""
        return [event for submit in self._bare.values() for event in self.lifecycles.submit(submit, BARE)]

    def started(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """S: a job was started."""
        if ARRAY.match(job):
            return self.leave_out("starts of arrays as a whole")
        start = unix_time(fields["start"], "start")
        self._learn_offset(at, start)
        self._bare.pop(job, None)
        event = self._start(job, start, fields)
        return self._late_submit(job, start, fields) + self.lifecycles.start(event, lambda: self._submit(job, fields))

    def restarted(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """T: a job was started again from a checkpoint, so it did not run any more."""
        fields.setdefault("start", f"{max(at, 1.0):.0f}")
        return self.lifecycles.requeue(job, at) + self.started(job, at, fields)

    def ended(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """E: a job ended."""
        end = unix_time(fields["end"], "end")
        self._learn_offset(at, end)
        if ARRAY.match(job):
            return self._job_dequeued(job, end) or self.leave_out("ends of arrays as a whole")
        start = unix_time(fields["start"], "start")
        self._bare.pop(job, None)
        late = self._late_submit(job, start, fields) if self.lifecycles.phase(job) == BARE else []
        state = _state(fields, end - start)
        event = self._start(job, start, fields)
        return late + self.lifecycles.ran(job, event, in_turn(end, start), state, lambda: self._submit(job, fields))

    def deleted(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """D, M: a user deleted a job, or it was moved to another server; one that runs ends with a record E."""
        return self._job_dequeued(job, at) or self.leave_out(
            "deletions of running jobs or of jobs without a submission"
        )

    def aborted(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """A: the server gave a job up."""
        events = self._job_dequeued(job, at) or self.lifecycles.abort(job, at, "failed")
        return events or self.leave_out("aborts of jobs without a submission")

    def rerun(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """R: a running job was put back into the queue."""
        events: list[AnyEvent] = []
        if self.lifecycles.phase(job) is None and "start" in fields:
            events = self.started(job, at, fields)
        events += self.lifecycles.requeue(job, at)
        return events or self.leave_out("reruns of jobs without a start")

    def altered(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """a: attributes of a job were changed."""
        changes = self._changes(fields) | ({"queue": name_of(fields["queue"])} if fields["queue"] else {})
        if not changes:
            return self.leave_out("changes without a counterpart in events")
        if f"{LIST}select" in fields or f"{LIST}nodes" in fields:
            changes.setdefault("node_features", [])  # the new request has no node features
        events = self.lifecycles.alter(job, at, **changes)
        return events or self.leave_out("changes of jobs without a submission")

    def resized(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """c, s: what a running job has changed, since it gave nodes back or some of them failed."""
        given = allocation(fields)
        if self.lifecycles.phase(job) != RUNNING or "cpus" not in given:
            return self.leave_out("changed allocations of jobs without a start")
        given.pop("gpus", None)
        return self.lifecycles.alter(job, at, **given)

    def suspended(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """z: a running job was suspended."""
        return self.lifecycles.suspend(job, at) or self.leave_out("suspensions of jobs without a start")

    def resumed(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """r: a suspended job runs on."""
        return self.lifecycles.resume(job, at) or self.leave_out("resumptions of jobs without a suspension")

    def _job_dequeued(self, job: str, at: float) -> list[AnyEvent]:
        bare = self._bare.pop(job, None)
        events = self.lifecycles.submit(bare, BARE) if bare is not None else []
        return events + self.lifecycles.cancel(job, at)

    def _late_submit(self, job: str, start: float, fields: Fields) -> list[AnyEvent]:
        """Report the fields in a job's start record that were missing while it was pending."""
        phase = self.lifecycles.phase(job)
        if phase not in (QUEUED, BARE):
            return []
        changes: dict[str, Any] = {}
        if phase == BARE:
            changes = self._changes(fields) | {"queue": name_of(fields["queue"])}
        eligible = _eligible(fields["etime"])
        came = max(unix_time(fields[name] or "1", name) for name in ("ctime", "qtime"))
        if came < eligible <= start:
            changes["eligible"] = eligible
        return self.lifecycles.alter(job, start, **changes)

    def _changes(self, fields: Fields) -> dict[str, Any]:
        changes = {name: value for name, value in request(fields).items() if name != "exclusive"}
        account = _account(fields)
        return changes | {"account": account} if account else changes

    def _submit(self, job: str, fields: Fields) -> Submit:
        came = unix_time(fields["ctime"] or fields["qtime"], "ctime")
        eligible = _eligible(fields["etime"])
        size, limit = array_size(fields["array_indices"]) if ARRAY.match(job) else (None, None)
        return Submit(
            site=self.site,
            time=came,
            job=job,
            user=name_of(fields["user"]),
            group=name_of(fields["group"]),
            account=_account(fields),
            queue=name_of(fields["queue"]),
            executable=name_of(fields["jobname"]),
            eligible=eligible if eligible > came else None,
            array=array_of(job),
            array_size=size,
            array_limit=limit,
            **request(fields),
        )

    def _start(self, job: str, start: float, fields: Fields) -> Start:
        return Start(site=self.site, time=start, job=job, array=array_of(job), **allocation(fields))

    def _seconds(self, written: str) -> float:
        """Unix seconds of the time at the head of a record."""
        seconds = _time(written, self.zone)
        if seconds is None:
            raise BadRecord("field 1 (time)", written, "MM/DD/YYYY HH:MM:SS")
        return seconds if self.zone is not None else seconds - self.memory.offset

    def _learn_offset(self, at: float, local_time: float) -> None:
        """Determine the site's time zone from a record with both local and Unix times."""
        if self.zone is None and not 0 <= at - local_time <= SECONDS_TO_WRITE:
            self.memory.offset = _offset(at + self.memory.offset - local_time, self.memory.offset)


class PbsSource(LogSource):
    """Accounting logs of PBS or Torque: `server_priv/accounting`, a file a day."""

    name: ClassVar[str] = "pbs"
    records_of = PbsRecords

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """The time of the first record, as if the site's time were UTC."""
        if COBALT.search(head):
            return None
        times = (_time(found[0][:19].decode(), None) for found in HEADER.finditer(head))
        return next((time for time in times if time is not None), None)

    @classmethod
    def offset_of(cls, head: bytes) -> int:
        """Return the site's time minus UTC (seconds), from the first record with both local and Unix times."""
        memory = LinesRead(known={})
        records = PbsRecords("site", memory, None, IgnoredRecords())
        for line in head.decode("utf-8", "replace").split("\n")[:-1]:
            with suppress(BadRecord):
                records.take(line)
            if memory.offset:
                break
        return memory.offset


_KINDS: dict[str, Callable[[PbsRecords, str, float, Fields], list[AnyEvent]]] = {
    letter: getattr(PbsRecords, name)
    for letter, name in by_name(
        "Q:queued S:started T:restarted E:ended D:deleted M:deleted A:aborted R:rerun a:altered c:resized s:resized"
        " z:suspended r:resumed"
    ).items()
}


def _time(written: str, zone: ZoneInfo | None) -> float | None:
    """Unix seconds of `MM/DD/YYYY HH:MM:SS`, without a time zone as if it were UTC; None where it is none."""
    month, day, year = written[:2], written[3:5], written[6:10]
    is_whole = len(written) == 19 and written[2::3][:2] == "//" and written[10::3] == " ::"
    return iso_time(f"{year}-{month}-{day}T{written[11:]}", zone or UTC) if is_whole else None


def _offset(seconds: float, before: int) -> int:
    """The time zone's offset where this is one, and a record's delay; else as before."""
    rounded = int(seconds // SECONDS_PER_ZONE_STEP) * SECONDS_PER_ZONE_STEP
    is_one = seconds - rounded <= SECONDS_TO_WRITE and abs(rounded) <= MAX_OFFSET_S
    return rounded if is_one else before


def _eligible(text: str) -> float:
    """Return when a job became eligible; 0 if it was not yet, for example held or waiting for another job."""
    return unix_time(text, "etime") if text not in ("", "0") else 0.0


def _account(fields: Fields) -> str | None:
    project = fields["project"]
    return name_of(fields["account"].strip('"') or (project if project != NO_PROJECT else None))


def _state(fields: Fields, ran_s: float) -> str:
    status = fields["Exit_status"]
    if status == "0":
        return "completed"
    if not status:
        return "unknown"
    walltime = seconds_of(fields["Resource_List.walltime"])
    if status in TIMEOUTS or (walltime is not None and ran_s >= walltime):
        return "timeout"
    return "cancelled" if (count_of(status) or 0) >= SIGNALLED else "failed"
