"""An hour of heavy load, worked off as fast as it goes: the worker's memory stays flat, and nothing is left out.

A shorter one, of no fewer events than the histories need to fill up, is `QUEUECAST_SOAK_EVENTS=500000 make bench`.
"""

import heapq
import os
import time
from collections.abc import Iterator
from itertools import count, islice
from statistics import median

import msgspec
import psutil
import pytest

from models.records import AnyEvent, Submit
from models.simulation import SimulatedJob, generate, run
from tests.support.deployment import Deploy, Deployment, jobs_predicted, metrics, until

pytestmark = pytest.mark.timeout(4 * 3600)

EVENTS = int(os.environ.get("QUEUECAST_SOAK_EVENTS", "1080000"))
"""300 a second for an hour."""

SITES = ("alder", "birch", "cedar", "douglas")
CPUS = 128
USERS = 8
"""Few, so that the run times' history, 64 runs of each category that there is, is nearly full after the warm-up."""

CHUNK_JOBS = 2000
BLOCK = 10_000
"""Events between two looks at the memory; so many are sent ahead."""

WARM_UP = 270_000
"""Events, of 22,500 jobs a site, after which the histories count as full: the waits', of 6000 and of 20,000 jobs, are
before; the run times' are to five sixths, and what they still take in is a few thousand runs."""

FLAT = 0.05
"""How far the memory may move from where it was when the histories were full, as a share of it."""

SLOWEST = 100.0
"""Events a second below which we wait no longer."""


def test_memory_stays_flat_under_an_hours_load(deploy: Deploy) -> None:
    here = deploy(history=6000, worker={"checkpoint_events": 1000, "checkpoint_seconds": 2.0})
    worker, sizes, submits, sent = here.worker, list[float](), 0, 0
    worker.start()
    process, begun = psutil.Process(worker.pid), time.monotonic()
    load = islice(heapq.merge(*map(endless, SITES, count(1)), key=lambda event: event.time), EVENTS)
    while block := list(islice(load, BLOCK)):
        here.send(block)
        submits += sum(isinstance(event, Submit) for event in block)
        await_read(here, sent)
        sent += len(block)
        sizes.append(process.memory_info().rss / 1e6)
    await_read(here, sent)
    seconds = time.monotonic() - begun
    warm = sizes[WARM_UP // BLOCK :]
    level = median(warm[: max(len(warm) // 10, 1)])
    print(
        f"\n{sent} events in {seconds:.0f} s; MB every tenth of it: {', '.join(f'{s:.0f}' for s in tenths(sizes))}; "
        f"after the warm-up {level:.0f}, then {min(warm):.0f} to {max(warm):.0f}"
    )
    here.worker.stop()
    assert "Traceback" not in here.log
    assert jobs_predicted(here) == submits
    assert (1 - FLAT) * level <= min(warm) and max(warm) <= (1 + FLAT) * level


def endless(site: str, seed: int) -> Iterator[AnyEvent]:
    """A busy site's events, made as they are asked for."""
    return run(endless_jobs(seed), CPUS, site)


def endless_jobs(seed: int) -> Iterator[SimulatedJob]:
    """Workload after workload, each from where the one before ended."""
    begin = 0
    for chunk in count():
        jobs = generate(CHUNK_JOBS * seed + chunk, CHUNK_JOBS, CPUS, load=0.7, start_time=begin, users=USERS)
        for job in jobs:
            yield msgspec.structs.replace(job, job=f"{chunk}-{job.job}")
        begin = jobs[-1].submit


def await_read(here: Deployment, number: int) -> None:
    """Wait until the worker has read so many messages."""
    until(lambda: metrics(here.worker)["queuecast_messages_read_total"][()] >= number, 2 * BLOCK / SLOWEST)


def tenths(sizes: list[float]) -> list[float]:
    """The size at the end of each tenth of the load."""
    return [sizes[len(sizes) * tenth // 10 - 1] for tenth in range(1, 11)]
