"""The order in which things become durable, and what a ledger does when Redis or its partition goes away."""

import asyncio
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from models.engine.checkpoint import Changes
from models.engine.settings import EngineSettings
from models.records import End, Start, Submit
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.retries import RETRY_S
from streams.worker.checkpoint.stored import Log, Range, SiteHandle, StoredState, decode_stored, offset_of
from streams.worker.ownership.ledger import Ledger
from tests.support.fakes import MemoryStore, MemoryTable, Message, Process, World

ENGINE = EngineSettings(method="median", shadows=(), history=20)
WORKER = WorkerSettings(checkpoint_events=5, checkpoint_seconds=2.0)


def a_few(world: World, site: str = "alder", partition: int = 0) -> World:
    submit, start = Submit(site=site, time=1.0, job="1", user="ada"), Start(site=site, time=5.0, job="1")
    world.publish_events([submit, start, End(site=site, time=9.0, job="1")], partition)
    return world


def live(world: World, **fakes: Any) -> Process:
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), **fakes)
    asyncio.run(process.live())
    return process


def test_things_become_durable_in_the_order_that_makes_them_safe() -> None:
    world = a_few(a_few(World()), "birch")
    live(world)
    sends = ["send queuecast.predictions", "send queuecast.outcomes", "send queuecast.outcomes"]
    assert (
        world.log
        == [
            "begin alder",
            "begin birch",
            *sends,
            *sends[:2],  # the fifth event fills the checkpoint
            "write alder",
            "write birch",
            "table alder",
            "table birch",
            "trim alder",
            "trim birch",
            *(f"ack {offset}" for offset in range(5)),
            *sends[2:],
            "write birch",
            "table birch",
            "trim birch",
            "ack 5",
        ]
    )


@pytest.fixture
def clock() -> Iterator[list[float]]:
    yield [1000.0]


def over(world: World, clock: list[float]) -> Ledger:
    return Ledger(MemoryTable(world), MemoryStore(world), ENGINE, WORKER, lambda: clock[0])


def test_a_checkpoint_is_due_when_pending_events_are_many_or_old(clock: list[float]) -> None:
    world = a_few(a_few(World(), partition=0), partition=7)
    ledger = over(world, clock)
    ledger.record(0, Message(world, world.messages[0][0]), None, [])
    clock[0] += 1.0
    for _ in range(4):
        ledger.record(7, Message(world, world.messages[7][0]), None, [])
    assert (ledger.due(), ledger.full(7)) == ([], False)
    ledger.record(7, Message(world, world.messages[7][1]), None, [])
    assert (ledger.due(), ledger.full(7), ledger.full(0)) == ([7], True, False)
    clock[0] += 1.0
    assert ledger.due() == [0, 7]
    asyncio.run(ledger.checkpoint(0))
    assert ledger.due() == [7]
    assert world.committed == {0: 1}


def test_a_site_without_a_state_begins_without_what_redis_holds_of_its_name_and_leaves_it_there() -> None:
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


def test_stored_sites_of_the_partitions_are_served_before_their_next_event(clock: list[float]) -> None:
    world = World()
    for partition, site in enumerate(("alder", "birch", "cedar")):
        a_few(world, site, partition)
    live(world)
    ledger = over(world, clock)
    asyncio.run(ledger.take_over({0, 2}))
    assert {
        site: (handle.partition, handle.offset, handle.engine.events) for site, handle in ledger.handles.items()
    } == {
        "alder": (0, 2, 3),
        "cedar": (2, 2, 3),
    }
    ledger.drop({0})
    assert set(ledger.handles) == {"cedar"}


def test_where_redis_has_lost_entries_a_site_begins_its_histories_anew(clock: list[float]) -> None:
    world = a_few(World())
    live(world)
    world.started, world.runs, world.log = {}, {}, []

    async def handle(ledger: Ledger) -> SiteHandle:
        return await ledger.handle("alder", 0)

    found = asyncio.run(handle(over(world, clock)))
    assert found.engine.lost
    assert found.offset == 2
    assert world.log == ["read alder", "begin alder"]


def test_a_state_of_another_version_is_not_read(clock: list[float]) -> None:
    world = a_few(World())
    live(world)
    stored = msgspec.msgpack.decode(world.table[b"alder"], type=StoredState)
    stored.state = zlib.compress(msgspec.msgpack.encode({"v": 99}))
    world.table[b"alder"] = msgspec.msgpack.encode(stored)
    with pytest.raises(ValueError, match="state of version 99"):
        asyncio.run(over(world, clock).take_over({0}))


class Renewed:
    """An events topic that has these ends, and what was said about it; away at first."""

    def __init__(self, ends: dict[int, int], failures: int = 0) -> None:
        self.partitions: list[int] = []
        self._ends, self._failures = ends, failures

    async def ranges(self, logs: Iterable[Log]) -> dict[Log, Range]:
        self._failures -= 1
        if self._failures >= 0:
            raise ConnectionError("no leader")
        return {log: Range(0, self._ends[log.partition]) for log in logs}

    def renewed(self, partition: int) -> None:
        self.partitions.append(partition)


def places(world: World) -> dict[str, tuple[int, int]]:
    """The epoch and offset of each stored state."""
    return {site.decode(): offset_of(value) for site, value in world.table.items()}


def test_where_the_topic_ends_before_the_states_do_they_begin_a_new_epoch(clock: list[float]) -> None:
    world = a_few(a_few(World(), "alder", 0), "birch", 1)  # which go up to offset 2
    live(world)
    assert places(world) == {"alder": (0, 2), "birch": (0, 2)}
    before, states = dict(world.table), {site: msgspec.msgpack.decode(value)[3] for site, value in world.table.items()}
    ledger = over(world, clock)
    ledger.loader.events = events = Renewed({0: 2, 1: 3})
    asyncio.run(ledger.take_over({0, 1}))
    assert events.partitions == [0]
    assert {site: (handle.epoch, handle.offset) for site, handle in ledger.handles.items()} == {
        "alder": (1, -1),
        "birch": (0, 2),
    }
    assert places(world) == {"alder": (1, -1), "birch": (0, 2)}
    assert world.table[b"birch"] == before[b"birch"]
    assert {site: msgspec.msgpack.decode(value)[3] for site, value in world.table.items()} == states

    world.messages, world.committed = {}, {}
    world.publish_events([Submit(site="alder", time=20.0, job="2")])
    process = live(world, table=MemoryTable(world))
    assert places(world)["alder"] == (1, 0)
    assert process.world.said("predictions")
    ledger = over(world, clock)
    ledger.loader.events = events = Renewed({0: 1, 1: 3})
    asyncio.run(ledger.take_over({0, 1}))
    assert events.partitions == []


def test_the_ends_of_the_topic_are_waited_for(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    world = a_few(World())
    live(world)
    ledger = over(world, clock)
    ledger.loader.events = Renewed({0: 3}, failures=2)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        assert ledger.trouble == "kafka: the ends of partitions failed: no leader"

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(ledger.take_over({0}))
    assert pauses == list(RETRY_S[:2])
    assert ledger.trouble is None
    assert places(world) == {"alder": (0, 2)}


def test_a_state_from_before_there_were_epochs_is_of_the_first() -> None:
    old = msgspec.msgpack.encode([1, 3, 17, b"state"])
    assert offset_of(old) == (0, 17)
    assert msgspec.msgpack.decode(old, type=StoredState) == StoredState(1, 3, 17, b"state", 0)
    later = [
        StoredState(1, 3, 17, b""),
        StoredState(1, 3, 18, b""),
        StoredState(1, 3, -1, b"", 1),
        StoredState(1, 3, 2, b"", 1),
    ]
    offsets = [offset_of(msgspec.msgpack.encode(one)) for one in later]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == 4


class Away(MemoryStore):
    """A Redis that is away for the first attempts at each thing."""

    def __init__(self, world: World, failures: int, error: Exception) -> None:
        super().__init__(world)
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

    async def begin(self, site: str) -> int:
        self._try("begin")
        return await super().begin(site)


@pytest.mark.parametrize("error", [redis.ConnectionError("gone"), redis.TimeoutError("slow"), ConnectionResetError()])
def test_a_redis_that_is_away_is_waited_for_and_nothing_is_left_out(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    pauses: list[float] = []
    process: Process
    troubles: list[str | None] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        troubles.append(process.ledger.trouble)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    world, quiet = a_few(World()), a_few(World())
    live(quiet)
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), store=Away(world, 7, error))
    asyncio.run(process.live())
    assert pauses == [*RETRY_S, RETRY_S[-1], RETRY_S[-1]] * 3
    assert world.log == quiet.log
    assert [str(trouble).split(" alder")[0] for trouble in troubles[::7]] == [
        "redis: looking",
        "redis: writing",
        "redis: trimming",
    ]
    assert process.ledger.trouble is None


def test_another_error_of_redis_is_not_hidden() -> None:
    with pytest.raises(TypeError):
        live(a_few(World()), store=Away(World(), 1, TypeError("a bug")))


def test_a_partition_that_is_taken_away_in_the_middle_is_left_where_it_is(clock: list[float]) -> None:
    class Taken(MemoryStore):
        ledger: Ledger

        async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
            self.ledger.drop({0})
            await super().write(site, changes, generation)

    world = a_few(World())
    store = Taken(world)
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), store=store)
    store.ledger = process.ledger
    asyncio.run(process.live())
    assert "write alder" in world.log
    assert world.table == {}
    assert world.committed == {}


def test_a_partition_that_is_taken_away_while_it_is_trimmed_is_not_acknowledged() -> None:
    class Taken(MemoryStore):
        ledger: Ledger

        async def trim(self, site: str, oldest: int, changes: Changes, generation: int = 0) -> None:
            self.ledger.drop({0})
            await super().trim(site, oldest, changes, generation)

    world = a_few(World())
    store = Taken(world)
    process = Process(world, Settings(engine=ENGINE, worker=WORKER), store=store)
    store.ledger = process.ledger
    asyncio.run(process.live())
    assert set(world.table) == {b"alder"}
    assert world.committed == {}


def test_nothing_is_written_once_that_is_forbidden() -> None:
    world = World()
    world.publish_events(run(generate(1, 20, 32, 0.9), 32, "alder"))
    process = Process(world, Settings(engine=ENGINE, worker=WorkerSettings()))

    def forbidden() -> None:
        if any(entry.startswith("send") for entry in world.log):
            raise RuntimeError("no more")

    process.ledger.before_write = forbidden
    with pytest.raises(RuntimeError, match="no more"):
        asyncio.run(process.live())
    assert (world.started, world.table, world.committed) == ({}, {}, {})
