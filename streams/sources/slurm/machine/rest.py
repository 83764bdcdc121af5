"""The machine as slurmrestd tells it: nodes, partitions, reservations, in the shapes of all releases."""

import msgspec

from models.records import Partition, Reservation
from streams.sources.logs.fields import Object, inside
from streams.sources.slurm.json_jobs.accounting_job import Tres, resources_of_list
from streams.sources.slurm.machine.capacity import Node, gpus_of, hosts, listed, reservation_of, state_of
from streams.sources.slurm.machine.limits import Association, Most, Qos
from streams.sources.slurm.rows import MIB, count_of, name_of, time_of
from streams.sources.slurm.shapes import Number, Words, is_infinite, number_of, words_of


class _Node(msgspec.Struct, frozen=True):
    name: str
    state: Words = None
    cpus: Number = None
    effective_cpus: Number = None
    real_memory: Number = None
    gres: str | None = None
    partitions: list[str] = []
    weight: Number = None


class _Nodes(msgspec.Struct, frozen=True):
    nodes: list[_Node]


class _Allowed(msgspec.Struct, frozen=True):
    allowed: str | None = None
    deny: str | None = None
    assigned: str | None = None


class _Maximums(msgspec.Struct, frozen=True):
    time: Number = None
    nodes: Number = None


class _Priority(msgspec.Struct, frozen=True):
    tier: Number = None


class _State(msgspec.Struct, frozen=True):
    state: Words = None


class _Partition(msgspec.Struct, frozen=True):
    name: str
    maximums: _Maximums = _Maximums()
    priority: _Priority = _Priority()
    groups: _Allowed = _Allowed()
    accounts: _Allowed = _Allowed()
    qos: _Allowed | str | None = None
    partition: _State | None = None
    state: Words = None
    flags: Words = None
    max_time_limit: Number = None
    maximum_nodes_per_job: Number = None
    priority_tier: Number = None


class _Partitions(msgspec.Struct, frozen=True):
    partitions: list[_Partition]


class _Reservation(msgspec.Struct, frozen=True):
    name: str
    start_time: Number = None
    end_time: Number = None
    node_list: str | None = None
    users: str | None = None
    accounts: str | None = None
    flags: Words = None


class _Reservations(msgspec.Struct, frozen=True):
    reservations: list[_Reservation]


class _Qos(msgspec.Struct, frozen=True):
    name: str
    limits: Object = {}


class _AllQos(msgspec.Struct, frozen=True):
    qos: list[_Qos]


class _Association(msgspec.Struct, frozen=True):
    account: str
    user: str = ""
    cluster: str = ""
    parent_account: str | None = None
    max: Object = {}


class _Associations(msgspec.Struct, frozen=True):
    associations: list[_Association]


def nodes_from_json(data: bytes) -> list[Node]:
    """Nodes as slurmrestd tells them.

    Raises:
        ValueError: it is no such document.
    """
    found: list[Node] = []
    for node in msgspec.json.decode(data, type=_Nodes, strict=False).nodes:
        state, memory = state_of(words_of(node.state)), count_of(number_of(node.real_memory))
        if state is not None:
            found.append(
                Node(
                    name=node.name,
                    cpus=count_of(number_of(node.effective_cpus)) or count_of(number_of(node.cpus)) or 0,
                    state=state,
                    partitions=tuple(sorted(name for text in node.partitions if (name := name_of(text)))),
                    gpus=gpus_of(node.gres),
                    memory=None if memory is None else memory * MIB,
                    weight=number_of(node.weight) or 0.0,
                )
            )
    return found


def partitions_from_json(data: bytes) -> list[tuple[Partition, str | None]]:
    """Partitions as slurmrestd tells them, with no pools yet; each with its QOS.

    Raises:
        ValueError: it is no such document.
    """
    found: list[tuple[Partition, str | None]] = []
    for part in msgspec.json.decode(data, type=_Partitions, strict=False).partitions:
        if (name := name_of(part.name)) is None:
            continue
        longest = part.maximums.time if part.maximums.time is not None else part.max_time_limit
        most = part.maximums.nodes if part.maximums.nodes is not None else part.maximum_nodes_per_job
        minutes = None if is_infinite(longest) else number_of(longest)
        tier = number_of(part.priority.tier if part.priority.tier is not None else part.priority_tier)
        states = words_of(part.partition.state if part.partition else part.state)
        qos = part.qos if isinstance(part.qos, _Allowed) else _Allowed(assigned=part.qos)
        partition = Partition(
            name=name,
            pools=[],
            up="UP" in states or not states,
            default="DEFAULT" in words_of(part.flags),
            tier=int(tier or 0),
            max_walltime=minutes * 60.0 if minutes else None,
            max_nodes=None if is_infinite(most) else count_of(number_of(most)),
            groups=listed(part.groups.allowed),
            accounts=listed(part.accounts.allowed),
            qos=listed(qos.allowed),
            denied_accounts=listed(part.accounts.deny),
            denied_qos=listed(qos.deny),
        )
        found.append((partition, name_of(qos.assigned)))
    return found


def reservations_from_json(data: bytes) -> list[tuple[Reservation, list[str]]]:
    """Reservations as slurmrestd tells them, each with its nodes.

    Raises:
        ValueError: it is no such document.
    """
    found: list[tuple[Reservation, list[str]]] = []
    for one in msgspec.json.decode(data, type=_Reservations, strict=False).reservations:
        start, end = time_of(number_of(one.start_time)), time_of(number_of(one.end_time))
        if one.name and start is not None and end is not None:
            found.append(
                (
                    reservation_of(one.name, start, end, one.users, one.accounts, words_of(one.flags)),
                    hosts(one.node_list),
                )
            )
    return found


def qos_from_json(data: bytes) -> list[Qos]:
    """Qualities of service as slurmrestd tells them.

    Raises:
        ValueError: it is no such document.
    """
    found: list[Qos] = []
    for one in msgspec.json.decode(data, type=_AllQos, strict=False).qos:
        tres, jobs = inside(one.limits, "max", "tres"), inside(one.limits, "max", "jobs", "active_jobs", "per")
        each = inside(tres, "per")
        whole = _most(tres.get("total"), inside(one.limits, "max", "active_jobs").get("count"))
        user, account = (_most(each.get(whose), jobs.get(whose)) for whose in ("user", "account"))
        found.append(Qos(one.name, whole, user, account))
    return found


def associations_from_json(data: bytes) -> list[Association]:
    """Associations as slurmrestd tells them.

    Raises:
        ValueError: it is no such document.
    """
    found: list[Association] = []
    for one in msgspec.json.decode(data, type=_Associations, strict=False).associations:
        together = inside(one.max, "jobs", "per").get("count")
        each = inside(one.max, "jobs").get("active") if one.user else None
        most = _most(inside(one.max, "tres").get("total"), together, each)
        found.append(Association(one.cluster, one.account, one.user, one.parent_account or "", most))
    return found


def _most(tres: object, *jobs: object) -> Most:
    shaped = [msgspec.convert(one, Number, strict=False) for one in jobs]
    counts = [int(number) for one in shaped if not is_infinite(one) and (number := number_of(one)) is not None]
    return Most(resources_of_list(msgspec.convert(tres, list[Tres] | None, strict=False)), min(counts, default=None))
