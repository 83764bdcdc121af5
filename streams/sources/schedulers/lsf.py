"""LSF's files `lsb.events`, `lsb.stream` and `lsb.acct`, and those of OpenLava and other derivatives.

A line is `"TYPE" "VERSION" TIME FIELD …`: strings in double quotes, which are doubled inside, and numbers. The number
of fields depends on counts in the line, and newer versions append some, so records are read from their beginning. Times
are Unix seconds. `lsb.events` and `lsb.stream` record each change; `lsb.acct` has a line for each finished job. When
LSF switches to a new `lsb.events` it repeats there the records of live jobs.

Changes of a request by `bmod` are not read, nor is memory, whose unit is in lsf.conf. The files do not contain the size
of the machine.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from models.records import AnyEvent, Cancel, Start, Submit
from streams.sources.logs.fields import (
    MAX_COUNT,
    MAX_NAME,
    MAX_SECONDS,
    BadRecord,
    by_name,
    count_of,
    in_turn,
    name_of,
    text_of,
    unix_time,
)
from streams.sources.logs.lifecycles import HELD, QUEUED
from streams.sources.logs.log_source import LogSource, Records
from streams.sources.schedulers import lsf_fields

PENDING, HELD_JOB, RUNS, SUSPENDED_BY_SYSTEM, SUSPENDED_BY_USER, EXITED, DONE = 1, 2, 4, 8, 16, 32, 64
"""Bits of a job's status."""

EXCLUSIVE, INTERACTIVE = 0x40, 0x4000000  # bits of a job's options

LIMIT_CHARS = 100
"""Maximum distance of a finished job's walltime before its effective resource requirement, characters."""

HOLD = 0x1  # a bit of its further options: it is submitted held

LIMITS, WALLTIME_LIMIT = ("rLimits",) * 11, 9
"""The resource limits that a request has, and which of them is the walltime, seconds."""

HEAD = ("jobId", "userId", "options", "numProcessors")  # what a record of a job's submission or end begins with

KINDS = by_name("JOB_NEW JOB_START JOB_EXECUTE JOB_STATUS JOB_REQUEUE JOB_SWITCH JOB_CLEAN JOB_FINISH JOB_FINISH2")
"""The types of records that are read, each by the method of its name."""

NEVER_STARTED = -1  # the index in a record of elements that left the queue together
USAGE = 19  # fields of resource usage


class LsfRecords(Records):
    """Records of LSF as events."""

    def take(self, line: str) -> list[AnyEvent]:
        """Return the events of a record."""
        if not line.strip() or line.startswith("#"):  # the first line of lsb.events is an offset
            return []
        kind, _, _ = line[1:].partition('"')
        make = getattr(self, f"_{kind.lower()}") if kind in KINDS and line[0] == '"' else None
        if make is None:
            if line[0] != '"' or not kind.isupper():
                raise BadRecord(None, repr(line[:40]), '"TYPE" "VERSION" TIME …')
            return self.leave_out(f"records of type {kind[:40]}")
        fields = lsf_fields.LineFields(line)
        fields.skip(2)
        at = fields.time("event time")
        if not at:
            raise BadRecord("field 3 (event time)", "0", "Unix seconds")
        events: list[AnyEvent] = make(fields, at, line)
        return events or self.leave_out(f"records of type {kind} without new information")

    def _job_new(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        number, _, options, cpus = fields.numbers(HEAD)
        submitted, begin = fields.time("submitTime"), fields.time("beginTime")
        fields.skip(4)
        named = fields.named("userName")
        walltime = fields.numbers(LIMITS)[WALLTIME_LIMIT]
        fields.skip(3)
        named |= fields.named("queue", "resReq")
        fields.skip(8)  # from where it comes and its files
        fields.skip(fields.count("numAskedHosts"))
        named |= fields.named("dependCond")
        fields.skip()
        named |= fields.named("jobName", "command")
        fields.skip(3 * fields.count("nxf"))
        fields.skip()
        named |= fields.named("projectName")
        fields.skip(3 + bool(options & INTERACTIVE))  # ports, processors at most, host type
        further = self._further_options(fields)
        size, limit = lsf_fields.array_of(named["jobName"])
        submit = Submit(
            site=self.site,
            time=submitted or at,
            job=self._job(number, 0)[0],
            eligible=begin if begin > (submitted or at) else None,
            array_size=size,
            array_limit=limit,
            **_requested(named, options, cpus, walltime if 0 < walltime <= MAX_SECONDS else None, line),
        )
        events = self.lifecycles.submit(submit)
        return events + (self.lifecycles.hold(submit.job, submit.time) if events and further & HOLD else [])

    def _further_options(self, fields: lsf_fields.LineFields) -> int:
        """`options2`, after the login shell and up to three strings that newer versions have."""
        fields.skip_texts(4)
        return 0 if fields.is_text_next() else fields.number("options2", 0)

    def _job_start(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        number = fields.number("jobId")
        fields.skip(4)
        hosts = fields.texts("numExHosts")
        fields.skip(2)
        fields.skip()  # jFlags
        fields.skip_texts(1)  # userGroup
        index = fields.number("idx", 0)
        return self._started(number, index, at, **lsf_fields.allocation(hosts))

    def _job_execute(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        number = fields.number("jobId")
        fields.skip(6)
        index = fields.number("idx", 0)
        return self._started(number, index, at)

    def _job_status(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        number, status = fields.number("jobId"), fields.number("jStatus")
        fields.skip(3)
        ended = fields.time("endTime")
        fields.skip(USAGE if fields.number("ru") else 0)
        exit_status = fields.number("exitStatus")
        job = self._job_of(fields, number)
        if status & (EXITED | DONE):
            return self._remove_job(
                job, ended or at, "completed" if status & DONE else lsf_fields.exit_state(exit_status)
            )
        if status & (SUSPENDED_BY_SYSTEM | SUSPENDED_BY_USER):
            return self.lifecycles.suspend(job, at)
        if status & HELD_JOB:
            return self.lifecycles.hold(job, at)
        if status & PENDING:
            return self.lifecycles.requeue(job, at) or self.lifecycles.release(job, at)
        return self.lifecycles.resume(job, at) if status & RUNS else []

    def _job_requeue(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        job = self._job_of(fields, fields.number("jobId"))
        return self.lifecycles.requeue(job, at)

    def _job_switch(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        fields.skip()
        number, queue = fields.number("jobId"), fields.text("queue")
        job = self._job_of(fields, number)
        if self.lifecycles.phase(job) not in (QUEUED, HELD) or not queue:
            return []
        return self.lifecycles.alter(job, at, queue=name_of(queue))

    def _job_clean(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        job = self._job_of(fields, fields.number("jobId"))
        self.lifecycles.forget(job)
        return []

    def _job_finish(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        number, _, options, cpus = fields.numbers(HEAD)
        submitted, begin = fields.time("submitTime"), fields.time("beginTime")
        fields.skip()
        started = fields.time("startTime")
        named = fields.named("userName", "queue", "resReq", "dependCond")
        fields.skip(7)
        fields.skip(fields.count("numAskedHosts"))
        hosts = fields.texts("numExHosts")
        status = fields.number("jStatus")
        fields.skip()
        named |= fields.named("jobName", "command")
        fields.skip(USAGE + 1)
        named |= fields.named("projectName")
        exit_status = fields.number("exitStatus")
        fields.skip(3)
        index = fields.number("idx", 0)
        fields.skip(8)
        reason = "" if fields.is_over() else fields.text("exitInfo")
        if index == NEVER_STARTED:
            elements = fields.elements()

        def submit() -> dict[str, Any]:
            eligible = begin if begin > submitted > 0 else None
            return {"eligible": eligible, **_requested(named, options, cpus, _run_limit(line), line)}

        state = "completed" if status & DONE else lsf_fields.exit_state(exit_status, reason)
        if index == NEVER_STARTED:
            return self._never_started(number, elements, (submitted, at), submit)
        return self._finished(number, index, (submitted, started, at), submit, hosts, state)

    def _never_started(
        self,
        number: int,
        elements: list[range],
        times: tuple[float, float],
        submit: Callable[[], dict[str, Any]],
    ) -> list[AnyEvent]:
        """Cancel array elements that left the queue without starting, all in one record."""
        array, count = self._job(number, 0)[0], sum(map(len, elements))
        lifecycle = self.lifecycles.known.get(array)
        if lifecycle is not None and lifecycle.tasks > count:  # others of the array queue on
            lifecycle.tasks -= count
            tasks = (f"{array}[{index}]" for part in elements for index in part)
            return [Cancel(site=self.site, time=times[1], job=task, array=array) for task in tasks]
        if lifecycle is not None:
            return self.lifecycles.cancel(array, times[1])
        job = f"{array}[{','.join(f'{part[0]}-{part[-1]}' for part in elements)}]"[:MAX_NAME]
        bare = Submit(site=self.site, time=times[0] or times[1], job=job, array_size=count, **submit())
        return self.lifecycles.submit(bare) + self.lifecycles.cancel(job, times[1])

    def _job_finish2(self, fields: lsf_fields.LineFields, at: float, line: str) -> list[AnyEvent]:
        """In `lsb.stream`: names and values."""
        number = fields.number("jobId")
        pairs = [
            (fields.text("name"), fields.text("value")) for _ in range(fields.count("number of fields", 1_000_000))
        ]
        named = dict(pairs)
        times = [_seconds(named, name) for name in ("submitTime", "startTime", "endTime")]

        def submit() -> dict[str, Any]:
            options, cpus = count_of(named.get("options")) or 0, count_of(named.get("numProcessors")) or 0
            return _requested(named, options, cpus, count_of(named.get("runLimit")), line)

        done = (count_of(named.get("jStatus")) or 0) & DONE
        exit_status = count_of(named.get("exitStatus")) or 0
        state = "completed" if done else lsf_fields.exit_state(exit_status, named.get("exitInfo", ""))
        hosts = lsf_fields.hosts_in(pairs)
        index = count_of(named.get("idx")) or 0
        return self._finished(number, index, (times[0], times[1], times[2] or at), submit, hosts, state)

    def _started(self, number: int, index: int, at: float, **given: Any) -> list[AnyEvent]:
        job, array = self._job(number, index)
        return self.lifecycles.start(Start(site=self.site, time=at, job=job, array=array, **given))

    def _remove_job(self, job: str, at: float, state: str) -> list[AnyEvent]:
        """Remove a job; a duplicate JOB_FINISH may follow."""
        return (
            self.lifecycles.end_before_duplicate(job, at, state)
            if self.lifecycles.runs(job)
            else self.lifecycles.cancel(job, at)
        )

    def _finished(
        self,
        number: int,
        index: int,
        times: tuple[float, float, float],
        submit: Callable[[], dict[str, Any]],
        hosts: list[str],
        state: str,
    ) -> list[AnyEvent]:
        job, array = self._job(number, index)
        submitted, started, ended = times
        if not submitted:
            raise BadRecord("field 8 (submitTime)", "0", "Unix seconds")

        def make_submit() -> Submit:
            return Submit(site=self.site, time=submitted, job=job, array=array, **submit())

        start = Start(site=self.site, time=started, job=job, array=array, **lsf_fields.allocation(hosts))
        return self.lifecycles.ran(
            job, start if started else None, in_turn(ended, started or submitted), state, make_submit
        )

    def _job_of(self, fields: lsf_fields.LineFields, number: int) -> str:
        """Return the id of a job, or of the task that the next field names, if any."""
        return self._job(number, fields.number("idx", 0))[0]

    def _job(self, number: int, index: int) -> tuple[str, str | None]:
        if not (0 <= number <= MAX_COUNT and 0 <= index <= MAX_COUNT):
            raise BadRecord("field 4 (jobId)", f"{number}[{index}]", "a job's number")
        job = str(number)
        return (f"{job}[{index}]", job) if index else (job, None)


class LsfSource(LogSource):
    """LSF's `lsb.events`, `lsb.stream` or `lsb.acct`, in `$LSB_SHAREDIR/CLUSTER/logdir`."""

    name: ClassVar[str] = "lsf"
    first = re.compile(rb'^"[A-Z][A-Z0-9_]*" "[\d.]+" (\d{1,11}) ', re.MULTILINE)
    records_of = LsfRecords


def _requested(named: Mapping[str, str], options: int, cpus: int, walltime: int | None, line: str) -> dict[str, Any]:
    """Return the fields of a `submit` from a record's own fields."""
    return {
        "user": name_of(named.get("userName")),
        "account": name_of(named.get("projectName")),
        "queue": name_of(named.get("queue")),
        "executable": lsf_fields.executable(named.get("jobName", ""), named.get("command", "")),
        "walltime": float(walltime) if walltime else None,
        "dependency": text_of(named.get("dependCond")),
        "exclusive": bool(options & EXCLUSIVE),
        **lsf_fields.with_gpus(lsf_fields.request(cpus, named.get("resReq", "")), line),
    }


def _run_limit(line: str) -> int | None:
    """Return the walltime of a finished job, two numbers before its effective resource requirement."""
    end = line.rfind(' "select[')
    before = line[max(end - LIMIT_CHARS, 0) : max(end, 0)].rsplit(" ", 3)
    return count_of(before[1]) if len(before) == 4 else None


def _seconds(named: dict[str, str], name: str) -> float:
    value = named.get(name, "0")
    return 0.0 if value == "0" else unix_time(value, name)
