"""Nodes, partitions, reservations and limits of Slurm as one event: the machine's size.

The format is the output of `scontrol --oneliner` and `sacctmgr --parsable2`, which no release has changed; JSON is
converted to it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from models.records import Capacity, Limit, Partition, Pool, Reservation
from streams.sources.logs.fields import by_name, iso_time, object_at
from streams.sources.slurm.any_release import text_of
from streams.sources.slurm.attempt_rows import (
    MIB,
    count_in,
    gres_of,
    hosts,
    name_of,
    resources_of,
    time_of,
    walltime_of,
)
from streams.sources.slurm.sacctmgr_limits import limits_of_associations, limits_of_qos

MAX_POOLS = 256
MAX_BY_FEATURE = 32  # with more pools than these, nodes of a pool may have different features
MAX_NAMES = 256

UP, DOWN, DRAINED, RESERVED = "up", "down", "drained", "reserved"
_STATES = MappingProxyType(
    {
        DOWN: frozenset({"DOWN", "FAIL", "FAILING", "ERROR", "UNKNOWN", "NOT_RESPONDING", "INVALID_REG", "INVAL"}),
        DRAINED: frozenset({"DRAIN", "DRAINED", "DRAINING", "DRAINING@"}),
        RESERVED: frozenset({"RESERVED", "MAINT", "MAINTENANCE"}),
    }
)


class Node(msgspec.Struct, gc=False):
    """A node; memory in bytes. A lower weight is taken first."""

    name: str
    cpus: int
    state: str
    partitions: tuple[str, ...]
    gpus: dict[str, int]
    memory: int | None
    weight: float = 1.0
    features: tuple[str, ...] = ()
    cores: int = 0


class Machine(msgspec.Struct):
    """The state of a machine; `capacity_of` fills in the `pools` of its partitions, which come with their QOS."""

    nodes: list[Node] = []
    partitions: list[tuple[Partition, str | None]] = []
    reservations: list[tuple[Reservation, list[str]]] = []
    limits: list[Limit] = []


def capacity_of(machine: Machine, site: str, time: float) -> Capacity | None:
    """Return the capacity event; None if no partition has a node.

    Nodes of a pool are alike, as far as the number of pools permits. A reservation on nodes of several pools is listed
    once for each pool.
    """
    nodes = [node for node in machine.nodes if node.partitions and node.cpus]
    if not nodes:
        return None
    groups = _grouped(nodes, lambda node: (*_alike(node), node.memory, node.features))
    if len(groups) > MAX_BY_FEATURE:  # such as of each rack
        groups = _grouped(nodes, lambda node: (*_alike(node), node.memory))
    if len(groups) > MAX_POOLS:  # memory may differ by what a firmware keeps for itself
        groups = _grouped(nodes, _alike)
    groups = sorted(groups, key=lambda group: (min(node.weight for node in group), group[0].name))[:MAX_POOLS]
    names = _names(groups)
    pools = [_pool(name, group) for name, group in zip(names, groups, strict=True)]
    place = {node.name: name for name, group in zip(names, groups, strict=True) for node in group}
    used = {name: group[0].partitions for name, group in zip(names, groups, strict=True)}
    partitions = [
        msgspec.structs.replace(part, pools=[name for name in names if part.name in used[name]])
        for part, _ in machine.partitions[:MAX_NAMES]
    ]
    limits = [  # the QOS of a partition counts for all jobs in it
        msgspec.structs.replace(limit, partition=part.name, qos=None)
        for part, qos in machine.partitions
        for limit in machine.limits
        if qos is not None and limit.qos == qos
    ]
    return Capacity(
        site=site,
        time=time,
        cpus=sum(node.cpus for node in nodes),
        nodes=len(nodes),
        down_nodes=sum(node.state in (DOWN, DRAINED) for node in nodes),
        pools=pools,
        partitions=partitions,
        limits=[*limits, *machine.limits][:1024],
        reservations=list(_reservations(machine.reservations, place, {node.name: node for node in nodes}))[:256],
    )


def _alike(node: Node) -> tuple[Any, ...]:
    return node.partitions, node.cpus, tuple(sorted(node.gpus.items()))


def _grouped(nodes: Iterable[Node], key: Callable[[Node], Any]) -> list[list[Node]]:
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return list(groups.values())


def _names(groups: list[list[Node]]) -> list[str]:
    """Name each pool after its partitions, with a number if several have the same."""
    names: list[str] = []
    for group in groups:
        name, number = "+".join(group[0].partitions)[:240], 1
        while (found := name if number == 1 else f"{name}/{number}") in names:
            number += 1
        names.append(found)
    return names


def _pool(name: str, group: list[Node]) -> Pool:
    states = [node.state for node in group]
    return Pool(
        name=name,
        nodes=len(group),
        cpus=group[0].cpus,
        gpus=group[0].gpus,
        memory=min((node.memory for node in group if node.memory), default=None),
        down_nodes=states.count(DOWN),
        drained_nodes=states.count(DRAINED),
        reserved_nodes=states.count(RESERVED),
        node_features=sorted({name for node in group for name in node.features})[:MAX_NAMES],
    )


def _reservations(
    found: Iterable[tuple[Reservation, list[str]]], place: Mapping[str, str], known: Mapping[str, Node]
) -> Iterator[Reservation]:
    for reservation, nodes in found:
        counts: dict[str, int] = {}
        for node in nodes:
            if node in place:
                counts[place[node]] = counts.get(place[node], 0) + 1
        taken = _cpus_of_nodes(reservation.cpus, [known[node] for node in nodes if node in place])
        for pool, count in sorted(counts.items()):
            cpus = None if taken is None else taken * count // sum(counts.values())
            yield msgspec.structs.replace(reservation, pools=[pool], nodes=count, cpus=cpus)


def _cpus_of_nodes(cpus: int | None, nodes: list[Node]) -> int | None:
    """Return the CPUs that a reservation takes of its nodes; None for whole nodes, counted by cores or threads."""
    every, cores = sum(node.cpus for node in nodes), sum(node.cores or node.cpus for node in nodes)
    return cpus if cpus is not None and cpus < every and cpus != cores else None


def state_of(words: Iterable[str]) -> str | None:
    """Return the availability of a node; None for a planned (FUTURE) one."""
    known = {word.rstrip("~#!%$@^-") for word in words}
    if any(word.endswith("*") for word in known):
        known = {word.rstrip("*") for word in known} | {"NOT_RESPONDING"}
    if "FUTURE" in known:
        return None
    return next((state for state, of_it in _STATES.items() if known & of_it), UP)


def listed(text: str | None) -> list[str] | None:
    """Return the names in a list; None if it is Slurm's keyword for all or none."""
    if not text or text in ("ALL", "(null)", "N/A"):
        return None
    return [name for part in text.split(",") if (name := name_of(part)) is not None][:MAX_NAMES] or None


_PAIR = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")


def pairs_of(line: str) -> dict[str, str]:
    """Parse a line of `scontrol show … --oneliner`.

    The first value of each name counts, because text written by users comes last.
    """
    found: dict[str, str] = {}
    for name, value in _PAIR.findall(line):
        found.setdefault(name, value)
    return found


def nodes_of(found: Iterable[dict[str, str]]) -> list[Node]:
    """Nodes from scontrol's words for each."""
    nodes: list[Node] = []
    for words in found:
        state, memory = (
            state_of(re.split("[+,]", words.get("State", "").upper())),
            count_in(words.get("RealMemory")),
        )
        if "NodeName" in words and state is not None:
            nodes.append(
                Node(
                    name=words["NodeName"],
                    cpus=count_in(words.get("CPUEfctv")) or count_in(words.get("CPUTot")) or 0,
                    state=state,
                    partitions=tuple(sorted(listed(words.get("Partitions")) or ())),
                    gpus={kind or "gpu": count for kind, count in gres_of(words.get("Gres", "")).items()},
                    memory=None if memory is None else memory * MIB,
                    weight=float(count_in(words.get("Weight")) or 0),
                    features=tuple(sorted(listed(words.get("ActiveFeatures")) or ())),
                    cores=(count_in(words.get("CoresPerSocket")) or 0) * (count_in(words.get("Sockets")) or 0),
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
            tier=count_in(words.get("PriorityTier")) or 0,
            max_walltime=walltime_of(words.get("MaxTime", ""))[0],
            default_walltime=walltime_of(words.get("DefaultTime", ""))[0],
            max_nodes=count_in(words.get("MaxNodes")),
            groups=listed(words.get("AllowGroups")),
            accounts=listed(words.get("AllowAccounts")),
            qos=listed(words.get("AllowQos")),
            denied_accounts=listed(words.get("DenyAccounts")),
            denied_qos=listed(words.get("DenyQos")),
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
                name=name[:MAX_NAMES],
                start=start,
                end=end,
                users=_allowed(words.get("Users")),
                accounts=_allowed(words.get("Accounts")),
                denied_users=_denied(words.get("Users")),
                denied_accounts=_denied(words.get("Accounts")),
                cpus=resources_of(words.get("TRES", "")).cpus or count_in(words.get("CoreCnt")),
                maintenance="MAINT" in words.get("Flags", "").upper().split(","),
            )
            kept.append((reservation, hosts(words.get("Nodes"))))
    return kept


def _allowed(text: str | None) -> list[str] | None:
    """The names of a list that are not excluded by a minus sign."""
    return [name for name in listed(text) or () if not name.startswith("-")] or None


def _denied(text: str | None) -> list[str] | None:
    """The names of a list that a minus sign excludes: `-bob,-eve`."""
    return [name[1:] for name in listed(text) or () if name.startswith("-") and len(name) > 1] or None


_columns = partial(str.split, sep="|")

READERS: dict[str, tuple[Callable[[str], Any], Callable[[Any], list[Any]]]] = {
    "nodes": (pairs_of, nodes_of),
    "partitions": (pairs_of, partitions_of),
    "reservations": (pairs_of, reservations_of),
    "qos": (_columns, limits_of_qos),
    "associations": (_columns, limits_of_associations),
}


def read_text(what: str, text: str) -> list[Any]:
    """Parse nodes, partitions, reservations, or limits of QOS or associations, one per line."""
    words, read = READERS[what]
    return read(map(words, text.splitlines()))


def _time(text: str | None) -> float | None:
    return time_of(float(text)) if text and text.isdecimal() else iso_time(text)


_NODE = by_name(
    "NodeName:name State:state CPUEfctv:effective_cpus CPUTot:cpus RealMemory:real_memory Gres:gres"
    " Partitions:partitions Weight:weight ActiveFeatures:active_features CoresPerSocket:cores Sockets:sockets"
)
_PARTITION = by_name(
    "PartitionName:name State:partition.state,state Flags:flags MaxTime:maximums.time,max_time_limit"
    " DefaultTime:defaults.time,default_time_limit"
    " MaxNodes:maximums.nodes,maximum_nodes_per_job PriorityTier:priority.tier,priority_tier"
    " AllowGroups:groups.allowed AllowAccounts:accounts.allowed DenyAccounts:accounts.deny AllowQos:qos.allowed"
    " DenyQos:qos.deny QoS:qos.assigned,qos"
)
_RESERVATION = by_name(
    "ReservationName:name StartTime:start_time EndTime:end_time Nodes:node_list Users:users Accounts:accounts"
    " Flags:flags TRES:tres CoreCnt:core_count"
)
"""Paths of scontrol's keys in JSON; the first existing one is used."""

_QOS = by_name(
    "name limits.max.tres.total limits.max.active_jobs.count limits.max.tres.per.user"
    " limits.max.jobs.active_jobs.per.user limits.max.tres.per.account limits.max.jobs.active_jobs.per.account"
)
_ASSOCIATION = by_name("cluster account user parent_account max.tres.total max.jobs.per.count max.jobs.active")
"""Paths of the columns requested from sacctmgr."""


_PLACES = {
    "nodes": _NODE,
    "partitions": _PARTITION,
    "reservations": _RESERVATION,
    "qos": _QOS,
    "associations": _ASSOCIATION,
}


def read_json(what: str, data: bytes) -> list[Any]:
    """Parse a JSON document as `read_text`.

    Raises:
        ValueError: it is not such a document.
    """
    document = msgspec.json.decode(data, type=dict[str, Any])
    found = document.get(what, document.get(what.upper()))  # up to v0.0.38 it is QOS
    if not isinstance(found, list):
        raise ValueError(f"the document has no list of {what}")
    words = [{word: _at(one, place) for word, place in _PLACES[what].items()} for one in found]
    if what in ("qos", "associations"):
        return READERS[what][1](list(one.values()) for one in words)
    return READERS[what][1]({word: text for word, text in one.items() if text} for one in words)


def _at(found: object, places: str) -> str:
    """Return the value at the first existing place, as text."""
    for place in places.split(","):
        *above, last = place.split(".")
        value = object_at(found, *above).get(last)
        if value is not None:
            return text_of(value)
    return ""
