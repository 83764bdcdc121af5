"""Placement of jobs in an area: on single nodes, where these are few enough, or in its pools."""

from collections.abc import Sequence

import numpy as np

from models.arrays import Codes, Floats, Ints
from models.site.table import RUNNING, LiveTable
from models.site.topology import ResourceRequest
from models.site.topology.layout import Layout, Nodes, RequestKind, fit_parts
from models.site.topology.topology import RESOURCES
from models.waits.order.pooled import occupied
from models.waits.order.room_kernels import PlacedJobs, in_use

MAX_PLACES = 40_000  # maximum of an area's nodes times its live jobs for a simulation on single nodes


def nodes_of(layout: Layout, table: LiveTable) -> Nodes | None:
    """Return the nodes of an area, if its live jobs are placed on single nodes; None if pools are used as a whole."""
    nodes = layout.nodes
    return None if nodes is None or len(nodes.room) * len(table.visible_rows().rows) > MAX_PLACES else nodes


def place_running_jobs(
    layout: Layout, nodes: Nodes | None, kinds: Sequence[RequestKind], kind: Ints, start: Floats, holds: Floats
) -> PlacedJobs:
    """Place running jobs in the rooms or on the nodes; O(jobs · rooms).

    On nodes they are placed in the order of their starts, first on nodes that are up.

    Args:
        kind: the places of their kinds in `kinds`; more kinds may follow, of jobs that do not run.
        start: their starts.
        holds: the current capacity of the rooms.
    """
    demand, parts = stacked(layout, nodes, [one.running for one in kinds]), in_parts(layout, nodes, kinds)
    places, begun = layout.total_resources()[None], np.arange(len(start))
    if nodes is not None:
        down = np.where(holds > 0.0, 0.0, layout.total_resources(by_node=True))
        places, begun = np.stack((holds, down)), np.argsort(start, kind="stable")
    shares = occupied(places, demand, parts, kind, begun)
    return PlacedJobs(shares, np.zeros((0, shares.shape[1])), kind, demand, demand)


def stacked(layout: Layout, nodes: Nodes | None, found: Sequence[Floats]) -> Floats:
    """Return the resources that kinds of jobs use of each room or node, (kinds, rooms, resources)."""
    by_room = np.array(found, np.float64).reshape(len(found), len(layout.rooms), len(RESOURCES))
    return by_room if nodes is None else by_room.take(nodes.room, axis=1)


def in_parts(layout: Layout, nodes: Nodes | None, kinds: Sequence[RequestKind]) -> Ints:
    """Return the number of parts of each kind of job on each node, (kinds, nodes); in pools any job is divisible."""
    if nodes is None:
        return np.zeros((len(kinds), len(layout.rooms)), np.int64)
    by_room = np.array([one.parts for one in kinds], np.int64).reshape(len(kinds), len(layout.rooms))
    return by_room.take(nodes.room, axis=1)


def distinct(codes: Codes | Ints, count: int) -> tuple[Ints, Ints]:
    """Return the different codes in ascending order, and the place of each code among them.

    O(codes + count), or O(codes · log codes) if `count` is large.

    Args:
        count: number of possible codes, from 0.
    """
    if count > 8 * len(codes) + 1024:
        found, place = np.unique(codes.astype(np.int64), return_inverse=True)
        return found, np.asarray(place, np.int64)
    is_used = np.zeros(count, np.bool_)
    is_used[codes] = True
    return np.flatnonzero(is_used), (np.cumsum(is_used) - 1)[codes]


class Vacancy:
    """Free resources of an area now (Unix seconds): on each node, or in each pool, as in simulated schedules.

    O(running jobs · nodes).
    """

    def __init__(self, layout: Layout, table: LiveTable, now: float) -> None:
        columns = table.columns()
        on = np.flatnonzero(columns.phase == RUNNING)
        codes, kind = distinct(columns.request[on], len(table.requests))
        kinds = [layout.kind(table.requests[code]) for code in codes.tolist()]
        self._layout, self._nodes = layout, nodes_of(layout, table)
        holds = layout.timeline(now, by_node=self._nodes is not None).holds[0]
        self._free = holds - in_use(place_running_jobs(layout, self._nodes, kinds, kind, columns.start[on], holds))

    def has_room(self, request: ResourceRequest) -> bool:
        """Return True if a job with this request fits, without regard to the queue."""
        kind = self._layout.kind(request)
        demand = stacked(self._layout, self._nodes, [kind.demand])[0]
        parts = in_parts(self._layout, self._nodes, [kind])[0]
        return bool(fit_parts(self._free, demand, parts, np.empty(len(parts))))
