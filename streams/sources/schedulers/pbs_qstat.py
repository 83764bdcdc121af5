"""Output of `qstat -f -F json` of PBS, with `-x` for finished jobs; all users may run it, without access to the logs.

Each response is a poll of all jobs; several may be appended to one file. Its jobs are converted to records of the
accounting log. Times are local, such as `Mon Sep 16 10:23:45 2024`; finished jobs show the time zone.
"""

import math
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import ClassVar
from zlib import crc32

import msgspec

from models.records import AnyEvent
from streams.errors import UNDECODABLE
from streams.sources.logs.fields import BadRecord, Object, by_name, job_of, name_of
from streams.sources.logs.lifecycles import HELD
from streams.sources.logs.log_source import LogSource
from streams.sources.schedulers import pbs_json
from streams.sources.schedulers.pbs import SECONDS_PER_ZONE_STEP, SECONDS_TO_WRITE, PbsRecords
from streams.sources.schedulers.pbs_request import LIST, Fields

NAMES = by_name(
    "Account_Name:account egroup:group project Job_Name:jobname queue exec_host exec_vnode"
    " array_indices_submitted:array_indices depend Exit_status"
)
"""qstat's names of attributes, and the accounting's."""

TIMES = by_name("ctime qtime etime stime:start mtime:end obittime:end")
"""The same for times; where both are given, the later one comes first."""

RUNS, LEFT, SUSPENDED, QUEUES = frozenset("REBSU"), frozenset("FXM"), frozenset("SU"), frozenset("QHW")
"""States of jobs that run (or stand still), that have left, that stand still, and that queue."""

NOT_ELIGIBLE = frozenset("HW")
"""States of jobs that are held, or wait for the time before which they may not start (`qsub -a`)."""

KINDS = "k"  # prefix of the fingerprint in a job's note if the request has node features


class _Answer(msgspec.Struct):
    timestamp: float
    jobs: dict[str, Object] = msgspec.field(name="Jobs", default={})


BEGIN = re.compile(r'\{\s*"timestamp"')
WHOLE = "a whole answer of `qstat -f -F json`"


class QstatRecords(PbsRecords):
    """Answers, each from a line that begins with a brace to one that is nothing else."""

    def take(self, line: str) -> list[AnyEvent]:
        """The events of an answer, with its last line."""
        self.lines_before = len(self._lines)
        if self._lines and self._begins(line):
            return self._broken(line)
        if not line.startswith("{") and not self._lines:
            if line.strip():
                raise BadRecord(None, repr(line[:40]), WHOLE)
            return []
        self._lines.append(line)
        bare = line.rstrip()
        if bare != "}" and not bare.endswith("}}"):
            return []
        text = "\n".join(self._lines)
        answer = _answer(text)
        if answer is None and bare == "}" and (self.lines_before == 0 or self._lines[-2].strip() == "}"):
            answer = self._in_part(text)  # the last two braces of an answer, as PBS writes it
        if answer is None:
            return []  # a user's text has such a line too
        self._lines = []
        return self._look(answer)

    def _begins(self, line: str) -> bool:
        """Check if another response begins with this line, or with the brace on the previous one; user text may look
        similar.
        """
        if BEGIN.match(line):
            return True
        is_first = len(self._lines) > 1 and self._lines[-1].rstrip() == "{"
        return is_first and line.lstrip().startswith('"timestamp"')

    def rest(self) -> list[AnyEvent]:
        """Process a response that is incomplete, or cannot be recognised as complete."""
        answer = self._in_part("\n".join(self._taken()))
        return [] if answer is None else self._look(answer)

    def _broken(self, line: str) -> list[AnyEvent]:
        """Another answer begins before the one before it has ended."""
        first_lines = [] if BEGIN.match(line) else [self._lines.pop()]
        before, self._lines = self._lines, list(first_lines)
        answer = self._in_part("\n".join(before))
        events = [] if answer is None else self._look(answer)
        events += self.take(line)
        if not events:
            self.lines_before = len(before) + len(first_lines)
            raise BadRecord(None, repr(before[0][:40]), WHOLE)
        return events

    def _in_part(self, text: str) -> _Answer | None:
        """Return the readable jobs of a response; the others are counted."""
        found = pbs_json.jobs_of(text)
        if found is None:
            return None
        for _ in found[2]:
            self.leave_out("jobs with invalid JSON")
        return _Answer(timestamp=found[0], jobs=found[1])

    def _look(self, answer: _Answer) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        if self.zone is None:
            self._learn_zone(answer)
        for name, job in answer.jobs.items():
            try:
                events += self._job(job_of(name, "Jobs"), job, answer.timestamp)
            except BadRecord as bad:
                events += self.leave_out(f"jobs without a right {bad.field}")
        return events

    def _job(self, job: str, row: Object, at: float) -> list[AnyEvent]:
        state, fields = str(row.get("job_state", "")), self._fields(row)
        if state in LEFT and state != "M" and "start" in fields:
            return self.ended(job, at, fields)  # which also emits the submission
        known = self.lifecycles.phase(job)
        events = self.queued(job, at, fields) if known is None else []
        if state in LEFT:
            return events + self._job_dequeued(job, float(fields["end"] or at))
        if state in QUEUES:
            events += self._altered(job, at, fields)
        if state in NOT_ELIGIBLE and known != HELD:
            return events + self.lifecycles.hold(job, at)
        if state not in NOT_ELIGIBLE and known == HELD:
            events += self.lifecycles.release(job, at)
        if state in RUNS and "start" in fields:
            events += self.started(job, at, fields)
            events += self.lifecycles.suspend(job, at) if state in SUSPENDED else self.lifecycles.resume(job, at)
        return events

    def _altered(self, job: str, at: float, fields: Fields) -> list[AnyEvent]:
        """Report a pending job's request if it has changed since the last poll."""
        lifecycle = self.lifecycles.known.get(job)
        if lifecycle is None:
            return []
        changes = self._changes(fields) | {"queue": name_of(fields["queue"])}
        before, has = lifecycle.note, KINDS if "node_features" in changes else ""
        lifecycle.note = f"{has}{crc32(msgspec.json.encode(changes)):x}"
        if before.startswith(KINDS) and not has:
            changes["node_features"] = []
        if before in ("", lifecycle.note):
            return []
        return self.lifecycles.alter(job, at, unlimited="walltime" not in changes, **changes)

    def _fields(self, row: Object) -> Fields:
        found = Fields({ours: str(row[name]) for name, ours in NAMES.items() if name in row})
        found["user"] = str(row.get("Job_Owner", "")).partition("@")[0]
        resources = row.get("Resource_List")
        found.update(
            {f"{LIST}{name}": str(value) for name, value in (resources if isinstance(resources, dict) else {}).items()}
        )
        for name, ours in TIMES.items():
            if (seconds := self._time(row.get(name))) is not None:
                found[ours] = f"{seconds:.0f}"
        return found

    def _time(self, value: object) -> float | None:
        if isinstance(value, int | float):
            return float(value)
        local = _local(value) if isinstance(value, str) else None
        if local is None:
            return None
        if self.zone is not None:
            return local.replace(tzinfo=self.zone).timestamp()
        return local.replace(tzinfo=UTC).timestamp() - self.memory.offset

    def _learn_zone(self, answer: _Answer) -> None:
        """Determine the time zone: a finished job has its end in both formats, a few seconds apart.

        No job is later than the response.
        """
        newest = 0.0
        for job in answer.jobs.values():
            departed_at, local = job.get("history_timestamp"), _local(str(job.get("mtime", "")))
            if local is None:
                continue
            changed = local.replace(tzinfo=UTC).timestamp()
            newest = max(newest, changed)
            if isinstance(departed_at, int):
                self.memory.offset = round((changed - departed_at) / SECONDS_PER_ZONE_STEP) * SECONDS_PER_ZONE_STEP
                return
        ahead_s = newest - answer.timestamp
        if ahead_s > self.memory.offset + SECONDS_TO_WRITE:
            self.memory.offset = math.ceil(ahead_s / SECONDS_PER_ZONE_STEP) * SECONDS_PER_ZONE_STEP

    def _learn_offset(self, at: float, local_time: float) -> None:
        """Do nothing: all times here have one format."""


def _answer(text: str) -> _Answer | None:
    """Parse a complete response; None if it is invalid even after a repair."""
    for repair in (str, pbs_json.repaired):
        try:
            return msgspec.json.decode(repair(text), type=_Answer, strict=False)
        except UNDECODABLE:
            continue
    return None


@lru_cache(4096)
def _local(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%a %b %d %H:%M:%S %Y")
    except ValueError:
        return None


class QstatSource(LogSource):
    """A file of answers of `qstat -f -F json`."""

    name: ClassVar[str] = "qstat"
    first = re.compile(rb'^\s*\{[^{]{0,2000}?"timestamp"\s*:\s*(\d{9,10})[^{]{0,2000}?"pbs_version"', re.DOTALL)
    records_of = QstatRecords
