"""ClassAds of HTCondor as they stand in logs and histories: attributes, and what they say of a job."""

import re
from html import unescape
from typing import Any, NamedTuple

from models.site.node_features import alternatives
from streams.sources.logs.fields import MAX_BYTES, MAX_COUNT, MAX_SECONDS, name_of

Ad = dict[str, Any]
"""The attributes of an ad whose values are numbers, strings or truth values; of others (expressions) the text."""

MIB = 1 << 20
REMOVED, COMPLETED = 3, 4
"""Statuses of jobs that left."""

_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?", re.ASCII)


class JobTimes(NamedTuple):
    """When a job came, ran and left (Unix seconds); what is unknown is None. Without a state it goes on."""

    job: str
    submitted: float | None
    started: float | None
    ended: float | None
    state: str | None


def classad(lines: list[str]) -> Ad:
    """The attributes in lines `Name = value`; other lines are passed over.

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
    """What a job asked for, of the table at the end of events 004 and 005.

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
        if len(told := found[2].split()) >= -place:
            ad[f"Request{found[1]}"] = _value(told[place])
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


def number_of(ad: Ad, name: str, most: float = MAX_COUNT) -> int | None:
    """A whole number from 0; None where it is unknown or an expression."""
    value = ad.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        return None
    return int(value)


def time_of(ad: Ad, *names: str) -> float | None:
    """The first of these times that is known, Unix seconds."""
    for name in names:
        value = number_of(ad, name, MAX_SECONDS)
        if value:
            return float(value)
    return None


def request(ad: Ad) -> dict[str, Any]:
    """The fields of a `submit` or an `alter` that say what a job asks for; what is unknown is absent."""
    memory = number_of(ad, "RequestMemory", MAX_BYTES / MIB)
    gpus = number_of(ad, "RequestGpus")
    found = {
        "cpus": number_of(ad, "RequestCpus") or None,
        "gpus": gpus if gpus is not None else number_of(ad, "RequestGPUs"),
        "memory": memory * MIB if memory else None,
        "walltime": time_of(ad, "AllowedExecuteDuration", "AllowedJobDuration"),
        "account": name_of(str(ad.get("AcctGroup") or ad.get("AccountingGroup") or "")),
        "priority": float(ad["JobPrio"]) if number_of(ad, "JobPrio") else None,
        "node_features": alternatives(text) if isinstance(text := ad.get("Requirements"), str) else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def submit_fields(ad: Ad) -> dict[str, Any]:
    """As `request`, and whose job it is and what it runs."""
    program = str(ad.get("Cmd", "")).rpartition("/")[2] if isinstance(ad.get("Cmd"), str) else None
    return {"user": name_of(ad.get("Owner")), "executable": name_of(program), **request(ad)}


def times_of(ad: Ad) -> JobTimes:
    """The run of an ad: the last one of a history's, the one of an epoch history's."""
    cluster, proc = number_of(ad, "ClusterId", MAX_SECONDS), number_of(ad, "ProcId")
    job = f"{cluster}.{proc or 0}" if cluster is not None else ""
    submitted = time_of(ad, "QDate")
    epoch = time_of(ad, "EpochWriteDate")
    status = number_of(ad, "JobStatus")
    is_one = (number_of(ad, "NumShadowStarts") or number_of(ad, "JobRunCount") or 0) <= 1
    dates = ("JobCurrentStartDate", "JobStartDate") if epoch or is_one else ("JobStartDate",)
    started = time_of(ad, *dates)
    left = time_of(ad, "CompletionDate", "EnteredCurrentStatus") if status in (REMOVED, COMPLETED) else None
    if status == COMPLETED:
        fine = ad.get("ExitBySignal") is not True and ad.get("ExitCode", 0) == 0
        return JobTimes(job, submitted, started, left, "completed" if fine else "failed")
    if status == REMOVED:
        return JobTimes(job, submitted, started, left, "cancelled")
    return JobTimes(job, submitted, started, epoch, None)
