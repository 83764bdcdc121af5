"""HTCondor's event log (classic, JSON or XML), its history and its epoch history.

An event of the classic log begins with `NNN (CLUSTER.PROC.SUBPROC) TIME …` and ends with a line of three dots; one of
the JSON log is an object, of the XML log an element `<c>`. The log contains a job's request only if the pool has set
`EVENT_LOG_JOB_AD_INFORMATION_ATTRS = Owner, AcctGroup, Cmd, RequestCpus, RequestGpus, RequestMemory`. Then event 028
follows each other event, and submissions are held back for it once the log has shown that it comes. A history has an ad
(`Attribute = value`) for each job that left, an epoch history one for each run.

Times in the event log are the machine's local ones, without a zone, unless `EVENT_LOG_FORMAT_OPTIONS` has UTC. With
ISO_DATE they have a year. Without one they are resolved to the nearest time to those before them; the first one is
taken to be in the year before the file was written. The log contains neither lost slots nor the size of the pool.
"""

import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import msgspec

from models.records import AnyEvent, Start, Submit
from models.site.node_features import alternatives
from streams.sources.logs.fields import (
    MAX_BYTES,
    MAX_COUNT,
    MAX_SECONDS,
    BadRecord,
    count_of,
    iso_time,
    job_of,
    known,
    name_of,
    object_of,
)
from streams.sources.logs.lifecycles import GONE
from streams.sources.logs.log_source import LogSource, Records
from streams.sources.schedulers.htcondor_history import RunTimes, finished

Ad = dict[str, Any]
"""The attributes of an ad whose values are numbers, strings or truth values; of others (expressions) the text."""

MIB = 1 << 20
REMOVED, COMPLETED = 3, 4  # statuses of jobs that left
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?", re.ASCII)


def classad(lines: list[str]) -> Ad:
    """Parse the attributes in lines `Name = value`; other lines are skipped.

    >>> classad(['Owner = "ada"', "RequestCpus = 4", "ExitBySignal = FALSE", "Rank = Memory * 2"])
    {'Owner': 'ada', 'RequestCpus': 4, 'ExitBySignal': False, 'Rank': 'Memory * 2'}
    """
    ad: Ad = {}
    for line in lines:
        name, equals, value = line.strip().partition(" = ")
        if equals and name.isidentifier():
            ad[name] = _value(value.strip())
    return ad


_RESOURCE = re.compile(r"\s*(Cpus|G[Pp][Uu]s|Memory)(?: \([^)]*\))?\s*:([ \d.]*)")


def requested(lines: list[str]) -> Ad:
    """Parse a job's request from the table at the end of events 004 and 005.

    >>> requested(["  Partitionable Resources :  Usage  Request Allocated", "  Cpus  :  0.97  2  4"])
    {'RequestCpus': 2}
    """
    header = next((place for place, line in enumerate(lines) if "Partitionable Resources" in line), len(lines))
    columns = lines[header].partition(":")[2].replace("Assigned", "").split() if header < len(lines) else []
    if "Request" not in columns:
        return {}
    place = columns.index("Request") - len(columns)  # from the right: of the first column, Usage, there may be none
    ad: Ad = {}
    for found in filter(None, map(_RESOURCE.match, lines[header + 1 :])):
        if len(values := found[2].split()) >= -place:
            ad[f"Request{found[1]}"] = _value(values[place])
    return ad


_XML = re.compile(r'<a n="(\w{1,256})">\s*<(?:([sire])>([^<]*)</\2>|b v="([tf])"\s*/>)\s*</a>', re.ASCII)


def classad_of_xml(text: str) -> Ad:
    """The attributes in `<a n="Name"><i>value</i></a>`.

    >>> classad_of_xml('<a n="Owner"><s>a&amp;b</s></a><a n="Cluster"><i>4</i></a><a n="Normal"><b v="t"/></a>')
    {'Owner': 'a&b', 'Cluster': 4, 'Normal': True}
    """
    ad: Ad = {}
    for name, kind, value, truth in _XML.findall(text):
        ad[name] = truth == "t" if truth else unescape(value) if kind == "s" else _value(value.strip())
    return ad


def _value(text: str) -> Any:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"')
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def natural_number_of(ad: Ad, name: str, most: float = MAX_COUNT) -> int | None:
    """Return an integer attribute from 0; None if it is missing or an expression."""
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value)


def time_of(ad: Ad, *names: str) -> float | None:
    """Return the first of these times that is present, Unix seconds."""
    for name in names:
        value = natural_number_of(ad, name, MAX_SECONDS)
        if value:
            return float(value)
    return None


def request(ad: Ad) -> dict[str, Any]:
    """Return a job's request as fields of a `submit` or an `alter`; missing values are omitted."""
    memory = natural_number_of(ad, "RequestMemory", MAX_BYTES / MIB)
    gpus = natural_number_of(ad, "RequestGpus")
    return known(
        cpus=natural_number_of(ad, "RequestCpus") or None,
        gpus=gpus if gpus is not None else natural_number_of(ad, "RequestGPUs"),
        memory=memory * MIB if memory else None,
        walltime=time_of(ad, "AllowedExecuteDuration", "AllowedJobDuration"),
        account=name_of(str(ad.get("AcctGroup") or ad.get("AccountingGroup") or "")),
        priority=float(ad["JobPrio"]) if natural_number_of(ad, "JobPrio") else None,
        node_features=alternatives(text) if isinstance(text := ad.get("Requirements"), str) else None,
    )


def submit_fields(ad: Ad) -> dict[str, Any]:
    """Return the fields of `request`, with the job's owner and executable."""
    program = str(ad.get("Cmd", "")).rpartition("/")[2] if isinstance(ad.get("Cmd"), str) else None
    return {"user": name_of(ad.get("Owner")), "executable": name_of(program), **request(ad)}


HEADER = re.compile(r"(\d{3}) \((-?\d{1,12})\.(-?\d{1,12})\.-?\d{1,12}\) (\S+(?: \d\d:\d\d:\d\d\S*)?)(.*)", re.ASCII)
SHORT_TIME = re.compile(r"(\d\d)/(\d\d) (\d\d:\d\d:\d\d)", re.ASCII)
FIRST = re.compile(
    rb'^(?:\d{3} \(\d+\.\d+\.\d+\) (\S+ ?[\d:]{0,8}\S*)|\s*"EventTime"\s*:\s*"([^"\n]+)"|QDate = (\d+)'
    rb'|.{0,1000}<a n="EventTime">\s*<s>([^<\n]+)<)',
    re.MULTILINE,
)
KIND = re.compile(
    rb'^(?:\d{3} \(\d+\.\d+\.\d+\) |\{?\s*"EventTypeNumber"\s*:|.{0,1000}<a n="EventTypeNumber">'
    rb"|(?:ClusterId|MyType|GlobalJobId|QDate) = )",
    re.MULTILINE,
)
MAX_RECORD_LINES = 5000  # a record that is longer is given up
END_OF_EVENT = "..."

XML_BEGIN, XML_END = "<c>", "</c>"
XML_HEAD = ("<?xml", "<!DOCTYPE", "<classads>", "</classads>", "<eventlog>", "</eventlog>")

DAY_S = 86400.0

SUBMIT, EXECUTE, EVICTED, TERMINATED, SHADOW_EXCEPTION, ABORTED = 0, 1, 4, 5, 7, 9
SUSPENDED_JOB, UNSUSPENDED, HELD, RELEASED, RECONNECT_FAILED, AD_INFORMATION = 10, 11, 12, 13, 24, 28
"""Numbers of events."""


class HTCondorRecords(Records):
    """Events of the log, or ads of a history, as events."""

    def take(self, line: str) -> list[AnyEvent]:
        """The events of a record, with its last line."""
        self.lines_before = len(self._lines)
        first = self._lines[0] if self._lines else line
        if self._lines and (
            line[:1] == "{" or line.startswith(XML_BEGIN) or HEADER.match(line)
        ):  # the record before it was never completed
            before, self._lines = self.lines_before, []
            events = self.take(line)
            if not events:
                self.lines_before = before
                raise BadRecord(None, repr(first[:40]), "an event that ends with a line of three dots")
            return events
        self._lines.append(line)
        if len(self._lines) > MAX_RECORD_LINES:
            self._lines = []
            raise BadRecord(None, f"{MAX_RECORD_LINES} lines", "the end of a record")
        if first[:1] == "{":
            is_whole = line[:1] == "}" or (line is first and line.rstrip()[-1:] == "}")
            return (
                self._of_object(object_of("\n".join(self._taken()), "an object", "an event in JSON"))
                if is_whole
                else []
            )
        if first.startswith(XML_BEGIN):
            return self._of_object(classad_of_xml("\n".join(self._taken()))) if line.rstrip().endswith(XML_END) else []
        if HEADER.match(first):
            return self._of_event() if line == END_OF_EVENT else []
        return self._of_ad(line)

    def rest(self) -> list[AnyEvent]:
        """The last ad of a history has no line after it."""
        lines = self._taken()
        events: list[AnyEvent] = []
        if lines and not HEADER.match(lines[0]) and lines[0][:1] not in ("{", "<"):
            with suppress(BadRecord):
                events = self._of_run(classad(lines))
        return events + self._flushed()

    def _of_object(self, ad: Ad) -> list[AnyEvent]:
        kind = ad.get("EventTypeNumber")
        cluster, proc = ad.get("Cluster"), ad.get("Proc", 0)
        if not all(isinstance(value, int) for value in (kind, cluster, proc)):
            raise BadRecord("EventTypeNumber, Cluster, Proc", (kind, cluster, proc), "whole numbers")
        at = self._time(str(ad.get("EventTime", "")), "EventTime")
        return self._event(int(kind or 0), f"{cluster}.{proc}", at, ad)

    def _of_event(self) -> list[AnyEvent]:
        lines = self._taken()
        header = HEADER.match(lines[0])
        assert header is not None  # checked when the record began
        ad = classad(lines[1:-1]) | requested(lines[1:-1])
        ad["Text"] = header[5]
        ended = next((line for line in lines[1:-1] if "termination (" in line), "")
        if ended:
            ad["TerminatedNormally"] = "Normal termination" in ended
            ad["ReturnValue"] = 0 if "(return value 0)" in ended else 1
        return self._event(int(header[1]), f"{int(header[2])}.{int(header[3])}", self._time(header[4], "time"), ad)

    def _of_ad(self, line: str) -> list[AnyEvent]:
        """An ad of a history ends with a line of stars, or a blank one."""
        if line.startswith("***") or not line.strip():
            lines, self._lines = self._lines[:-1], []
            return self._of_run(classad(lines)) if lines else []
        if " = " in line or len(self._lines) > 1:
            return []
        self._lines = []
        if line == END_OF_EVENT or line.startswith(XML_HEAD):
            return []
        raise BadRecord(None, repr(line[:40]), "an event, an object, or an ad")

    def _event(self, kind: int, job: str, at: float, ad: Ad) -> list[AnyEvent]:
        """Convert an event, after the submission that was held back for it."""
        job_of(job, "job")
        held = self.memory.held
        if kind == AD_INFORMATION:
            return self._information(job, at, ad)
        before = self._flushed() if held is not None else []
        if kind == SUBMIT:
            submit = Submit(site=self.site, time=at, job=job)
            if self.memory.has_ads:
                self.memory.held = submit
                return before
            return before + self.lifecycles.submit(submit)
        events = self._submitted_late(kind, job, at, ad) + self._happened(kind, job, at, ad)
        return before + (events or self.leave_out(f"events {kind:03}"))

    def _submitted_late(self, kind: int, job: str, at: float, ad: Ad) -> list[AnyEvent]:
        """Report a job's request from the end of its run, if it has not come before."""
        has_ad = kind in (EVICTED, TERMINATED) and not self.memory.has_ads
        if not has_ad or not self.lifecycles.runs(job):
            return []
        return self.lifecycles.alter(job, at, **request(ad))

    def _happened(self, kind: int, job: str, at: float, ad: Ad) -> list[AnyEvent]:
        lifecycles = self.lifecycles
        if kind == EXECUTE:
            given: dict[str, Any] = {
                "cpus": natural_number_of(ad, "Cpus") or None,
                "gpus": natural_number_of(ad, "GPUs") or None,
            }
            return lifecycles.start(Start(site=self.site, time=at, job=job, **given))
        if kind == TERMINATED:
            fine = ad.get("TerminatedNormally") is True and ad.get("ReturnValue") == 0
            is_here = lifecycles.phase(job) not in (None, GONE)  # it may have run without a record of its start
            return lifecycles.end(job, at, "completed" if fine else "failed") if is_here else []
        if kind == ABORTED:
            return lifecycles.leave(job, at, "cancelled")
        if kind in (EVICTED, SHADOW_EXCEPTION, RECONNECT_FAILED):
            return lifecycles.requeue(job, at, "preempted" if kind == EVICTED else "node_fail")
        if kind == HELD:
            return lifecycles.requeue(job, at) + lifecycles.hold(job, at)
        moves = {SUSPENDED_JOB: lifecycles.suspend, UNSUSPENDED: lifecycles.resume, RELEASED: lifecycles.release}
        return moves[kind](job, at) if kind in moves else []

    def _information(self, job: str, at: float, ad: Ad) -> list[AnyEvent]:
        """Event 028: attributes of the job, after the event that it goes with."""
        held, self.memory.held, self.memory.has_ads = self.memory.held, None, True
        if held is not None and held.job == job:
            return self.lifecycles.submit(msgspec.structs.replace(held, **submit_fields(ad)))
        before = self.lifecycles.submit(held) if held is not None else []
        changes = request(ad)
        if (
            natural_number_of(ad, "TriggerEventTypeNumber") == SUBMIT
            and changes
            and self.lifecycles.phase(job) is not None
        ):
            return before + self.lifecycles.alter(job, at, **changes)
        return before or self.leave_out("duplicate events 028")

    def _flushed(self) -> list[AnyEvent]:
        held, self.memory.held = self.memory.held, None
        return self.lifecycles.submit(held) if held is not None else []

    def _of_run(self, ad: Ad) -> list[AnyEvent]:
        """Process an ad: of a history, a departed job with its last run; of an epoch history, a run that ended."""
        cluster, status = natural_number_of(ad, "ClusterId", MAX_SECONDS), natural_number_of(ad, "JobStatus")
        job = job_of("" if cluster is None else f"{cluster}.{natural_number_of(ad, 'ProcId') or 0}", "ClusterId")
        submitted, ended = time_of(ad, "QDate"), time_of(ad, "EpochWriteDate")
        state: str | None = None
        if submitted is None:
            raise BadRecord("QDate", ad.get("QDate", ""), "Unix seconds")
        submit = Submit(site=self.site, time=submitted, job=job, **submit_fields(ad))
        first, current = time_of(ad, "JobStartDate"), time_of(ad, "JobCurrentStartDate")
        began, of_one_run = current or first, ended is not None
        if status in (REMOVED, COMPLETED):
            ended = time_of(ad, "CompletionDate", "EnteredCurrentStatus")
            fine = ad.get("ExitBySignal") is not True and ad.get("ExitCode", 0) == 0
            state = "cancelled" if status == REMOVED else "completed" if fine else "failed"
        if of_one_run and ended is not None:
            start = None if began is None else Start(site=self.site, time=began, job=job)
            return self.lifecycles.ran(job, start, ended, state, lambda: submit)
        if ended is None or state is None:
            return self.leave_out("ads of live jobs")
        counts = [natural_number_of(ad, name) or 0 for name in ("NumJobStarts", "NumShadowStarts", "JobRunCount")]
        total_s, last_s = time_of(ad, "RemoteWallClockTime"), time_of(ad, "LastRemoteWallClockTime")
        runs = RunTimes(max(counts), first, current, total_s, last_s, natural_number_of(ad, "NumHolds") or 0)
        return finished(self.lifecycles, submit, runs, ended, state)

    def _time(self, text: str, field: str) -> float:
        value = seconds_at(text, self.zone) or self._without_year(text)
        if value is None:
            raise BadRecord(field, text, "a time such as 2024-09-15 10:23:45 or 09/15 10:23:45")
        return value

    def _without_year(self, text: str) -> float | None:
        """Unix seconds of a time such as `09/15 10:23:45`; None where it is none."""
        found = SHORT_TIME.fullmatch(text)
        if found is None:
            return None
        last, written = self.memory.last, self._written() if not self.memory.last else 0.0
        year = datetime.fromtimestamp(last or written, UTC).year
        times = (seconds_at(f"{one}-{found[1]}-{found[2]} {found[3]}", self.zone) for one in range(year - 4, year + 2))
        known = [value for value in times if value is not None and (last or value <= written + DAY_S)]
        if not known:
            return None
        self.memory.last = min(known, key=lambda value: abs(value - last)) if last else known[-1]
        return self.memory.last

    def _written(self) -> float:
        try:
            return self.file.stat().st_mtime
        except OSError:  # it was removed meanwhile
            return time.time()


class HTCondorSource(LogSource):
    """HTCondor's event log (`EVENT_LOG`), or a history."""

    name: ClassVar[str] = "htcondor"
    records_of = HTCondorRecords

    @classmethod
    def recognises(cls, head: bytes) -> bool:
        """Check if a file with this beginning has events or ads."""
        return KIND.search(head) is not None

    @classmethod
    def first_time(cls, head: bytes) -> float | None:
        """Return the time of the first record; 0 if its format is not supported."""
        if not cls.recognises(head):
            return None
        found = FIRST.search(head)
        if found is None:
            return 0.0
        if found[3]:
            return float(count_of(found[3].decode()) or 0)
        return seconds_at((found[1] or found[2] or found[4]).decode("utf-8", "replace").strip(), None) or 0.0


def seconds_at(text: str, zone: ZoneInfo | None) -> float | None:
    """Unix seconds of a time such as `2024-09-15 10:23:45` or `2024-09-15T10:23:45.123Z`; None where it is none."""
    return iso_time(text, zone or UTC) if len(text) >= len("2024-09-15 10:23:45") else None
