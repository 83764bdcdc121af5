"""Simulation model of an area: its rooms (groups of nodes), their capacity over time, and whether a job fits."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit
from models.records import Reservation
from models.site.topology.refusals import applies
from models.site.topology.topology import RESOURCES, Area, ResourceRequest, Topology, whole_nodes

WHOLE = 1.0 - 1e-9  # minimum sum of the shares of a job that fits, because of rounding


def warm_up() -> None:
    """Compile the functions that are needed only with reservations, or for placement on single nodes."""
    room = np.zeros((1, 1))
    fit(room, room, np.zeros(1))
    fit_parts(room, room, np.zeros(1, np.int64), np.zeros(1))


@njit(cache=True)
def fit(free: Floats, demand: Floats, shares: Floats) -> bool:
    """Compute the share of a job that each room takes, (rooms,), the first rooms first. O(rooms).

    Args:
        free: the free resources, (rooms, resources); below 0 counts as 0.
        demand: the job's demand if it is in this room only, (rooms, resources); below 0 if it may not be there.
        shares: the output.

    Returns:
        Whether the whole job fits.
    """
    remaining = 1.0
    for room in range(len(demand)):
        shares[room] = 0.0
        if remaining <= 0.0 or demand[room, 0] < 0.0:
            continue
        share = remaining
        for resource in range(demand.shape[1]):
            wanted = demand[room, resource]
            if wanted > 0.0 and wanted * share > free[room, resource]:
                share = max(free[room, resource], 0.0) / wanted
        shares[room] = share
        remaining -= share
    return remaining <= 1.0 - WHOLE


@njit(cache=True)
def fit_parts(free: Floats, demand: Floats, parts: Ints, shares: Floats) -> bool:
    """Do the same as `fit` for a job whose parts, such as tasks, each need one room.

    The placement is that of most schedulers: all parts in the fullest room that can hold them, else in the rooms that
    can hold the most. O(rooms), times the number of rooms used.

    Args:
        parts: the number of parts if they are in this room, (rooms,), negative if no two may share a room; 0 in all
            rooms for a divisible job.
    """
    if parts[0] == 0:
        whole: bool = fit(free, demand, shares)
        return whole
    fullest, together = -1, 0.0
    for room in range(len(demand)):
        shares[room] = 0.0
        if demand[room, 0] < 0.0:
            continue
        count = abs(parts[room])
        most = 1 if parts[room] < 0 else count
        for resource in range(demand.shape[1]):
            wanted = demand[room, resource]
            if wanted > 0.0:
                holds = max(free[room, resource], 0.0) * count / wanted + 1.0 - WHOLE
                most = int(holds) if holds < most else most
        shares[room] = most / count
        together += shares[room]
        if most == count and (fullest < 0 or free[room, 0] < free[fullest, 0]):
            fullest = room
    if fullest >= 0:
        for room in range(len(shares)):
            shares[room] = 1.0 if room == fullest else 0.0
        return True
    if together >= WHOLE:
        _keep_largest(shares)
        return True
    return False


@njit(cache=True)
def _keep_largest(shares: Floats) -> None:
    """Keep the largest of shares that sum up to one or more, of equal ones the first, until they sum up to one."""
    remaining = 1.0
    for _ in range(len(shares)):
        largest = 0
        for room in range(len(shares)):
            if shares[room] > shares[largest]:
                largest = room
        share = min(shares[largest], remaining)
        shares[largest] = -share  # marks it as kept: it is now less than all others
        remaining -= share
        if remaining <= 1.0 - WHOLE:
            break
    for room in range(len(shares)):
        shares[room] = max(-shares[room], 0.0)


MAX_RESERVATIONS = 12  # maximum number of reservations per area, the earliest ones
MAX_NODES = 64  # maximum number of nodes of an area for placement on single nodes
MAX_KNOWN = 4096  # size of the caches of requests


class NodeGroup(NamedTuple):
    """Nodes of a pool (its index in the topology): all that are not reserved, or those of a reservation."""

    pool: int
    reservation: Reservation | None


class RequestKind(NamedTuple):
    """Properties shared by all jobs with the same request.

    Attributes:
        demand: the demand in each room if a job is there only, (rooms, resources); -1 where it may not start.
        running: the same for a running job, whose partition may be down by now.
        parts: the number of parts in each room, (rooms,), as in `fit_parts`.
        counted: the amounts that limits count: CPUs, GPUs, nodes, bytes, jobs.
        longest_s: the maximum run time.
    """

    demand: Floats
    running: Floats
    parts: Ints
    partitions: tuple[str, ...]
    tier: int
    longest_s: float
    counted: Floats


class Timeline(NamedTuple):
    """Capacity of the rooms over time: `holds` (times, rooms, resources) from each of `begins` on.

    `begins` are seconds from now, ascending from 0.
    """

    begins: Floats
    holds: Floats


class Nodes(NamedTuple):
    """The nodes of an area, (nodes,): the `room` of each, and its `number` there.

    The site does not report which nodes are down or reserved; the model uses the last ones of each room.
    """

    room: Ints
    number: Ints


class Layout:
    """The rooms of an area: its pools in their order, then those of reservations with users.

    If there are few `nodes`, each node is modelled as a separate room.
    """

    def __init__(self, topology: Topology, area: Area) -> None:
        self.topology = topology
        self.area = area
        reservations = sorted(topology.reservations, key=lambda one: (one.start, one.end))
        self._reservations = [one for one in reservations if self._pools(one)][:MAX_RESERVATIONS]
        self.rooms = tuple(NodeGroup(place, None) for place in area.pools)
        for one in self._reservations:
            if not one.maintenance:
                self.rooms += tuple(NodeGroup(place, one) for place in self._pools(one))
        self.nodes = self._room_nodes()
        self.kind = lru_cache(MAX_KNOWN)(self._kind)
        self.limits = lru_cache(MAX_KNOWN)(self._limits)

    def _kind(self, request: ResourceRequest) -> RequestKind:
        """Return the properties of jobs with this request; `kind` caches them, as `limits` caches `_limits`."""
        demand, topology = self._demand(request, False), self.topology
        possible = np.flatnonzero(demand[:, 0] >= 0.0)
        cpus, gpus, memory = (
            demand[possible[0]].tolist() if len(possible) else (request.cpus, request.gpus, request.memory)
        )
        nodes = request.nodes or 1
        if request.exclusive and len(possible):
            nodes = whole_nodes(request, topology.node_of(self.rooms[possible[0]].pool))
        counted = np.array([cpus, gpus, nodes, max(memory, request.memory), 1.0])
        partitions, longest_s = topology.named(request), topology.longest_s(request)
        running, parts = self._demand(request, True), self._parts(request)
        return RequestKind(demand, running, parts, partitions, topology.tier(request), longest_s, counted)

    def _demand(self, request: ResourceRequest, runs: bool) -> Floats:
        """Return the demand in each room: those of its reservation, if known, else those of partitions that are up."""
        topology = self.topology
        names = [name for name in topology.named(request) if runs or topology.partitions[name].up]
        places = {place for name in names for place in topology.pools_of(name)}
        possible = {place for place in places if topology.is_possible(request, place)}
        places = possible or (places if runs else set())
        inside = {one.name for one in self._reservations if not one.maintenance and one.cpus is None} & {
            request.reservation
        }
        found = np.full((len(self.rooms), len(RESOURCES)), -1.0)
        for number, (place, reservation) in enumerate(self.rooms):
            named = reservation is None if not inside else reservation is not None and reservation.name in inside
            if named and place in places:
                found[number] = np.where(np.isfinite(topology.node_of(place)), topology.demand(request, place), 0.0)
        return found

    def _parts(self, request: ResourceRequest) -> Ints:
        """Return the number of parts of a job in each room; 0 in all if some part exceeds a node.

        The parts are the requested nodes or whole nodes, else its tasks, else its GPUs with their share of the CPUs,
        else its CPUs.
        """
        found, topology = np.zeros(len(self.rooms), np.int64), self.topology
        wanted = np.array([request.cpus, request.gpus, request.memory], np.float64)
        for number, room in enumerate(self.rooms):
            node = topology.node_of(room.pool)
            if request.exclusive:
                found[number] = -whole_nodes(request, node)
            elif request.nodes is not None:
                found[number] = -request.nodes
            else:
                found[number] = request.tasks or request.gpus or request.cpus
            if topology.is_possible(request, room.pool) and np.any(wanted > abs(found[number]) * node):
                return np.zeros_like(found)
        return found

    def _limits(
        self, request: ResourceRequest, user: str | None, account: str | None
    ) -> tuple[tuple[int, str | None], ...]:
        """Return the limits that apply to a job: the number of each, and the name whose jobs it counts together."""
        named = self.topology.named(request)
        whose = {"user": user, "account": account, "group": request.group}
        return tuple(
            (number, whose.get(limit.per))
            for number, limit in enumerate(self.topology.limits)
            if applies(limit, user, account, request, named)
            and (limit.per == "all" or whose.get(limit.per) is not None)
        )

    def total_resources(self, by_node: bool = False) -> Floats:
        """Return the total resources of the rooms or (`by_node`) nodes, (rooms, resources), including down and reserved
        nodes.
        """
        if by_node and self.nodes is not None:
            return self._node_of_each()[self.nodes.room]
        return np.array([self.topology.all_of(room.pool) for room in self.rooms]).reshape(-1, len(RESOURCES))

    def timeline(self, now: float, by_node: bool = False) -> Timeline:
        """Return the capacity of the rooms or (`by_node`) nodes from `now` on, with down nodes and reservations."""
        ahead = [one for one in self._reservations if one.end > now]
        times = {now, *(one.start for one in ahead), *(one.end for one in ahead)}
        begins = np.array(sorted(time for time in times if time >= now))
        nodes = np.array([[self._nodes(room, time) for room in self.rooms] for time in begins.tolist()], np.float64)
        each = self._node_of_each()
        if by_node and self.nodes is not None:
            each = each[self.nodes.room]
            nodes = (nodes[:, self.nodes.room] > self.nodes.number).astype(np.float64)
        holds = np.zeros((len(begins), *each.shape))
        np.multiply(nodes[:, :, None], each, out=holds, where=nodes[:, :, None] > 0.0)
        return Timeline(begins - now, holds)

    def _node_of_each(self) -> Floats:
        return np.array([self.topology.node_of(room.pool) for room in self.rooms]).reshape(-1, len(RESOURCES))

    def _room_nodes(self) -> Nodes | None:
        """Return the nodes of the rooms; None if there are too many."""
        counts = [
            self.topology.pools[place].nodes if one is None else self._taken(one, place) for place, one in self.rooms
        ]
        if sum(counts) > MAX_NODES:
            return None
        room = np.repeat(np.arange(len(counts)), counts)
        return Nodes(room, np.concatenate([np.arange(count) for count in (*counts, 0)]))

    def earliest_s(self, request: ResourceRequest, planned_s: float, now: float) -> float:
        """Return the seconds from `now` before which the declared reservations prevent such a job from starting.

        0 also if they would always prevent it: then they do not determine its start.
        """
        if not any(one.end > now for one in self._reservations):
            return 0.0
        begins, holds = self.timeline(now)
        demand, shares = self.kind(request).demand, np.zeros(len(self.rooms))
        for begin in begins.tolist():
            before = (begins < begin + planned_s) | (begins == begin)  # a run time of 0 is unknown
            during = before & (np.append(begins[1:], np.inf) > begin)
            if fit(holds[during].min(axis=0), demand, shares):
                return float(begin)
        return 0.0

    def _pools(self, reservation: Reservation) -> list[int]:
        names, pools = set(reservation.pools), self.topology.pools
        return [place for place in self.area.pools if not names or pools[place].name in names]

    def _nodes(self, room: NodeGroup, time: float) -> int:
        pool, available = self.topology.pools[room.pool], self.topology.available_nodes(room.pool)
        if room.reservation is not None:
            return min(self._taken(room.reservation, room.pool), available) if _is_on(room.reservation, time) else 0
        here = [one for one in self._reservations if room.pool in self._pools(one)]
        reported_at = self.topology.capacity.time
        # Nodes that are reserved by an unknown reservation stay reserved.
        others = pool.reserved_nodes - sum(self._taken(one, room.pool) for one in here if _is_on(one, reported_at))
        reserved = sum(self._taken(one, room.pool) for one in here if _is_on(one, time))
        return max(available - reserved - max(others, 0), 0)

    def _taken(self, reservation: Reservation, place: int) -> int:
        nodes, cpus = self.topology.pools[place].nodes, self.topology.pools[place].cpus
        if reservation.cpus is not None:
            return min(reservation.cpus // max(cpus, 1), nodes)
        return nodes if reservation.nodes is None else min(reservation.nodes, nodes)


def _is_on(reservation: Reservation, time: float) -> bool:
    return reservation.start <= time < reservation.end
