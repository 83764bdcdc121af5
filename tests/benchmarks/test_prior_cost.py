"""Cost of a prior: CPU time of an event in a worker's partition, and memory of a site, with and without it.

`TESTS_PRIOR_JOBS` is the number of jobs.
"""

import asyncio
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity
from streams.settings import Settings, WorkerSettings
from tests.benchmarks.test_memory import measured, stored
from tests.support.deployment import simulated
from tests.support.fakes import Process
from tests.support.memory_servers import World

pytestmark = pytest.mark.timeout(3600)

JOBS = int(os.environ.get("TESTS_PRIOR_JOBS", "4000"))
ROUNDS = 3
SITES = 20
MOST_MB = 5.0
MOST_RATIO = 1.1

PRIORS = {prior: EngineSettings(prior=prior) for prior in ("none", "wheel")}


def events() -> list[AnyEvent]:
    """Return the events of a busy site with a known size."""
    return [Capacity(site="alder", time=0.0, cpus=128), *simulated("alder", JOBS)]


def thread_s(site_events: list[AnyEvent], engine: EngineSettings) -> float:
    """Return the CPU time of a worker's thread for these events (s), without trainings."""
    world = World()
    world.publish_events(site_events)
    begin = time.thread_time()
    asyncio.run(Process(world, Settings(engine=engine, worker=WorkerSettings(checkpoint_seconds=1e9))).live())
    return time.thread_time() - begin


def test_prior_raises_event_cost_by_at_most_a_tenth() -> None:
    site_events = events()
    took: dict[str, list[float]] = {prior: [] for prior in PRIORS}
    thread_s(site_events[:600], PRIORS["wheel"])  # loads the kernels
    for _ in range(ROUNDS):
        for prior, settings in PRIORS.items():
            took[prior].append(thread_s(site_events, settings))
    each = {prior: 1e6 * min(seconds) / len(site_events) for prior, seconds in took.items()}
    ratio = each["wheel"] / each["none"]
    print(f"\nan event: {each['none']:.0f} µs without a prior, {each['wheel']:.0f} with the package's: {ratio:.2f}")
    assert ratio <= MOST_RATIO


def test_prior_raises_site_memory_by_at_most_five_megabytes() -> None:
    each: dict[str, float] = {}
    for prior, settings in PRIORS.items():
        engine = Engine("alder", settings)
        for event in events():
            while (future := engine.pending()) is not None:
                future.result()
            engine.apply(event)
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            _, few, all_ = fresh.submit(measured, *stored(engine), settings, SITES).result()
        each[prior] = (all_ - few) / (SITES - SITES // 10)
    more = each["wheel"] - each["none"]
    print(f"\na site of {JOBS} jobs: {each['none']:.1f} MB without a prior, {more:.1f} more with the package's")
    assert more <= MOST_MB
