"""The machine as slurmrestd tells it, in the shapes of all releases: put into the words that scontrol and sacctmgr use.

Each reader raises ValueError where it is given no such document.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from models.records import Partition, Reservation
from streams.sources.logs.fields import by_name, inside
from streams.sources.slurm.machine.capacity import Node
from streams.sources.slurm.machine.limits import Association, Qos
from streams.sources.slurm.machine.text import associations_of, nodes_of, partitions_of, qos_of, reservations_of
from streams.sources.slurm.shapes import text_of

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


def nodes_from_json(data: bytes) -> list[Node]:
    """Nodes."""
    return nodes_of(_words(data, "nodes", _NODE))


def partitions_from_json(data: bytes) -> list[tuple[Partition, str | None]]:
    """Partitions, with no pools yet; each with its QOS."""
    return partitions_of(_words(data, "partitions", _PARTITION))


def reservations_from_json(data: bytes) -> list[tuple[Reservation, list[str]]]:
    """Reservations, each with its nodes."""
    return reservations_of(_words(data, "reservations", _RESERVATION))


def qos_from_json(data: bytes) -> list[Qos]:
    """Qualities of service."""
    return qos_of([_at(one, place) for place in _QOS] for one in _listed(data, "qos"))


def associations_from_json(data: bytes) -> list[Association]:
    """Associations."""
    return associations_of([_at(one, place) for place in _ASSOCIATION] for one in _listed(data, "associations"))


def _listed(data: bytes, what: str) -> list[Any]:
    found = msgspec.json.decode(data, type=dict[str, Any]).get(what)
    if not isinstance(found, list):
        raise ValueError(f"there is no list of {what} in it")
    return found


def _words(data: bytes, what: str, places: dict[str, str]) -> Iterator[dict[str, str]]:
    for one in _listed(data, what):
        yield {word: text for word, place in places.items() if (text := _at(one, place))}


def _at(found: object, places: str) -> str:
    """What stands at the first of some places, as text."""
    for place in places.split(","):
        *above, last = place.split(".")
        value = inside(found, *above).get(last)
        if value is not None:
            return text_of(value)
    return ""
