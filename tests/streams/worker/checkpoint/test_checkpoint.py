"""Order of durable writes, and loss of Redis or of the partition."""

import asyncio
import zlib
from collections.abc import Iterable
from functools import partial
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest
import redis
from tenacity import AsyncRetrying

from models.engine.histories import Changes
from models.engine.settings import EngineSettings
from models.records import End, Start, Submit
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint import owned_table
from streams.worker.checkpoint.checkpoint import PendingEvents
from streams.worker.checkpoint.event_logs import ChangelogRecords
from streams.worker.checkpoint.owned_table import RETRY_S, OwnershipToken
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog, StoredState, decode_stored
from streams.worker.checkpoint.watchdog import WorkerStalled
from streams.worker.ownership.owner import CHECKPOINT_TURNS
from tests.support.fakes import Process
from tests.support.memory_servers import MemoryStore, World

ENGINE = EngineSettings(method="median", shadows=(), history=20)
WORKER = WorkerSettings(checkpoint_events=5, checkpoint_seconds=2.0)


def a_few(world: World, site: str = "alder", partition: int = 0) -> World:
    submit, start = Submit(site=site, time=1.0, job="1", user="ada"), Start(site=site, time=5.0, job="1")
    world.publish_events([submit, start, End(site=site, time=9.0, job="1")], partition)
    return world


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses (s) between attempts at a server, without sleeping."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(owned_table, "AsyncRetrying", partial(AsyncRetrying, sleep=sleep))
    return waited


def live(world: World, **fakes: Any) -> Process:
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), **fakes)
    asyncio.run(process.live())
    return process


def test_checkpoint_writes_are_durable_in_safe_order() -> None:
    world = a_few(a_few(World()), "birch")
    live(world, now=lambda: 0.0)
    sends = ["send queuecast.predictions", "send queuecast.outcomes", "send queuecast.outcomes"]
    assert world.log == [
        "begin alder",
        "begin birch",
        *sorted(sends * 2, reverse=True)[:-1],  # the fifth event fills the checkpoint
        "write alder",
        "write birch",
        "table alder",
        "table birch",
        "trim alder",
        "trim birch",
        "commit 5",
        sends[2],
        "write birch",
        "table birch",
        "trim birch",
        "commit 6",
    ]


async def taken_over(world: World, *partitions: int, **fakes: Any) -> Process:
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), **fakes)
    await process.take_over(*partitions)
    return process


def test_checkpoint_is_due_when_pending_events_are_many_or_old() -> None:
    now, message = 1000.0, Mock()
    pending = PendingEvents(5, 2.0, lambda: now)
    assert (pending.due, pending.since, pending.take()) == (False, None, None)
    pending.batch.events += 4
    now += 1.0
    assert (pending.due, pending.since) == (False, 1000.0)
    pending.batch.events += 1
    assert pending.due
    batch = pending.take()
    assert batch is not None and batch.size == 5 and not pending.due
    pending.batch.messages.append(message)
    now += 2.0
    assert pending.due


def test_due_checkpoint_runs_without_a_further_event() -> None:
    now, world = 1000.0, a_few(World())

    async def scenario() -> None:
        nonlocal now
        process = await taken_over(world, 0, now=lambda: now)
        await process.take_all()
        await process.done()
        process.owner.checkpoint_due()
        now += 2.0
        process.owner.checkpoint_due()
        process.owner.checkpoint_due()
        while not world.committed:
            await asyncio.sleep(0)
        assert world.committed == {0: 3} and world.log.count("table alder") == 1
        assert process.owner.checkpointed is not None
        await process.hand_over(0)

    asyncio.run(scenario())


def test_partitions_due_together_each_get_a_timely_checkpoint() -> None:
    now, world, partitions = 1000.0, World(), range(50)
    for partition in partitions:
        a_few(world, f"site{partition}", partition)

    async def scenario() -> None:
        nonlocal now
        process = Process(world, Settings(engine=ENGINE, worker=WORKER), now=lambda: now)
        await process.take_on(*partitions)
        now += 2.0
        for turn in range(1, CHECKPOINT_TURNS + 1):
            process.owner.checkpoint_due()
            async with asyncio.timeout(60.0):
                while len(world.committed) < min(3 * turn, 50):
                    await asyncio.sleep(0)
            assert sum(process.partition(number).is_due for number in partitions) == max(50 - 3 * turn, 0)
        await process.hand_over(*partitions)

    asyncio.run(scenario())


def test_site_without_state_ignores_and_keeps_old_redis_entries() -> None:
    old = a_few(World())
    live(old)
    world = World()
    world.started, world.runs = old.started, old.runs
    a_few(world)
    world.messages[0] = world.messages[0][:1]
    live(world)
    assert world.started == {"alder": old.started["alder"], "alder 1": {}}
    assert world.runs["alder 1"] == {}
    assert decode_stored(world.table[b"alder"]).generation == 1


def test_stored_sites_are_served_before_their_next_event() -> None:
    world = World()
    for partition, site in enumerate(("alder", "birch", "cedar")):
        a_few(world, site, partition)
    live(world)

    async def scenario() -> None:
        process = await taken_over(world, 0, 2)
        found = {site: (one.partition, one.offset, one.engine.events) for site, one in process.owner.items()}
        assert found == {"alder": (0, 2, 3), "cedar": (2, 2, 3)}
        await process.hand_over(0)
        assert set(process.owner) == {"cedar"} and process.owner.partitions == {2}
        await process.take_over(0)  # its other entries are dropped
        assert set(process.owner) == {"alder"}

    asyncio.run(scenario())


def test_lost_redis_entries_reset_the_histories() -> None:
    world = a_few(World())
    live(world)
    world.started, world.runs, world.log = {}, {}, []

    async def scenario() -> None:
        found = (await taken_over(world, 0)).owner["alder"]
        assert found.engine.parts.gaps.lost
        assert found.offset == 2
        assert world.log == ["read alder", "begin alder"]

    asyncio.run(scenario())


def test_state_of_other_version_raises_value_error() -> None:
    world = a_few(World())
    live(world)
    stored = msgspec.msgpack.decode(world.table[b"alder"], type=StoredState)
    stored.state = zlib.compress(msgspec.msgpack.encode({"v": 99}))
    world.table[b"alder"] = msgspec.msgpack.encode(stored)
    with pytest.raises(ValueError, match="state has version 99"):
        asyncio.run(taken_over(world, 0))


class Renewed:
    """An events topic with these end offsets that records renewed partitions; it fails at first."""

    def __init__(self, ends: dict[int, int], failures: int = 0) -> None:
        self.partitions: list[int] = []
        self._ends, self._failures = ends, failures

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    async def ranges(self, logs: Iterable[PartitionLog]) -> dict[PartitionLog, LogOffsets]:
        self._failures -= 1
        if self._failures >= 0:
            raise ConnectionError("no leader")
        return {log: LogOffsets(0, self._ends[log.partition]) for log in logs}

    def renewed(self, partition: int) -> None:
        self.partitions.append(partition)


def places(world: World) -> dict[str, tuple[int, int]]:
    """Return the epoch and offset of each stored state."""
    return {site.decode(): decode_stored(value).position[:2] for site, value in world.table.items()}


def test_states_beyond_the_topic_end_start_a_new_epoch() -> None:
    world = a_few(a_few(World(), "alder", 0), "birch", 1)  # which go up to offset 2
    live(world)
    assert places(world) == {"alder": (0, 2), "birch": (0, 2)}
    before, states = dict(world.table), {site: msgspec.msgpack.decode(value)[3] for site, value in world.table.items()}
    events = Renewed({0: 2, 1: 3})

    async def scenario() -> None:
        process = await taken_over(world, 0, 1, events=events)
        assert {site: (one.epoch, one.offset) for site, one in process.owner.items()} == {
            "alder": (1, -1),
            "birch": (0, 2),
        }

    asyncio.run(scenario())
    assert events.partitions == [0]
    assert places(world) == {"alder": (1, -1), "birch": (0, 2)}
    assert world.table[b"birch"] == before[b"birch"]
    assert {site: msgspec.msgpack.decode(value)[3] for site, value in world.table.items()} == states

    world.messages, world.committed = {}, {}
    world.publish_events([Submit(site="alder", time=20.0, job="2")])
    live(world)
    assert places(world)["alder"] == (1, 0)
    assert world.records("predictions")
    events = Renewed({0: 1, 1: 3})
    asyncio.run(taken_over(world, 0, 1, events=events))
    assert events.partitions == []


def test_take_over_retries_until_topic_ends_are_available(pauses: list[float]) -> None:
    world = a_few(World())
    live(world)
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), events=Renewed({0: 3}, failures=2))
    asyncio.run(process.take_over(0))
    assert pauses == list(RETRY_S[:2])
    assert process.owner.obstacle is None
    assert places(world) == {"alder": (0, 2)}


def test_later_state_is_of_the_later_epoch_or_offset() -> None:
    later = [
        StoredState(2, 3, 17, b""),
        StoredState(2, 3, 18, b"", applied_parts=7),
        StoredState(2, 3, 18, b"", applied_parts=8),
        StoredState(2, 3, 18, b""),
        StoredState(2, 3, -1, b"", 1),
        StoredState(2, 3, 2, b"", 1),
    ]
    positions = [decode_stored(msgspec.msgpack.encode(one)).position for one in later]
    assert positions == sorted(positions)
    assert len(set(positions)) == 6


class Away(MemoryStore):
    """A Redis that fails the first attempts at each operation."""

    def __init__(self, world: World, token: OwnershipToken, failures: int, error: Exception) -> None:
        super().__init__(world, token)
        self._left = dict.fromkeys(("write", "trim", "begin"), failures)
        self._error = error

    def _try(self, what: str) -> None:
        self._left[what] -= 1
        if self._left[what] >= 0:
            raise self._error

    async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
        self._try("write")
        await super().write(site, changes, generation)

    async def trim(self, site: str, oldest: int, changes: Changes, generation: int = 0) -> None:
        self._try("trim")
        await super().trim(site, oldest, changes, generation)

    async def begin(self, site: str, after: int = -1) -> int:
        self._try("begin")
        return await super().begin(site, after)


@pytest.mark.parametrize("error", [redis.ConnectionError("gone"), redis.TimeoutError("slow"), ConnectionResetError()])
def test_unreachable_redis_is_retried_without_loss(pauses: list[float], error: Exception) -> None:
    world, quiet = a_few(World()), a_few(World())
    live(quiet)
    process = live(world, store=partial(Away, failures=7, error=error))
    assert pauses == [*RETRY_S, RETRY_S[-1], RETRY_S[-1]] * 3
    assert world.log == quiet.log
    assert process.owner.obstacle is None


def test_owner_reports_redis_obstacle_while_retrying() -> None:
    world = a_few(World())

    async def scenario() -> None:
        process = await taken_over(world, 0, store=partial(Away, failures=1, error=redis.ConnectionError("gone")))
        await process.take_all()
        while process.owner.obstacle is None:
            await asyncio.sleep(0)
        assert process.owner.obstacle == "redis: looking alder failed: gone"

    asyncio.run(scenario())


def test_redis_error_of_other_kind_is_raised() -> None:
    with pytest.raises(TypeError):
        live(a_few(World()), store=partial(Away, failures=1, error=TypeError("a bug")))


def test_checkpoint_after_stall_writes_no_state() -> None:
    world, now = World(), 1000.0
    world.publish_events(run(generate(1, 20, 32, 0.9), 32, "alder"))

    class Sleepy(World):
        def __init__(self) -> None:
            self.__dict__ = world.__dict__

        def step(self, what: str) -> None:
            nonlocal now
            super().step(what)
            now += 100.0 if what.startswith("send") else 0.0

    with pytest.raises(WorkerStalled, match="stood still"):
        live(Sleepy(), clock=lambda: now)
    assert (world.started, world.table, world.committed) == ({}, {}, {})
