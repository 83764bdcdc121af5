"""The machine as `scontrol --oneliner` and `sacctmgr --parsable2` tell it, which no release has changed."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from models.records import Partition, Reservation
from streams.sources.logs.fields import by_name, inside, iso_time
from streams.sources.slurm.attempt_fields import text_of
from streams.sources.slurm.machine import capacity
from streams.sources.slurm.rows import MIB, count_of, name_of, time_of, walltime_of

_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")


def pairs_of(line: str) -> dict[str, str]:
    """The words of a line of `scontrol show … --oneliner`, the first of each name: what people write comes last."""
    found: dict[str, str] = {}
    for name, value in _PAIR.findall(line):
        found.setdefault(name, value)
    return found


def nodes_of(found: Iterable[dict[str, str]]) -> list[capacity.Node]:
    """Nodes from scontrol's words for each."""
    nodes: list[capacity.Node] = []
    for words in found:
        state, memory = (
            capacity.state_of(re.split("[+,]", words.get("State", "").upper())),
            _count(words.get("RealMemory")),
        )
        if "NodeName" in words and state is not None:
            nodes.append(
                capacity.Node(
                    name=words["NodeName"],
                    cpus=_count(words.get("CPUEfctv")) or _count(words.get("CPUTot")) or 0,
                    state=state,
                    partitions=tuple(sorted(capacity.listed(words.get("Partitions")) or ())),
                    gpus=capacity.gpus_of(words.get("Gres")),
                    memory=None if memory is None else memory * MIB,
                    weight=float(_count(words.get("Weight")) or 0),
                    features=tuple(sorted(capacity.listed(words.get("ActiveFeatures")) or ())),
                )
            )
    return nodes


def partitions_of(found: Iterable[dict[str, str]]) -> list[tuple[Partition, str | None]]:
    """Partitions from scontrol's words for each."""
    parts: list[tuple[Partition, str | None]] = []
    for words in found:
        if (name := name_of(words.get("PartitionName"))) is None:
            continue
        partition = Partition(
            name=name,
            pools=[],
            up="UP" in words.get("State", "UP").upper().split(","),
            default=words.get("Default") == "YES" or "DEFAULT" in words.get("Flags", "").upper().split(","),
            tier=_count(words.get("PriorityTier")) or 0,
            max_walltime=walltime_of(words.get("MaxTime", ""))[0],
            max_nodes=_count(words.get("MaxNodes")),
            groups=capacity.listed(words.get("AllowGroups")),
            accounts=capacity.listed(words.get("AllowAccounts")),
            qos=capacity.listed(words.get("AllowQos")),
            denied_accounts=capacity.listed(words.get("DenyAccounts")),
            denied_qos=capacity.listed(words.get("DenyQos")),
        )
        parts.append((partition, name_of(words.get("QoS"))))
    return parts


def reservations_of(found: Iterable[dict[str, str]]) -> list[tuple[Reservation, list[str]]]:
    """Reservations from scontrol's words for each; a time may be in Unix seconds."""
    kept: list[tuple[Reservation, list[str]]] = []
    for words in found:
        name, start, end = words.get("ReservationName"), _time(words.get("StartTime")), _time(words.get("EndTime"))
        if name and start is not None and end is not None:
            reservation = Reservation(  # its pools are filled in by `capacity_of`
                name=name[: capacity.MAX_NAMES],
                start=start,
                end=end,
                users=capacity.listed(words.get("Users")),
                accounts=capacity.listed(words.get("Accounts")),
                maintenance="MAINT" in words.get("Flags", "").upper().split(","),
            )
            kept.append((reservation, capacity.hosts(words.get("Nodes"))))
    return kept


def _between_bars(line: str) -> list[str]:
    return line.split("|")


READERS: dict[str, tuple[Callable[[str], Any], Callable[[Any], list[Any]]]] = {
    "nodes": (pairs_of, nodes_of),
    "partitions": (pairs_of, partitions_of),
    "reservations": (pairs_of, reservations_of),
    "qos": (_between_bars, capacity.limits_of_qos),
    "associations": (_between_bars, capacity.limits_of_associations),
}


def read_text(what: str, told: str) -> list[Any]:
    """The nodes, partitions, reservations, or the limits of qos or associations that lines tell of, one each."""
    words, read = READERS[what]
    return read(map(words, told.splitlines()))


def _count(text: str | None) -> int | None:
    return count_of(float(text)) if text and text.isdecimal() else None


def _time(text: str | None) -> float | None:
    return time_of(float(text)) if text and text.isdecimal() else iso_time(text)


_NODE = by_name(
    "NodeName:name State:state CPUEfctv:effective_cpus CPUTot:cpus RealMemory:real_memory Gres:gres"
    " Partitions:partitions Weight:weight ActiveFeatures:active_features"
)
_PARTITION = by_name(
    "PartitionName:name State:partition.state,state Flags:flags MaxTime:maximums.time,max_time_limit"
    " MaxNodes:maximums.nodes,maximum_nodes_per_job PriorityTier:priority.tier,priority_tier"
    " AllowGroups:groups.allowed AllowAccounts:accounts.allowed DenyAccounts:accounts.deny AllowQos:qos.allowed"
    " DenyQos:qos.deny QoS:qos.assigned,qos"
)
_RESERVATION = by_name(
    "ReservationName:name StartTime:start_time EndTime:end_time Nodes:node_list Users:users Accounts:accounts"
    " Flags:flags"
)
"""Where scontrol's words are in JSON: the first of these places that is there."""

_QOS = by_name(
    "name limits.max.tres.total limits.max.active_jobs.count limits.max.tres.per.user"
    " limits.max.jobs.active_jobs.per.user limits.max.tres.per.account limits.max.jobs.active_jobs.per.account"
)
_ASSOCIATION = by_name("cluster account user parent_account max.tres.total max.jobs.per.count max.jobs.active")
"""Where the columns are that sacctmgr is asked for."""


_PLACES = {
    "nodes": _NODE,
    "partitions": _PARTITION,
    "reservations": _RESERVATION,
    "qos": _QOS,
    "associations": _ASSOCIATION,
}


def read_json(what: str, data: bytes) -> list[Any]:
    """As `read_text`, of a document. Raises ValueError: it is none."""
    told = msgspec.json.decode(data, type=dict[str, Any])
    found = told.get(what, told.get(what.upper()))  # up to v0.0.38 it is QOS
    if not isinstance(found, list):
        raise ValueError(f"there is no list of {what} in it")
    words = [{word: _at(one, place) for word, place in _PLACES[what].items()} for one in found]
    if what in ("qos", "associations"):
        return READERS[what][1](list(one.values()) for one in words)
    return READERS[what][1]({word: text for word, text in one.items() if text} for one in words)


def _at(found: object, places: str) -> str:
    """What stands at the first of some places, as text."""
    for place in places.split(","):
        *above, last = place.split(".")
        value = inside(found, *above).get(last)
        if value is not None:
            return text_of(value)
    return ""
