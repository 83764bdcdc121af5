"""What Slurm says of its nodes, partitions, reservations and limits, as one event: the machine's size."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any

import msgspec

from models.records import Capacity, Limit, Partition, Pool, Reservation
from streams.sources.slurm.machine.limits import limits_of_partition
from streams.sources.slurm.rows import gres_of, name_of

MAX_POOLS = 256
MAX_BY_FEATURE = 32
"""With more pools than these, nodes of a pool may have different features."""

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


class Machine(msgspec.Struct):
    """What is known of a machine: its partitions, each with its QOS, have their `pools` filled in by `capacity_of`."""

    nodes: list[Node] = []
    partitions: list[tuple[Partition, str | None]] = []
    reservations: list[tuple[Reservation, list[str]]] = []
    limits: list[Limit] = []


def capacity_of(machine: Machine, site: str, time: float) -> Capacity | None:
    """The event; None where no node is known that a partition uses. Nodes of a pool are alike, as far as pools are few.

    A reservation that takes nodes of several pools is told once for each of these.
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
    limits = [limit for part, qos in machine.partitions for limit in limits_of_partition(part, qos, machine.limits)]
    return Capacity(
        site=site,
        time=time,
        cpus=sum(node.cpus for node in nodes),
        nodes=len(nodes),
        down_nodes=sum(node.state in (DOWN, DRAINED) for node in nodes),
        pools=pools,
        partitions=partitions,
        limits=[*limits, *machine.limits][:1024],
        reservations=list(_reservations(machine.reservations, place))[:256],
    )


def _alike(node: Node) -> tuple[Any, ...]:
    return node.partitions, node.cpus, tuple(sorted(node.gpus.items()))


def _grouped(nodes: Iterable[Node], key: Callable[[Node], Any]) -> list[list[Node]]:
    groups: dict[Any, list[Node]] = {}
    for node in nodes:
        groups.setdefault(key(node), []).append(node)
    return list(groups.values())


def _names(groups: list[list[Node]]) -> list[str]:
    """A pool's name is that of its partitions, with a number where several have the same."""
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


def _reservations(found: Iterable[tuple[Reservation, list[str]]], place: Mapping[str, str]) -> Iterator[Reservation]:
    for reservation, nodes in found:
        counts: dict[str, int] = {}
        for node in nodes:
            if node in place:
                counts[place[node]] = counts.get(place[node], 0) + 1
        for pool, count in sorted(counts.items()):
            yield msgspec.structs.replace(reservation, pools=[pool], nodes=count)


def state_of(words: Iterable[str]) -> str | None:
    """What a node is good for; None for one that is only planned."""
    known = {word.rstrip("~#!%$@^-") for word in words}
    if any(word.endswith("*") for word in known):
        known = {word.rstrip("*") for word in known} | {"NOT_RESPONDING"}
    if "FUTURE" in known:
        return None
    return next((state for state, of_it in _STATES.items() if known & of_it), UP)


def gpus_of(gres: str | None) -> dict[str, int]:
    """A node's GPUs by type."""
    return {kind or "gpu": count for kind, count in gres_of(gres or "").items()}


def listed(text: str | None) -> list[str] | None:
    """The names in a list; None where it is Slurm's word for all or none."""
    if not text or text in ("ALL", "(null)", "N/A"):
        return None
    return [name for part in text.split(",") if (name := name_of(part)) is not None][:MAX_NAMES] or None


_HOSTS = re.compile(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*")
_MAX_HOSTS = 100_000


def hosts(text: str | None) -> list[str]:
    """The nodes of `n[1-3,7],rack[01-02]-g[1-4]`; what is no such list is one name."""
    found: list[str] = []
    for part in _HOSTS.findall(text or ""):
        pieces = [_numbers(piece) if place % 2 else [piece] for place, piece in enumerate(re.split(r"[\[\]]", part))]
        for combined in product(*pieces):
            found.append("".join(combined))
            if len(found) >= _MAX_HOSTS:
                return found
    return [] if text in (None, "(null)") else found


def _numbers(text: str) -> list[str]:
    """The numbers of `01-03,7`, with their leading zeros."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if dash and first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MAX_HOSTS:
            found += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        else:
            found.append(part)
    return found
