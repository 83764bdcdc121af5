"""Scenarios of the demo: a simulated grid or the beginning of a trace, and when each event is due."""

import heapq
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import msgspec

from models.records import AnyEvent, Capacity, JobEvent, Partition, Pool, Start, Submit
from models.simulation import generate, run
from streams.bulk.ingest import PacedIterator
from streams.sources.swf import Trace, events_of

DAY_S = 86_400.0
MONDAY = 1_699_833_600  # Unix time at which the simulated grid begins: a Monday, 0:00 UTC

HISTORY_SHARE = 1 / 3
"""Share of the jobs that are sent as fast as the worker consumes them, to fill the history. They are not measured."""

MAX_OUTSTANDING = 300
"""Maximum number of outstanding predictions: backpressure for a slow worker."""

MAX_DELAY_S = 40.0
"""Maximum time in seconds to fill the history and for later delays; events that are still unsent are dropped."""


class SimulatedSite(NamedTuple):
    """A site of the grid; `share` is its part of all jobs, so that the sites last about equally long."""

    name: str
    cpus: int
    load: float
    policy: str
    share: float
    seed: int


class SimulatedPartition(NamedTuple):
    """A partition with nodes of its own; its jobs are counted in GPUs where its nodes have any."""

    pool: Pool
    load: float
    seed: int

    @property
    def units(self) -> int:
        """The number of its GPUs, or of its CPUs if it has no GPUs."""
        return self.pool.nodes * (sum(self.pool.gpus.values()) or self.pool.cpus)


PLAIN_SITES = (
    SimulatedSite("alder", 512, 0.75, "easy", 0.25, seed=3),
    SimulatedSite("birch", 128, 0.70, "easy", 0.28, seed=3),
)
PARTITIONED = "cedar"
PARTITIONS = {
    "batch": SimulatedPartition(Pool(name="thin", nodes=12, cpus=16), 0.70, seed=7),
    "gpu": SimulatedPartition(Pool(name="card", nodes=4, cpus=16, gpus={"a100": 4}), 0.60, seed=8),
}
"""Partitions of the site with GPUs; its jobs end with those of the other sites."""

SOME_JOBS = 500  # initial number of jobs of a partition, doubled until they last long enough


class Scenario(msgspec.Struct, frozen=True):
    """A scenario of the demo: the sites, with a description by name, and their events by time.

    Jobs submitted before `measured_from` fill the history; `last` is the last submission (Unix seconds).
    """

    sites: dict[str, str]
    events: list[AnyEvent]
    jobs: int
    measured_from: float
    last: float

    @classmethod
    def of(cls, sites: dict[str, str], streams: Iterable[Iterable[AnyEvent]]) -> "Scenario":
        """The sites' events, each site's in order, interleaved by their times."""
        events = list(heapq.merge(*streams, key=lambda event: event.time))
        submits = [event.time for event in events if isinstance(event, Submit)]
        return cls(sites, events, len(submits), submits[int(len(submits) * HISTORY_SHARE)], submits[-1])

    @property
    def begin(self) -> float:
        """Unix time of the first event."""
        return self.events[0].time

    def speed(self, seconds: float) -> float:
        """Return the speed-up of the measured part if it is played within `seconds`."""
        return max(self.last - self.measured_from, 1.0) / seconds


def simulated_scenario(jobs: int) -> Scenario:
    """The grid, with about `jobs` jobs in all; its sites end together."""
    loads = [generate(s.seed, max(round(jobs * s.share), 1), s.cpus, s.load, start_time=MONDAY) for s in PLAIN_SITES]
    end = min(load[-1].submit for load in loads)
    kept = [[job for job in load if job.submit <= end] for load in loads]
    described = {s.name: f"{s.cpus} cpus, load {s.load:.0%}, {s.policy.upper()}" for s in PLAIN_SITES}
    streams = [run(load, s.cpus, s.name, s.policy) for load, s in zip(kept, PLAIN_SITES, strict=True)]
    size = _size()
    described[PARTITIONED] = f"{size.cpus} cpus and GPUs in partitions: {', '.join(PARTITIONS)}"
    parts = [_in_partition(name, part, end) for name, part in PARTITIONS.items()]
    return Scenario.of(described, [*streams, chain([size], heapq.merge(*parts, key=lambda event: event.time))])


def _size() -> Capacity:
    pools = [partition.pool for partition in PARTITIONS.values()]
    return Capacity(
        site=PARTITIONED,
        time=float(MONDAY),
        cpus=sum(pool.nodes * pool.cpus for pool in pools),
        nodes=sum(pool.nodes for pool in pools),
        pools=pools,
        partitions=[Partition(name=name, pools=[part.pool.name]) for name, part in PARTITIONS.items()],
    )


def _in_partition(name: str, partition: SimulatedPartition, end: int) -> Iterator[AnyEvent]:
    count, pool = SOME_JOBS, partition.pool
    while (jobs := generate(partition.seed, count, partition.units, partition.load, start_time=MONDAY))[
        -1
    ].submit < end:
        count *= 2
    cpus = pool.cpus * pool.nodes // partition.units
    for event in run([job for job in jobs if job.submit <= end], partition.units, PARTITIONED):
        if not isinstance(event, JobEvent):
            continue
        changes: dict[str, object] = {"job": f"{name}-{event.job}"}
        if isinstance(event, Submit | Start) and event.cpus is not None:
            changes |= {"cpus": event.cpus * cpus, "gpus": event.cpus if pool.gpus else 0}
        if isinstance(event, Submit):
            changes["queue"] = name
        if isinstance(event, Start):
            changes["partition"] = name
        yield msgspec.structs.replace(event, **changes)


def traced_scenario(trace: Trace, jobs: int) -> Scenario:
    """The first jobs of a trace, as one site."""
    first = trace.first(jobs)
    cpus = f"{trace.cpus} cpus, " if trace.cpus else ""
    return Scenario.of({trace.site: f"{cpus}{trace.path.name}"}, [events_of(first, trace.site)])


def schedule(
    scenario: Scenario,
    seconds: float,
    behind: Callable[[], int],
    stop: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[AnyEvent]:
    """Yield the events when they are due: first the history without pauses, then the measured part within `seconds`.

    The events after the last submission come without pauses again. The iteration ends early when `stop` is set, or
    after the time limit.
    """

    def sleep(pause_s: float) -> None:
        stop.wait(pause_s)

    filling = [event for event in scenario.events if event.time < scenario.measured_from]
    measured = scenario.events[len(filling) :]
    due = ((min(event.time, scenario.last) - scenario.measured_from, event) for event in measured)
    limit: float | None = None
    for event in chain(filling, PacedIterator(due, scenario.speed(seconds), clock=clock, sleep=sleep)):
        limit = clock() + seconds + MAX_DELAY_S if limit is None else limit
        while behind() > MAX_OUTSTANDING and not stop.is_set() and clock() < limit:
            stop.wait(0.01)
        if stop.is_set() or clock() >= limit:
            return
        yield event
