"""A million events through a partition, with checkpoints and a real Redis that loses its last second.

Like `tests/integration/test_soak.py`, with Kafka and Faust in memory and a fast method; memory must be stable.
A shorter run that still fills the histories: `TESTS_SOAK_EVENTS=500000`.
"""

import asyncio
import os
from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from redis import Redis as Client

from deploy.local.stack import Redis
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Cancel, End, Start, Submit
from streams.settings import RedisSettings, Settings, WorkerSettings
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.owned_table import OwnershipToken
from streams.worker.checkpoint.redis_client import connect
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog
from tests.support.fakes import Process
from tests.support.forgetful import forgetful_redis, kill_and_lose, written
from tests.support.memory_servers import MemoryTable, Message, World
from tests.support.soaked import Twice, hashed, merged

pytestmark = pytest.mark.timeout(4 * 3600)

EVENTS = int(os.environ.get("TESTS_SOAK_EVENTS", "1000000"))
SITES = ("alder", "birch") if EVENTS >= 1_000_000 else ("alder",)
FULL = len(SITES) * 400_000
"""Events that fill all histories; the departed jobs fill last, 131,072 per site."""

BLOCK = 10_000
KILLS = 20
FLAT = 0.05
KEPT_MESSAGES = 20_000
KEPT_STATES = 64

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=("zero",)),
    worker=WorkerSettings(checkpoint_events=1000, checkpoint_seconds=1e9),
)


class Recent(list[SimpleNamespace]):
    """The latest messages of a partition, by offset."""

    gone = 0

    def __len__(self) -> int:
        return self.gone + super().__len__()

    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(slice(place.start - self.gone, place.stop - self.gone))

    def shorten(self) -> None:
        """Delete the older messages."""
        if (more := super().__len__() - KEPT_MESSAGES) > 0:
            del self[:more]
            self.gone += more


class Counted:
    """Outputs counted by topic, and their hashes, in fixed memory."""

    def __init__(self) -> None:
        self.records: Counter[str] = Counter()
        self._hashes = np.ones(2 * EVENTS, np.uint64)

    def append(self, output: tuple[str, bytes | None, bytes]) -> None:
        """Count a record."""
        topic, _, value = output
        self._hashes[self.records.total()] = hashed(value)
        self.records[topic.rpartition(".")[2]] += 1

    @property
    def repeats(self) -> int:
        """Number of repeated records."""
        count = self.records.total()
        return count - len(np.unique(self._hashes[:count]))


class Endless(World):
    """A world that keeps only as many messages as a broker's topics."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = self.outputs = Counted()  # type: ignore[assignment]
        self.headers = deque(maxlen=1)  # type: ignore[assignment]
        self.messages[0] = Recent()

    def step(self, what: str) -> None:
        """Do nothing: this world has no crashes."""


class Changelog(MemoryTable):
    """The table, its changelog and the events, as the loader reads them."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._states: deque[tuple[bytes, bytes]] = deque(maxlen=KEPT_STATES)

    def arrived(self, key: bytes, value: bytes | None, partition: int) -> None:
        super().arrived(key, value, partition)
        self._states.append((key, value or b""))

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        return [(one, value) for one, value in reversed(self._states) if site_of(one) == key and value]

    async def ranges(self, logs: Any) -> dict[PartitionLog, LogOffsets]:
        messages: Any = self._world.messages[0]
        return {log: LogOffsets(messages.gone, len(messages)) for log in logs}

    async def read(self, log: PartitionLog, first: int, last: int, key: bytes) -> list[SimpleNamespace]:
        return [raw for raw in self._world.messages[0][first : last + 1] if raw.key == key]


@pytest.fixture
def redis(require_stack: None, tmp_path: Path) -> Iterator[Redis]:
    with forgetful_redis(tmp_path / "redis") as server:
        yield server


def test_soak_of_million_events_keeps_memory_stable(redis: Redis) -> None:
    asyncio.run(soak(redis))


async def soak(redis: Redis) -> None:
    client = connect(RedisSettings(url=redis.url))
    world, twice, lost, sizes = Endless(), Twice(5000), 0, list[tuple[float, float]]()
    table, kinds = Changelog(world), Counter[type]()

    def store(_: World, token: OwnershipToken) -> SiteStore:
        return SiteStore(client, "soak", token.check)

    process = Process(world, SETTINGS, store=store, table=table, events=table)
    await process.take_over(0)
    load = islice(merged(SITES), EVENTS)
    for number, block in enumerate(iter(lambda: list(islice(load, BLOCK)), [])):
        kinds.update(map(type, block))
        await take(process, twice, block[: BLOCK // 2])
        if number % max(EVENTS // BLOCK // KILLS, 1) == 0:
            kept = written(redis)
            await take(process, twice, block[BLOCK // 2 :])
            lost += kill_and_lose(redis, kept)
            redis.start()
        else:
            await take(process, twice, block[BLOCK // 2 :])
        sizes.append((psutil.Process().memory_info().rss / 1e6, memory_of(redis) / 1e6))
    scores = [handle.engine.scores for handle in process.owner.values()]
    await process.hand_over(0)
    counts = world.counts
    print(f"\n{len(world.messages[0])} events, {twice.jobs} jobs twice, {lost} bytes lost by Redis, {counts.records}")
    for kind, name in enumerate(("worker", "Redis")):
        print(f"MB of {name}, every tenth: {' '.join(f'{size[kind]:.0f}' for size in sizes[9::10] or sizes)}")
    assert counts.repeats == 0
    assert counts.records["predictions"] == kinds[Submit]
    assert counts.records["outcomes"] == kinds[Start] + kinds[Cancel] + kinds[End]
    scored = sum(one["zero"].jobs for kept in scores for one in (kept.accuracy, kept.cancelled))
    assert scored == kinds[Start] + kinds[Cancel]
    assert all(is_flat([size[kind] for size in sizes]) for kind in (0, 1))
    again = Process(world, SETTINGS, store=store, table=table)
    await again.take_over(0)  # without events for a rebuild: all counted entries are present
    assert [one.engine.degraded for one in again.owner.values()] == [None] * len(SITES)
    assert all(one.generation == 0 for one in again.owner.values())
    await client.aclose()


def memory_of(server: Redis) -> int:
    """Return the bytes used by Redis."""
    with Client.from_url(server.url) as client:
        return int(client.info("memory")["used_memory"])


async def take(process: Process, twice: Twice, events: list[AnyEvent]) -> None:
    """Process events, some of them a second time."""
    log: Any = process.world.messages[0]
    for event in events:
        for one in twice.of(event):
            process.world.publish(one.site.encode(), msgspec.json.encode(one))
            await process.owner.take(Message(list.__getitem__(log, -1)))
    await process.done()
    log.shorten()


def is_flat(sizes: list[float]) -> bool:
    """Return True if the size is stable since the histories were full, or if they never were."""
    full = sizes[FULL // BLOCK :]
    level = median(full[: max(len(full) // 10, 1)]) if full else 0.0
    return all((1 - FLAT) * level <= size <= (1 + FLAT) * level for size in full)
