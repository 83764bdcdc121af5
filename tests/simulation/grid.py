"""A grid: sites with local jobs, and a stream of jobs that a router sends to the sites.

The sites differ in size, load of local jobs, and policy; all are equally fast. The local jobs of each site are a
workload (`generate`); the routed jobs are another one, generated for a machine of `MEDIUM` CPUs, with separate users.
The rules of a site apply to routed and local jobs alike. Users cancel no jobs, so each routing runs the same jobs.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from models.records import AnyEvent, Start
from models.simulation.comparison import SHORT_S
from models.simulation.scheduler import Scheduler
from models.simulation.workload import DAY, SimulatedJob, generate
from models.site.job import Job
from tests.simulation.drawn import Drawn, Rules
from tests.simulation.multifactor import Priorities
from tests.simulation.oracle import Oracle
from tests.simulation.routing import Everywhere, Router
from tests.simulation.schedulers import Policy, scheduler_of

MONDAY = 1_699_833_600
"""Begin of the simulation (Unix seconds): a Monday, 0:00 UTC."""

MEDIUM = 256
"""Maximum CPUs of the machine for which the routed jobs are generated; a smaller largest site lowers it."""

SOME_JOBS = 1000
"""Initial number of jobs of a workload; doubled until they cover the days."""


class GridSite(NamedTuple):
    """A site of the grid; `load` is the offered load of its local jobs, as a share of its CPUs."""

    name: str
    cpus: int
    load: float
    policy: Policy | Rules

    def scheduler(self) -> Scheduler:
        """Return an idle scheduler of the site."""
        if isinstance(self.policy, Rules):
            return Drawn(self.name, self.cpus, MONDAY, self.policy)
        return scheduler_of(self.policy, self.name, self.cpus, MONDAY)


THREE_SITES = (
    GridSite("alder", 512, 0.60, "easy"),
    GridSite("birch", 128, 0.65, "conservative"),
    GridSite("cedar", 256, 0.45, "lwf"),
)

EIGHT_SITES = (
    GridSite("alder", 1024, 0.60, "easy"),
    GridSite("birch", 512, 0.50, "conservative"),
    GridSite("cedar", 512, 0.50, "lwf"),
    GridSite("douglas", 256, 0.70, "easy"),
    GridSite("elm", 256, 0.55, "fcfs-fill"),
    GridSite("fir", 128, 0.65, "easy"),
    GridSite("ginkgo", 128, 0.60, "conservative"),
    GridSite("hazel", 64, 0.30, "fcfs"),
)

MULTIFACTOR_SITES = (
    GridSite("alder", 512, 0.60, Priorities(age=1.0, fairshare=2.0, half_life_s=7 * DAY, size=0.5, cap=0.4)),
    GridSite("birch", 128, 0.65, Priorities(age=2.0, fairshare=1.0, half_life_s=2 * DAY, size=0.0, cap=0.4)),
    GridSite("cedar", 256, 0.45, Priorities(age=0.5, fairshare=3.0, half_life_s=14 * DAY, size=1.0, cap=0.4)),
)

OTHER_SITES = (
    GridSite("alder", 512, 0.60, "multifactor-tiers"),
    GridSite("birch", 128, 0.65, Priorities(age=3.0, age_s=2 * DAY, fairshare=1.0, share=0.2, size=-0.5, cap=0.5)),
    GridSite("cedar", 256, 0.45, "multifactor-small"),
)


def same_policy(rules: Rules) -> tuple[GridSite, ...]:
    """Return three sites of one policy; without backfill, the load is lower, so that their queues end."""
    busy = 0.6 if rules.backfill == "none" else 1.0
    return tuple(site._replace(policy=rules, load=busy * site.load) for site in THREE_SITES)


class Load(NamedTuple):
    """The jobs of a grid in the order of submission: local jobs by site, and jobs to route.

    Names of jobs are unique.
    """

    own: dict[str, list[SimulatedJob]]
    routed: list[SimulatedJob]

    @classmethod
    def of(cls, sites: Sequence[GridSite], seed: int, days: float, share: float) -> "Load":
        """Return the jobs of these days; the routed jobs add the load `share` of all CPUs of the grid."""
        own = {
            site.name: _named(site.name, _during(seed + 1000 * place, site.cpus, site.load, days))
            for place, site in enumerate(sites, 1)
        }
        sizes = [site.cpus for site in sites]
        medium = min(MEDIUM, max(sizes))
        return cls(own, _named("grid", _during(seed, medium, share * sum(sizes) / medium, days)))

    @property
    def jobs(self) -> Iterator[SimulatedJob]:
        """Yield all jobs."""
        for jobs in (*self.own.values(), self.routed):
            yield from jobs


def _during(seed: int, cpus: int, load: float, days: float) -> list[SimulatedJob]:
    """Return the jobs of the first `days` of a workload."""
    end, count = MONDAY + days * DAY, SOME_JOBS
    while (jobs := generate(seed, count, cpus, load, start_time=MONDAY, impatient=0.0))[-1].submit < end:
        count *= 2
    return [job for job in jobs if job.submit < end]


def _named(owner: str, jobs: Iterable[SimulatedJob]) -> list[SimulatedJob]:
    """Return the jobs with unique names and users."""
    return [msgspec.structs.replace(job, job=f"{owner}-{job.job}", user=f"{owner}-{job.user}") for job in jobs]


class Placed(NamedTuple):
    """A job, its site, and its wait there (s)."""

    job: SimulatedJob
    site: str
    wait_s: float


class JobMeans(NamedTuple):
    """Means over jobs: times (s), and the bounded slowdown as in `Performance`."""

    jobs: int
    response_s: float
    wait_s: float
    slowdown: float

    @classmethod
    def of(cls, placed: Iterable[Placed]) -> "JobMeans":
        """Return the means of at least one job."""
        waits = [(one.wait_s, one.job.seconds) for one in placed]
        count = len(waits)
        return cls(
            count,
            sum(wait_s + run_s for wait_s, run_s in waits) / count,
            sum(wait_s for wait_s, _ in waits) / count,
            sum(max((wait_s + run_s) / max(run_s, SHORT_S), 1.0) for wait_s, run_s in waits) / count,
        )


class RoutingResult(NamedTuple):
    """Sites and waits of all jobs, routed and local."""

    routed: list[Placed]
    own: list[Placed]

    def means(self, after_days: float = 0.0) -> tuple[JobMeans, JobMeans]:
        """Return the means of routed and of local jobs, without the jobs of the first days."""
        begin = MONDAY + after_days * DAY
        routed, own = ([one for one in jobs if one.job.submit >= begin] for jobs in self)
        return JobMeans.of(routed), JobMeans.of(own)


def route(sites: Sequence[GridSite], load: Load, router: Router) -> RoutingResult:
    """Run the grid until its last job has started.

    The router chooses among the sites that are large enough for a job. It has received all events of the sites up to
    that second, in order by site. It does not get the run time of a job.
    """
    running = _Grid(sites, router)
    own = [[(job, name) for job in jobs] for name, jobs in load.own.items()]
    routed = [(job, None) for job in load.routed]
    for job, home in heapq.merge(*own, routed, key=lambda arrival: arrival[0].submit):
        running.submit(job, running.choose(job) if home is None else [home])
    running.advance(None)
    placed = {job.job: running.placed(job) for job in load.jobs}
    return RoutingResult(
        [placed[job.job] for job in load.routed], [placed[job.job] for jobs in load.own.values() for job in jobs]
    )


class _Grid:
    """The schedulers of the sites; the router gets all their events."""

    def __init__(self, sites: Sequence[GridSite], router: Router) -> None:
        self._schedulers = {site.name: site.scheduler() for site in sites}
        if isinstance(router, Oracle):
            router.watch(self._schedulers)
        self._router = router
        self._starts: dict[str, Start] = {}
        self._copies: dict[str, tuple[SimulatedJob, Sequence[str]]] = {}  # of pending jobs, with their sites
        for scheduler in self._schedulers.values():
            router.observe([scheduler.capacity()])

    def choose(self, job: SimulatedJob) -> Sequence[str]:
        """Return the sites that the router chooses for a submitted job."""
        self.advance(job.submit)
        large_enough = [name for name, scheduler in self._schedulers.items() if scheduler.cpus >= job.cpus]
        if isinstance(self._router, Everywhere):
            return large_enough
        return [self._router.choose(Job.of(job.submission("")), large_enough)]

    def submit(self, job: SimulatedJob, sites: Sequence[str]) -> None:
        """Submit a job to all of these sites, until it starts at one of them."""
        self.advance(job.submit)
        self._copies[job.job] = job, sites
        for site in sites:
            if job.job not in self._starts:
                self._see(self._schedulers[site].submit(job))

    def placed(self, job: SimulatedJob) -> Placed:
        """Return the site and the wait of a started job."""
        start = self._starts[job.job]
        return Placed(job, start.site, start.time - job.submit)

    def advance(self, until: int | None) -> None:
        """Move the clock of all sites, event by event; None: until no event is left."""
        while due := [(time, one) for one in self._schedulers.values() if (time := one._next_time()) is not None]:
            time, scheduler = min(due, key=lambda one: one[0])
            if until is not None and time > until:
                return
            self._see(scheduler.advance(time))

    def _see(self, events: Sequence[AnyEvent]) -> None:
        """Pass the events of a site to the router; cancel the copies of started jobs at the other sites."""
        if not events:
            return
        self._router.observe(events)
        left: dict[str, int] = {}
        for event in events:
            if isinstance(event, Start):
                self._starts[event.job] = event
                job, sites = self._copies.pop(event.job)
                for site in sites:
                    if job.job in self._schedulers[site].queue:
                        self._schedulers[site].withdraw(job, int(event.time))
                        left[site] = int(event.time)
        for site, time in left.items():
            self._see(self._schedulers[site].advance(time))
