"""What Slurm says of its nodes, partitions, reservations and limits, as one event: the machine's size."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import msgspec

from models.records import Capacity, Limit, Partition, Pool, Reservation
from streams.sources.slurm.rows import MAX_NAME, NO_RESOURCES, Resources, gres_of, name_of, resources_of

QOS_COLUMNS = ("Name", "GrpTRES", "GrpJobs", "MaxTRESPU", "MaxJobsPU", "MaxTRESPA", "MaxJobsPA")
ASSOCIATION_COLUMNS = ("Cluster", "Account", "User", "ParentName", "GrpTRES", "GrpJobs", "MaxJobs")
"""What `sacctmgr --noheader --parsable2 show … format=…` is asked for."""


class Most(NamedTuple):
    """So much, and so many jobs, may run at once; None where that is not limited."""

    resources: Resources = NO_RESOURCES
    jobs: int | None = None

    @classmethod
    def read(cls, resources: str, *jobs: str) -> Self:
        """From sacctmgr's words; of several numbers of jobs the least counts."""
        return cls(resources_of(resources), min((int(one) for one in jobs if one.isdecimal()), default=None))

    def of(self, per: str, name: str | None = None, qos: str | None = None) -> Iterator[Limit]:
        """The limit, if there is one."""
        whose = Limit(per=per, name=name and name[:MAX_NAME], qos=qos and qos[:MAX_NAME])
        found = self.resources
        limit = msgspec.structs.replace(
            whose, cpus=found.cpus, gpus=found.gpus or None, nodes=found.nodes, memory=found.memory, jobs=self.jobs
        )
        if limit != whose:
            yield limit


def limits_of_qos(rows: Iterable[list[str]]) -> list[Limit]:
    """The limits of qualities of service, from `QOS_COLUMNS`."""
    found: list[Limit] = []
    for row in rows:
        if len(row) == len(QOS_COLUMNS) and row[0]:
            for per, *most in (("all", *row[1:3]), ("user", *row[3:5]), ("account", *row[5:7])):
                found += Most.read(*most).of(per, qos=row[0])
    return found


def limits_of_associations(rows: Iterable[list[str]]) -> list[Limit]:
    """The limits of the root, of accounts without accounts below them, and of users of one account alone, from
    `ASSOCIATION_COLUMNS`; MaxJobs is of a user, and an account's only what its users inherit.

    An event cannot say those of the others. Of several clusters none is told: it is not known which is this one.
    """
    known = [row for row in rows if len(row) == len(ASSOCIATION_COLUMNS) and row[1]]
    if len({row[0] for row in known}) > 1:
        return []
    parents, users = {row[3] for row in known}, dict[str, list[Most]]()
    limits: list[Limit] = []
    for _, account, user, parent, resources, together, each_jobs in known:
        if user:
            users.setdefault(user, []).append(Most.read(resources, together, each_jobs))
        elif not parent:
            limits += Most.read(resources, together).of("all")
        elif account not in parents:
            limits += Most.read(resources, together).of("account", account)
    each = [own[0] if len(own) == 1 else Most() for own in users.values()]
    if each and all(most == each[0] for most in each):
        return [*limits, *each[0].of("user")]
    return [*limits, *(limit for user, most in zip(users, each, strict=True) for limit in most.of("user", user))]


def limits_of_partition(partition: Partition, qos: str | None, limits: Iterable[Limit]) -> list[Limit]:
    """What the QOS of a partition, which counts for all jobs in it, limits there."""
    return [
        msgspec.structs.replace(limit, partition=partition.name, qos=None)
        for limit in limits
        if qos is not None and limit.qos == qos
    ]


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
