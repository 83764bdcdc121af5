from collections.abc import Sequence

import msgspec
import pytest

from models.records import AnyEvent, Start
from models.simulation import SimulatedJob, generate
from models.site.job import Job
from tests.simulation.grid import MONDAY, GridSite, Load, route
from tests.simulation.oracle import Oracle
from tests.simulation.routing import ShortestQueue
from tests.simulation.schedulers import SCHEDULERS
from tests.support.simulated_jobs import make

CPUS = 64


@pytest.mark.parametrize("policy", sorted(SCHEDULERS.keys() - {"multifactor-small"}))
def test_oracle_start_of_last_job_is_exact(policy: str) -> None:
    """Without `multifactor-small`, whose plans change as jobs end, which a copy does not learn."""
    jobs = generate(5, 300, CPUS, 1.2, impatient=0.0)
    site = SCHEDULERS[policy]("a", CPUS, jobs[0].submit)
    oracle = Oracle(jobs)
    oracle.watch({"a": site})
    for job in jobs[:-1]:
        site.submit(job)
    before = site.now
    site.advance(jobs[-1].submit)
    start = oracle.start_of(jobs[-1].job, "a")
    assert start is not None and before <= start
    assert oracle.start_of(jobs[-1].job, "a", start + 1) == start
    assert oracle.start_of(jobs[-1].job, "a", start) is None or start == site.now
    events = site.submit(jobs[-1]) + site.finish()
    assert start == next(event.time for event in events if isinstance(event, Start) and event.job == jobs[-1].job)


def lasting(number: int, run: int, walltime: int, cpus: int = CPUS) -> SimulatedJob:
    return msgspec.structs.replace(make(number, MONDAY, cpus, run), walltime=walltime)


def test_oracle_chooses_site_of_earliest_start() -> None:
    sites = GridSite("a", CPUS, 0.5, "easy"), GridSite("b", CPUS, 0.5, "easy")
    load = Load({"a": [lasting(1, 900, 1000)], "b": [lasting(2, 50, 2000)]}, [lasting(3, 10, 60)])
    (informed,) = route(sites, load, Oracle(load.jobs)).routed
    (uninformed,) = route(sites, load, Oracle(load.jobs, knows_run_times=False)).routed
    assert (informed.site, informed.wait_s) == ("b", 50.0)
    assert uninformed.site == "a"  # by walltimes, since no job has ended yet


def test_oracle_without_run_times_learns_them_per_site() -> None:
    jobs = [lasting(1, 100, 1000, 8), lasting(2, 100, 1000, 8), lasting(3, 700, 1000)]
    jobs[2] = msgspec.structs.replace(jobs[2], submit=MONDAY + 200)
    jobs.append(msgspec.structs.replace(lasting(4, 10, 60), submit=MONDAY + 210))
    site = SCHEDULERS["fcfs"]("a", CPUS, MONDAY)
    oracle = Oracle(jobs, knows_run_times=False)
    oracle.watch({"a": site})
    for job in jobs[:3]:
        oracle.observe(site.submit(job))
    site.advance(MONDAY + 210)
    assert oracle.start_of("4", "a") == MONDAY + 300  # expected to run for 100 s, as the two before it


def test_oracle_queries_keep_schedule_unchanged() -> None:
    sites = GridSite("a", CPUS, 0.6, "multifactor"), GridSite("b", CPUS, 0.6, "multifactor-small")
    load = Load.of(sites, 7, 4, 0.2)

    class QueryingOracle(Oracle):
        """Query the oracle, then choose the shortest queue."""

        def __init__(self) -> None:
            super().__init__(load.jobs, knows_run_times=False)
            self.shortest = ShortestQueue()

        def observe(self, events: Sequence[AnyEvent]) -> None:
            super().observe(events)
            self.shortest.observe(events)

        def choose(self, job: Job, sites: Sequence[str]) -> str:
            assert super().choose(job, sites) in sites
            return self.shortest.choose(job, sites)

    assert route(sites, load, QueryingOracle()) == route(sites, load, ShortestQueue())
