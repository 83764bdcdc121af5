"""Long load on a Redis that is killed and loses its last second: no event is lost or repeated, memory is stable.

500 users, an executable for each job, a fifth of the jobs sent again after thousands of others. The full load,
with enough events to fill the histories:

    TESTS_SOAK_EVENTS=1000000 pytest tests/integration/test_soak.py

`tests/benchmarks/test_soak.py` runs the same load without Kafka and Faust.
"""

import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median

import psutil
import pytest

from deploy.local.stack import Redis
from tests.support.deployment import Deploy, Deployment, metrics, until
from tests.support.forgetful import forgetful_redis, kill_and_lose, written
from tests.support.soaked import Expected, Twice, hashed, merged
from tests.support.topic_messages import messages_of

pytestmark = [pytest.mark.timeout(6 * 3600), pytest.mark.long]

EVENTS = int(os.environ.get("TESTS_SOAK_EVENTS", "4000"))
LONG = EVENTS >= 50_000

FULL_JOBS = 132_000
"""Jobs of a site that fill all its histories; the departed jobs fill last, 131,072."""

SITES = ("alder", "birch") if EVENTS >= 1_000_000 else ("alder",)
WARM_UP = len(SITES) * FULL_JOBS * 3
BLOCK = 10_000 if LONG else 1000
BLOCKS_BETWEEN_KILLS = 5 if LONG else 2

FLAT = 0.05
"""Maximum relative change of memory after the histories are full."""

LOST_S = 1.0
"""Seconds of writes that Redis loses each time."""

SLOWEST = 30.0
"""Minimum events a second; a slower worker fails the test."""


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    with forgetful_redis(tmp_path / "redis") as server:
        yield server


def test_soak_with_redis_losing_last_second_loses_no_event(deploy: Deploy, redis: Redis) -> None:
    engine = {"history": 6000} if LONG else {"history": 600}
    often = {"checkpoint_events": 1000, "checkpoint_seconds": 2.0} if LONG else {}
    here = deploy(redis=redis.url, worker=often, **engine)
    expected, twice = Expected(here.settings.engine), Twice(5000 if LONG else 400)
    here.worker.start()
    process, begun, sent, lost = psutil.Process(here.worker.pid), time.monotonic(), 0, 0
    sizes: list[tuple[float, float]] = []
    load = islice(merged(SITES), EVENTS)
    for number, block in enumerate(iter(lambda: list(islice(load, BLOCK)), [])):
        sending = [one for event in block for one in twice.of(event)]
        here.send(sending)
        if number % BLOCKS_BETWEEN_KILLS == 1:
            await_read(here, sent + 1)
            kept = written(redis)
            time.sleep(LOST_S)
            lost += kill_and_lose(redis, kept)
            redis.start()
        for event in block:
            expected.apply(event)
        sent += len(sending)
        await_read(here, sent)
        sizes.append((process.memory_info().rss / 1e6, here.redis.info("memory")["used_memory"] / 1e6))
    took = time.monotonic() - begun
    metric_values = metrics(here.worker)
    here.worker.kill()  # the restarted worker finds all entries counted by its states
    here.worker.start()
    until(lambda: len(metrics(here.worker)["queuecast_events_total"]) == len(SITES))
    here.worker.stop()
    levels = [" ".join(f"{size[kind]:.0f}" for size in tenths(sizes)) for kind in (0, 1)]
    print(f"\n{sent} events in {took:.0f} s, {twice.jobs} jobs twice, {lost} bytes lost by Redis")
    print(f"MB every tenth of it: worker {levels[0]}; Redis {levels[1]}")
    assert twice.jobs > 0 and lost > 0
    assert "Traceback" not in here.log
    assert "cannot be rebuilt" not in here.log and "degraded" not in here.log
    assert read_hashes(here) == expected.records
    scored = metric_values["queuecast_wait_error_seconds_count"]
    assert sum(jobs for labels, jobs in scored.items() if "zero" in labels) == expected.scored
    assert is_flat([worker for worker, _ in sizes]) and is_flat([store for _, store in sizes])


def await_read(here: Deployment, number: int) -> None:
    """Wait until the worker has read this number of messages."""
    seconds = 2 * max(BLOCK, 1500) / SLOWEST
    until(lambda: metrics(here.worker)["queuecast_messages_read_total"].get((), 0.0) >= number, seconds)


def is_flat(sizes: list[float]) -> bool:
    """Return True if the size is stable since the histories were full, or if they never were."""
    full = sizes[WARM_UP // BLOCK :]
    level = median(full[: max(len(full) // 10, 1)]) if full else 0.0
    return all((1 - FLAT) * level <= size <= (1 + FLAT) * level for size in full)


def read_hashes(here: Deployment) -> set[int]:
    """Return the hashes of predictions and outcomes, read in batches, as there may be a million."""
    found = messages_of(here.settings.kafka.client_options(), here.topics.predictions, here.topics.outcomes)
    return {hashed(message.value) for message in found}


def tenths(sizes: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the sizes at the end of each tenth of the load."""
    return [sizes[max(len(sizes) * tenth // 10 - 1, 0)] for tenth in range(1, 11)]
