"""Two live workers have one partition: the new owner continues from the last state of the old one."""

import asyncio
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.engine.settings import EngineSettings
from models.simulation import generate, run
from streams.offline.replay import replay
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.claims import Fenced
from streams.worker.checkpoint.event_logs import ChangelogRecords
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.stored_site import decode_stored
from tests.support.fakes import Process
from tests.support.memory_servers import MemoryEvents, MemoryTable, World
from tests.support.sizes import examples

ENGINE = EngineSettings(method="median", shadows=(), history=8)
SETTINGS = Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=7, checkpoint_seconds=1e9))
EVENTS = {site: list(run(generate(3, 40, 32, 0.9), 32, site)) for site in ("alder", "birch")}
EXPECTED = {msgspec.json.encode(record) for events in EVENTS.values() for record in replay(events, ENGINE)}


class Shared(World):
    """A world whose changelog each worker reads by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.changelog: list[tuple[bytes, bytes | None]] = []


class OwnTable(MemoryTable):
    """The table of one worker: the changelog at the time of its restore, and its own writes."""

    def __init__(self, world: Shared) -> None:
        super().__init__(world)
        self.data: dict[bytes, bytes] = {}
        self.read = len(world.changelog)
        for key, value in world.changelog:
            self.take(key, value, 0)

    def get(self, key: bytes) -> bytes | None:
        return self.data.get(key)

    def keys(self) -> Any:
        return self.data.keys()

    def take(self, key: bytes, value: bytes | None, partition: int) -> None:
        before = self.data.get(key)
        if value is None:
            self.data.pop(key, None)
        elif site_of(key) != key or before is None or decode_stored(value).rank >= decode_stored(before).rank:
            self.data[key] = value

    def arrived(self, key: bytes, value: bytes | None, partition: int) -> None:
        self._world.changelog.append((key, value))  # type: ignore[attr-defined]
        if value is None:
            self.data.pop(key, None)
        else:
            self.data[key] = value


class OwnEvents(MemoryEvents):
    """The topics of the worker with that table."""

    def __init__(self, world: Shared, table: OwnTable) -> None:
        super().__init__(world)
        self._table = table

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        first = self._table.read if after is None else after + 1
        await self._world.pause()
        found = self._world.changelog[first:]  # type: ignore[attr-defined]
        return ChangelogRecords(found, first + len(found) - 1)


def process(world: Shared) -> Process:
    table = OwnTable(world)
    return Process(world, SETTINGS, table=table, events=OwnEvents(world, table))


async def old_worker(old: Process, messages: list[Any]) -> None:
    """Process messages until another worker has claimed a site."""
    with suppress(Fenced):
        for message in messages:
            await old.owner.take(message)
            await asyncio.sleep(0)
        await old.done()
        await old.hand_over(0)


@examples(25, few=10)
@given(st.integers(0, 150), st.integers(0, 400))
def test_new_owner_equals_replay_despite_writes_of_the_old(read_at: int, claimed_after: int) -> None:
    world = Shared()
    for pair in zip(*EVENTS.values(), strict=True):
        world.publish_events(pair)

    async def scenario() -> None:
        old = process(world)
        await old.take_over(0)
        working = asyncio.ensure_future(old_worker(old, world.delivered()))
        while (len(world.changelog) < read_at // 10 or len(world.claims) < len(EVENTS)) and not working.done():
            await asyncio.sleep(0)
        new = process(world)  # the takeover reads the changelog to its end
        for _ in range(claimed_after):
            await asyncio.sleep(0)
        await new.take_over(0)
        await new.take_all(0)
        await asyncio.gather(new.done(), working)
        await new.hand_over(0)

    asyncio.run(scenario())
    asyncio.run(third(world))
    assert set(world.records("predictions", "outcomes")) == EXPECTED


async def third(world: Shared) -> None:
    """A third worker finds a state from which it continues to the last event."""
    last = process(world)
    await last.take_over(0)
    await last.take_all(0)
    while len(last.owner) < len(EVENTS):
        await asyncio.sleep(0)
    await last.done()
    offsets = {site: last.owner[site].offset for site in EVENTS}
    assert sorted(offsets.values()) == [len(world.messages[0]) - 2, len(world.messages[0]) - 1]
    await last.hand_over(0)


def test_twins_scenario_without_late_states_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenario above detects a worker that reads the changelog before it claims."""

    async def nothing(*_: Any) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    monkeypatch.setattr(OwnEvents, "late_states", nothing)
    scenario: Any = test_new_owner_equals_replay_despite_writes_of_the_old
    scenario = scenario.hypothesis.inner_test
    with pytest.raises(AssertionError):
        for read_at, claimed_after in product((20, 60, 100, 140), range(0, 400, 40)):
            scenario(read_at, claimed_after)
