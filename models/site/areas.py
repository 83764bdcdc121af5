"""The live jobs of a site by area. Methods see each area as a separate site."""

from copy import copy
from functools import lru_cache

from models.records import Capacity, JobKey
from models.site.job import Job
from models.site.state import SiteState
from models.site.topology import Area, ResourceRequest, Topology, request_of
from models.site.topology.layout import Layout

MAX_PLACED = 4096  # size of the cache of requests


class Areas:
    """One state per area, kept consistent with that of the whole site.

    A pending job belongs to the area of its first partition, a running job to that of its actual partition. There its
    `cpus` and `allocated` are its dominant share of the area (`Topology.size_in`). So code that compares CPUs compares
    the scarce resource. The states follow from the topology and from the order of the jobs in the whole state, so they
    are not stored. A job that moves to another area, and a capacity event that changes the areas, cost O(live jobs).
    """

    def __init__(self, topology: Topology, whole: SiteState) -> None:
        self.topology = topology
        self.states: list[SiteState] = []
        self._whole = whole
        self._where: dict[JobKey, int] = {}
        self._placed = lru_cache(MAX_PLACED)(self._place)
        self.layouts = [Layout(topology, area) for area in topology.areas]
        self._begin()
        whole.follower = self

    def take(self, topology: Topology) -> None:
        """Switch to another topology."""
        begin = not topology.same_areas(self.topology)
        self.topology = topology
        self.layouts = [Layout(topology, area) for area in topology.areas]
        if begin:
            self._placed.cache_clear()
            self._begin()

    def _begin(self) -> None:
        self.states = [SiteState() for _ in self.topology.areas]
        self._where.clear()
        for job in self._whole.jobs.values():
            self.enter(job)

    def _place(self, request: ResourceRequest) -> tuple[int, int]:
        """Return the area of jobs with this request, and their size there."""
        area = self.topology.area_of(request)
        return area.number, self.topology.size_in(request, area)

    def area_of(self, job: Job) -> Area:
        """Return the area of a job."""
        return self.topology.areas[self._placed(_request(job))[0]]

    def seen(self, job: Job, area: Area | None = None) -> Job:
        """Return the job as methods see it in its area or another one: a copy that shares its predictions."""
        other, request = copy(job), request_of(job)
        other.requested_cpus = job.cpus
        other.cpus = self._placed(request)[1] if area is None else self.topology.size_in(request, area)
        if job.allocated is not None:
            other.allocated = self._placed(_request(job))[1]
        return other

    def capacity_of(self, area: Area) -> Capacity:
        """Return the capacity of an area, in the form of a site's capacity."""
        known = self.topology.capacity
        return Capacity(site=known.site, time=known.time, cpus=area.cpus, nodes=area.nodes, down_nodes=area.down_nodes)

    # Updates from the whole state.

    def enter(self, job: Job) -> None:
        """Add a job."""
        number = self._where[job.key] = self.area_of(job).number
        self.states[number].enter(self.seen(job), _request(job))

    def leave(self, job: Job) -> None:
        """Remove a job."""
        state = self.states[self._where.pop(job.key)]
        state.leave(state.jobs[job.key])

    def change(self, job: Job) -> None:
        """Update a job whose phase or request has changed."""
        number, before = self.area_of(job).number, self._where[job.key]
        if number == before:
            self.states[number].replace(self.seen(job), _request(job))
            return
        self._where[job.key] = number
        left = self.states[before]
        left.leave(left.jobs[job.key])
        self._order(number)

    def _order(self, number: int) -> None:
        """Rebuild the state of an area in the job order of the whole, as after a restart."""
        state = self.states[number] = SiteState()
        for job in self._whole.jobs.values():
            if self._where[job.key] == number:
                state.enter(self.seen(job), _request(job))


def _request(job: Job) -> ResourceRequest:
    """Return the request of a job; once it runs, with its actual partition and allocation."""
    if job.start is None:
        return request_of(job)
    return request_of(job, job.progress.partition, job.counted_cpus)
