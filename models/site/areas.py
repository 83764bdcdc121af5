"""The live jobs of a site by area. Methods see each area as a separate site."""

from collections.abc import Iterator
from copy import copy
from functools import lru_cache
from itertools import islice

from models.records import Capacity, JobKey
from models.site.job import Job
from models.site.state import SiteState
from models.site.topology import Area, ResourceRequest, Topology, request_of
from models.site.topology.layout import Layout

MAX_PLACED = 4096  # size of the cache of requests
JOBS_PER_STEP = 200  # jobs that enter their areas in one step


class Areas:
    """One state per area, kept consistent with that of the whole site.

    A pending job belongs to the area of its first partition, a running job to that of its actual partition. There its
    `cpus` and `allocated` are its dominant share of the area (`Topology.size_in`). So code that compares CPUs compares
    the scarce resource. The states follow from the topology and from the order of the jobs in the whole state, so they
    are not stored. A job that moves to another area costs O(live jobs).

    Its creator calls `fill`, and makes it the follower of the whole state.
    """

    def __init__(self, topology: Topology, whole: SiteState) -> None:
        self.topology = topology
        self.states = [SiteState() for _ in topology.areas]
        self.layouts = [Layout(topology, area) for area in topology.areas]
        self._whole = whole
        self._version = 0  # of the whole state, when these areas were filled
        self._where: dict[JobKey, int] = {}
        self._placed = lru_cache(MAX_PLACED)(self._place)

    def fill(self) -> Iterator[None]:
        """Add the jobs of the whole state, which must not change until the end; yield after every `JOBS_PER_STEP`."""
        self._version = self._whole.table.version
        for number, job in enumerate(list(self._whole.jobs.values())):
            if number % JOBS_PER_STEP == JOBS_PER_STEP - 1:
                yield
            self.enter(job)

    def are_current(self, topology: Topology) -> bool:
        """Return True if these are the areas of a topology, and the whole state has not changed since `fill`."""
        return topology.same_areas(self.topology) and self._version == self._whole.table.version

    def take(self, topology: Topology) -> None:
        """Switch to another topology with the same areas."""
        self.topology = topology
        self.layouts = [Layout(topology, area) for area in topology.areas]

    def _place(self, request: ResourceRequest) -> tuple[int, int]:
        """Return the area of jobs with this request, and their size there."""
        area = self.topology.area_of(request)
        return area.number, self.topology.size_in(request, area)

    def area_of(self, job: Job) -> Area:
        """Return the area of a job."""
        return self.topology.areas[self._placed(_request(job))[0]]

    def seen_in_area(self, job: Job, area: Area | None = None) -> Job:
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
        self.states[number].enter(self.seen_in_area(job), _request(job))

    def leave(self, job: Job) -> None:
        """Remove a job."""
        state = self.states[self._where.pop(job.key)]
        state.leave(state.jobs[job.key])

    def change(self, job: Job) -> None:
        """Update a job whose phase or request has changed."""
        number, before = self.area_of(job).number, self._where[job.key]
        if number == before:
            self.states[number].replace(self.seen_in_area(job), _request(job))
            return
        source = self.states[before]
        source.leave(source.jobs[job.key])
        self.states[number].enter(self.seen_in_area(job), _request(job), self._next_in(number, job.key))
        self._where[job.key] = number

    def _next_in(self, number: int, key: JobKey) -> JobKey | None:
        """Return the first job of an area after this one in the order of the whole; None if there is none."""
        table = self._whole.table
        later = islice(table.keys, table.row(key) + 1, None)
        return next((one for one in later if one is not None and self._where[one] == number), None)


def _request(job: Job) -> ResourceRequest:
    """Return the request of a job; once it runs, with its actual partition and allocation."""
    if job.start is None:
        return request_of(job)
    return request_of(job, job.progress.partition, job.counted_cpus)
