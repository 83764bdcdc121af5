"""Pools, partitions and areas of a site, from its last capacity event, and the resource requests of jobs."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from models.arrays import Floats
from models.records import Capacity, Limit, Partition, Pool, Reservation
from models.site.job import Job
from models.site.size import MAX_CPUS


class ResourceRequest(NamedTuple):
    """Request of a job without its times, user and account; many jobs have the same request.

    `partitions` are the names of those where it may start, if it names any. Memory is bytes of the whole job.
    """

    partitions: tuple[str, ...] = ()
    cpus: int = 1
    nodes: int | None = None
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    memory: int = 0
    exclusive: bool = False
    group: str | None = None
    qos: str | None = None
    reservation: str | None = None
    tasks: int | None = None
    node_features: tuple[tuple[str, ...], ...] = ()


def request_of(job: Job, partition: str | None = None, cpus: int | None = None) -> ResourceRequest:
    """Return the request of a job, of a running one with its `partition`; `cpus` replaces the requested CPUs."""
    rare = job.extras
    types = rare.gpu_types or {}
    if partition is not None:
        named: tuple[str, ...] = (partition,)
    elif rare.partitions:
        named = tuple(rare.partitions)
    else:
        named = () if job.queue is None else (job.queue,)
    return ResourceRequest(
        named,
        cpus or job.requested_cpus or job.cpus,
        job.nodes or None,
        max(job.gpus, sum(types.values())),
        tuple(sorted(types)),
        job.memory or 0,
        rare.exclusive,
        job.group,
        rare.qos,
        rare.reservation,
        rare.tasks or None,
        tuple(map(tuple, rare.node_features or ())),
    )


RESOURCES = ("cpus", "gpus", "memory")  # resources of a pool, in the order of the vectors here
CPUS, GPUS, MEMORY = range(len(RESOURCES))  # their indexes in a vector
ANY = Partition(name="", pools=[])  # the partition of a site without partitions, with all pools


class Area(NamedTuple):
    """Partitions that are connected by shared pools; jobs of two areas do not compete.

    `pools` are indexes into `Topology.pools`. `cpus`, `gpus` (of all types), `memory` (bytes, None if a pool does not
    state it) and `nodes` are those of all nodes; `down_nodes` counts those that are down or drained.
    """

    number: int
    pools: tuple[int, ...]
    partitions: tuple[str, ...]
    cpus: int
    gpus: int
    memory: int | None
    nodes: int
    down_nodes: int


class Topology:
    """Topology of a site, created for each capacity event in O(pools x partitions).

    `pools` are in their declared order, in which jobs use them. `partitions` are by name; unknown pools of them are
    ignored. A pool without a partition is in no area.
    """

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.pools: tuple[Pool, ...] = tuple({pool.name: pool for pool in capacity.pools}.values())
        self.partitions: dict[str, Partition] = {one.name: one for one in capacity.partitions} or {ANY.name: ANY}
        self.limits: Sequence[Limit] = capacity.limits
        self.reservations: Sequence[Reservation] = capacity.reservations
        places = {pool.name: place for place, pool in enumerate(self.pools)}
        self._pools_of = {
            name: tuple(sorted({places[pool] for pool in one.pools if pool in places}))
            for name, one in self.partitions.items()
        }
        if not capacity.partitions:
            self._pools_of[ANY.name] = tuple(range(len(self.pools)))
        self.areas: tuple[Area, ...] = tuple(self._make_areas())
        self._area_of = {name: area.number for area in self.areas for name in area.partitions}
        defaults = tuple(name for name, one in self.partitions.items() if one.default)
        self._usual = defaults or tuple(self.partitions)
        self.features = frozenset(name for pool in self.pools for name in pool.node_features)

    @classmethod
    def of(cls, capacity: Capacity | None) -> "Topology | None":
        """Create the topology of a capacity event; None if it contains no pools, only a number of CPUs.

        >>> gpu = Pool(name="gpu", nodes=2, cpus=32, gpus={"a100": 4})
        >>> topology = Topology.of(Capacity(site="s", time=0.0, cpus=64, pools=[gpu]))
        >>> topology.areas[0].gpus
        8
        """
        return cls(capacity) if capacity is not None and capacity.pools else None

    def same_areas(self, other: "Topology") -> bool:
        """Return whether both have equal areas of the same size; down nodes, limits and reservations may differ."""
        sizes, others = ([_request_properties(pool) for pool in one.pools] for one in (self, other))
        mine, its = list(self._pools_of.items()), list(other._pools_of.items())
        return sizes == others and mine == its and self._usual == other._usual

    def named(self, request: ResourceRequest) -> tuple[str, ...]:
        """Return the names of the partitions where jobs with this request may start; never empty.

        These are the existing ones among the requested partitions, or the one with the queue's name. Otherwise they are
        the default partitions, or all without a default.
        """
        return tuple(name for name in request.partitions if name in self.partitions) or self._usual

    def pools_of(self, partition: str) -> tuple[int, ...]:
        """Return the indexes of a partition's pools in `pools`."""
        return self._pools_of[partition]

    def area_of(self, request: ResourceRequest) -> Area:
        """Return the area where jobs with this request compete: that of their first partition."""
        return self.areas[self._area_of[self.named(request)[0]]]

    def areas_of(self, request: ResourceRequest) -> list[Area]:
        """Return all areas where jobs with this request may start, that of their first partition first."""
        return [self.areas[number] for number in dict.fromkeys(self._area_of[name] for name in self.named(request))]

    def available_nodes(self, place: int) -> int:
        """Return the number of nodes of a pool that are neither down nor drained, including reserved ones."""
        pool = self.pools[place]
        return max(pool.nodes - pool.down_nodes - pool.drained_nodes, 0)

    def node_of(self, place: int, types: Sequence[str] = ()) -> Floats:
        """Return the resources of one node of a pool, (resources,); GPUs of these types only, if any are named."""
        pool = self.pools[place]
        gpus = sum(count for name, count in pool.gpus.items() if not types or name in types)
        return np.array([pool.cpus, gpus, np.inf if pool.memory is None else pool.memory], np.float64)

    def all_of(self, place: int, types: Sequence[str] = ()) -> Floats:
        """Return the resources of all nodes of a pool, as in `node_of`; zeros without nodes."""
        nodes = self.pools[place].nodes
        return nodes * self.node_of(place, types) if nodes else np.zeros(len(RESOURCES))

    def demand(self, request: ResourceRequest, place: int) -> Floats:
        """Return the demand of a job that runs in this pool only, (resources,): CPUs, GPUs, bytes.

        An exclusive job takes all resources of its nodes.
        """
        wanted = np.array([request.cpus, request.gpus, request.memory], np.float64)
        if not request.exclusive:
            return wanted
        node = self.node_of(place)
        whole: Floats = whole_nodes(request, node) * node
        return np.where(np.isfinite(whole), np.maximum(whole, wanted), wanted)

    def is_possible(self, request: ResourceRequest, place: int) -> bool:
        """Return whether single nodes of this pool satisfy the job's needs per node."""
        pool = self.pools[place]
        has = set(pool.node_features)
        if request.node_features and not any(self.features & set(one) <= has for one in request.node_features):
            return False
        if request.gpu_types and not any(name in pool.gpus for name in request.gpu_types):
            return False
        node = self.node_of(place, request.gpu_types)
        wanted = np.array([request.cpus, request.gpus, request.memory], np.float64)
        if request.nodes is not None:
            wanted = np.ceil(wanted / request.nodes)
        return bool(np.all(wanted <= node if request.nodes is not None else (wanted == 0.0) | (node > 0.0)))

    def size_in(self, request: ResourceRequest, area: Area) -> int:
        """Return the dominant share of a request in an area, in CPUs: the CPUs in proportion to its scarcest resource.

        So a job for half of the GPUs is as large as one for half of the CPUs. All nodes count, including those that are
        down. The result is at least 1; a job that can never run there may request any share, and counts as at most
        `MAX_CPUS`.
        """
        named = {place for name in self.named(request) for place in self._pools_of[name]}
        pools = [one for one in area.pools if one in named and self.is_possible(request, one)] or area.pools[:1]
        if not pools:
            return max(request.cpus, 1)
        totals = np.sum([self.all_of(one, request.gpu_types) for one in area.pools], axis=0)
        taken = zip(self.demand(request, pools[0]).tolist(), totals.tolist(), strict=True)
        sizes = (-(-int(wanted) * area.cpus // int(total)) for wanted, total in taken if wanted and 0 < total < np.inf)
        return min(max(request.cpus, *sizes, 1), MAX_CPUS)

    def longest_s(self, request: ResourceRequest) -> float:
        """Return the maximum run time of the job by its partitions; infinity if one of them has no limit."""
        limits = [self.partitions[name].max_walltime for name in self.named(request)]
        return max(np.inf if limit is None else limit for limit in limits)

    def default_s(self, request: ResourceRequest) -> float | None:
        """Return the time limit of a job that requests none; None if one of its partitions has no default."""
        limits = [self.partitions[name].default_walltime for name in self.named(request)]
        known = [limit for limit in limits if limit is not None]
        return max(known) if known and len(known) == len(limits) else None

    def tier(self, request: ResourceRequest) -> int:
        """Return the highest tier of its partitions: jobs of a higher tier go first."""
        return max(self.partitions[name].tier for name in self.named(request))

    def _make_areas(self) -> Iterable[Area]:
        joined = {name: name for name in self.partitions}
        first: dict[int, str] = {}
        for name, pools in self._pools_of.items():
            for place in pools:
                _join(joined, first.setdefault(place, name), name)
        members: dict[str, list[str]] = {}
        for name in self.partitions:
            members.setdefault(_root(joined, name), []).append(name)
        for number, names in enumerate(members.values()):
            places = tuple(sorted({place for name in names for place in self._pools_of[name]}))
            yield self._area(number, places, tuple(names))

    def _area(self, number: int, places: tuple[int, ...], names: tuple[str, ...]) -> Area:
        pools = [self.pools[place] for place in places]
        memory = [pool.memory for pool in pools]
        return Area(
            number,
            places,
            names,
            cpus=sum(pool.nodes * pool.cpus for pool in pools),
            gpus=sum(pool.nodes * sum(pool.gpus.values()) for pool in pools),
            memory=None
            if None in memory
            else sum(pool.nodes * (own or 0) for pool, own in zip(pools, memory, strict=True)),
            nodes=sum(pool.nodes for pool in pools),
            down_nodes=sum(pool.nodes - self.available_nodes(place) for pool, place in zip(pools, places, strict=True)),
        )


def _request_properties(pool: Pool) -> tuple[Any, ...]:
    """Return the properties of a pool that matter to requests, without the number of down nodes."""
    return pool.name, pool.nodes, pool.cpus, pool.gpus, pool.memory, pool.node_features


def whole_nodes(request: ResourceRequest, node: Floats) -> int:
    """Return the number of nodes that an exclusive job takes."""
    wanted = np.array([request.cpus, request.gpus, request.memory], np.float64)
    has = node > 0.0
    needed = int(np.ceil(wanted[has] / node[has]).max(initial=1.0))
    return max(request.nodes or 1, needed)


def _root(joined: dict[str, str], name: str) -> str:
    while joined[name] != name:
        joined[name] = joined[joined[name]]
        name = joined[name]
    return name


def _join(joined: dict[str, str], one: str, other: str) -> None:
    joined[_root(joined, other)] = _root(joined, one)
