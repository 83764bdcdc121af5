"""Redis loses its last writes while a worker runs: the worker restores them without visible effect."""

import asyncio
import gc
import logging
import weakref
from copy import deepcopy
from functools import partial
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.settings import EngineSettings
from models.records import bundled
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.claims import Fenced, WritesLost
from streams.worker.checkpoint.owned_table import OwnershipToken
from tests.support.changelog import Changelog
from tests.support.events import as_history
from tests.support.fakes import Process
from tests.support.memory_servers import MemoryStore, World

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=(), history=20), worker=WorkerSettings(checkpoint_events=10)
)
EVENTS = list(run(generate(3, 120, 32, 0.9), 32, "alder"))
LENGTH = 17


class Forgetful(MemoryStore):
    """Lose the last `writes` writes, with their deletions, at write number `after`."""

    def __init__(self, world: World, token: OwnershipToken, after: int, writes: int) -> None:
        super().__init__(world, token)
        self._after, self._writes = after, writes
        self._before: list[Any] = []
        self._lost = False

    async def claim(self, site: str, after: int = 0) -> int:
        self._lost = False
        return await super().claim(site, after)

    async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
        self._check()
        kept = (self._world.started, self._world.runs, self._world.rows)
        self._before.append(deepcopy(kept))
        if len(self._before) == self._after:
            self._world.started, self._world.runs, self._world.rows = deepcopy(self._before[-self._writes])
            self._lost = True
        self._check()
        await super().write(site, changes, generation)

    async def trim(self, site: str, oldest: int, changes: Changes, generation: int = 0) -> None:
        self._check()
        await super().trim(site, oldest, changes, generation)

    def _check(self) -> None:
        if self._lost:
            raise WritesLost("it has fewer writes")


def publish(world: World, together: bool) -> None:
    """Publish the events one by one, or as historical bundles."""
    if not together:
        return world.publish_events(EVENTS)
    history = as_history(EVENTS, predicted=20)
    for begin in range(0, len(history), LENGTH):
        world.publish(b"alder", bundled("alder", map(msgspec.json.encode, history[begin : begin + LENGTH])))


def over(world: World, after: int = 10**9, writes: int = 1, compacted: bool = False, together: bool = False) -> Process:
    """Return a worker process."""
    publish(world, together)
    table = Changelog(world, compacted)
    return Process(world, SETTINGS, store=partial(Forgetful, after=after, writes=writes), table=table, events=table)


def lived(after: int = 10**9, writes: int = 1, compacted: bool = False, together: bool = False) -> World:
    """Run a worker and return its world."""
    world = World()
    asyncio.run(over(world, after, writes, compacted, together).live())
    return world


def entries(world: World) -> Any:
    """Return the entries of Redis in comparable form."""
    started = {number: (row.features.tobytes(), row.wait_s) for number, row in world.started["alder"].items()}
    return started, world.runs["alder"], world.rows["alder"]


@pytest.mark.parametrize("writes", [1, 2, 4, 8])
@pytest.mark.parametrize("after", [9, 20, 30])
@pytest.mark.parametrize("together", [False, True])  # also checkpoints in the middle of bundles
def test_lost_redis_writes_are_restored_by_running_worker(after: int, writes: int, together: bool) -> None:
    world, whole = lived(after, writes, together=together), lived(together=together)
    assert world.outputs == whole.outputs
    assert world.committed == whole.committed
    assert entries(world) == entries(whole)
    assert world.started.keys() == {"alder"}


def test_engines_used_for_recovery_are_freed_immediately(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[weakref.ref[Engine]] = []
    init = Engine.__init__

    def noted(engine: Engine, *args: Any, **keywords: Any) -> None:
        made.append(weakref.ref(engine))
        init(engine, *args, **keywords)

    monkeypatch.setattr(Engine, "__init__", noted)
    caplog.set_level(logging.CRITICAL)  # it keeps errors with their frames
    process = over(World(), after=20, writes=4)
    gc.disable()
    try:
        asyncio.run(process.live())
        assert len(made) > 2
        assert [engine() for engine in made] == [None] * len(made)  # also the worker's own engine: it handed over
    finally:
        gc.enable()


def test_unrecoverable_redis_writes_end_the_worker() -> None:
    with pytest.raises(RuntimeError, match="cannot be rebuilt"):
        lived(after=20, writes=4, compacted=True)


def test_another_workers_claim_ends_a_worker() -> None:
    class Taken(MemoryStore):
        async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
            raise Fenced("another worker has it")

    world = World()
    world.publish_events(EVENTS[:9])
    with pytest.raises(Fenced):
        asyncio.run(Process(world, SETTINGS, store=Taken).live())
    assert (world.table, world.committed) == ({}, {})


def test_unexpectedly_invalid_entries_do_not_stop_the_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    half, world = len(EVENTS) // 2, World()
    world.publish_events(EVENTS[:half])
    asyncio.run(Process(world, SETTINGS).live())
    load = Engine.load.__func__  # type: ignore[attr-defined]

    def failing(cls: type[Engine], saved: Any, started: Any, *others: Any) -> Engine:
        if started is not None:
            raise KeyError("a category")
        engine: Engine = load(cls, saved, started, *others)
        return engine

    monkeypatch.setattr(Engine, "load", classmethod(failing))
    world.publish_events(EVENTS[half:])
    asyncio.run(Process(world, SETTINGS).live())
    assert world.committed[0] == len(world.messages[0])
    assert "The state and the entries do not fit" in caplog.text
    assert "The remaining entries cannot be restored" in caplog.text
