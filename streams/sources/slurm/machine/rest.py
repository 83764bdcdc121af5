"""The machine as slurmrestd of any release tells it, put into the words that scontrol and sacctmgr use."""

from typing import Any

import msgspec

from streams.sources.logs.fields import by_name, inside
from streams.sources.slurm.machine.text import READERS
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


_PLACES = {
    "nodes": _NODE,
    "partitions": _PARTITION,
    "reservations": _RESERVATION,
    "qos": _QOS,
    "associations": _ASSOCIATION,
}


def read_json(what: str, data: bytes) -> list[Any]:
    """As `read_text`, of a document.

    Raises:
        ValueError: it is none.
    """
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
