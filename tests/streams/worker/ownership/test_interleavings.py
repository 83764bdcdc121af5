"""A partition is revoked at each moment at which its worker waits, while its events arrive.

The next owner continues at the same time. At any moment, the first worker writes nothing after it released the
partition, both workers keep running, and the outputs equal those of an undisturbed run.
"""

import asyncio
import copy
from functools import cache
from itertools import count
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Rebuild, Submit
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.ownership import partition
from tests.support.fakes import Process
from tests.support.memory_servers import MemoryStore, Message, World
from tests.support.sizes import mostly_long, some
from tests.support.stored import heads, saved_state, whole

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=(), history=8),
    worker=WorkerSettings(checkpoint_events=7, checkpoint_seconds=1e9, max_sites_per_partition=3),
)
POISON = "13"
LATER_S = 1e8


def begun() -> World:
    """Return a world of its own with two stored sites and pending events."""
    return copy.deepcopy(_begun())


@cache
def _begun() -> World:
    """Return two stored sites and pending events.

    The events include one that fails in the engine, a rebuild and an eviction. Some offsets hold no event.
    """
    world = World()
    events = sorted(
        [*run(generate(3, 22, 32, 0.9), 32, "alder"), *run(generate(4, 12, 32, 0.9), 32, "birch")],
        key=lambda event: event.time,
    )
    for event in (Submit(site="silent", time=1.0, job="1"), *events):
        world.arrived = event.time
        world.publish_events([event])
    del world.messages[0][20::9]
    asyncio.run(Process(world, SETTINGS).live())
    world.messages[0] += more(world)
    return world


def more(world: World) -> list[Any]:
    later = World()
    first = world.messages[0][-1].offset + 3
    later.messages[0] = [SimpleNamespace()] * first
    for place, event in enumerate(run(generate(5, 14, 32, 0.9), 32, "alder")):
        later.arrived = event.time + LATER_S
        later.publish_events([msgspec.structs.replace(event, time=later.arrived)])
        if place == 9:
            later.publish(b"birch", msgspec.json.encode(Rebuild(site="birch", time=later.arrived, by="ada")))
        if place == 16:
            later.publish_events([Submit(site=site, time=later.arrived, job="1") for site in ("elm", "oak", "silent")])
    return later.messages[0][first:]


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the engine of any worker fail in the middle of one event."""
    apply = Engine.apply

    def failing(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        records = apply(engine, event, arrived)
        if isinstance(event, Submit) and (event.site, event.job, event.time > LATER_S) == ("alder", POISON, True):
            raise ZeroDivisionError("float division by zero")
        return records

    monkeypatch.setattr(Engine, "apply", failing)


class First(World):
    """The world of the first worker, whose partition is revoked after a number of pauses.

    `after` lists the changes of that worker after it released the partition (`free`).
    """

    def __init__(self, world: World, pauses: int) -> None:
        super().__init__()
        self.__dict__ |= world.__dict__
        self.revoked, self.free, self.after = asyncio.Event(), False, list[str]()
        self._pauses = pauses

    async def pause(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self.revoked.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    def step(self, what: str) -> None:
        self._note(what)
        super().step(what)

    def claim(self, site: str, owner: object) -> None:
        self._note(f"claim {site}")
        super().claim(site, owner)

    def _note(self, what: str) -> None:
        if self.free and not what.startswith(("send", "read", "begin")):
            self.after.append(what)


def delivered(world: World) -> list[Message]:
    """Topics as Kafka gives them to a new owner; offsets are not list indices here."""
    return [Message(raw) for raw in world.messages[0] if raw.offset >= world.committed.get(0, 0)]


async def taken(process: Process, world: World) -> None:
    await process.take_over(0)
    for message in delivered(world):
        await process.owner.take(message)
        await asyncio.sleep(0)
    await process.done()


def end(world: World) -> Any:
    states = {site: (stored.offset, whole(saved_state(world.table, site))) for site, stored in heads(world.table)}
    by_site = sorted(dict.fromkeys(world.outputs), key=lambda output: output[1] or b"")
    return states, world.committed, by_site


async def story(world: World, moment: int, seconds: float = 5.0) -> tuple[bool, list[str]]:
    """Revoke the partition at a moment, with a limited time for the last checkpoint.

    Returns:
        True if that moment was reached, and the later changes of the first worker.
    """
    seen = First(world, moment)
    first = Process(seen, SETTINGS)
    working = asyncio.ensure_future(taken(first, seen))
    revoked = asyncio.ensure_future(seen.revoked.wait())
    await asyncio.wait([working, revoked], return_when=asyncio.FIRST_COMPLETED)
    came = not working.done()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(partition, "HAND_OVER_S", seconds)
        await first.hand_over(0)
    seen.free = True
    second = Process(world, SETTINGS)
    await taken(second, world)
    await working
    await second.hand_over(0)
    revoked.cancel()
    assert first.error is None and second.error is None
    return came, seen.after


@pytest.mark.parametrize("seconds", mostly_long([5.0, 0.0]))
def test_revocation_at_any_await_leaves_one_active_owner(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "FIRST_S", -1.0)
    undisturbed = begun()
    asyncio.run(story(undisturbed, 10**9))
    expected = end(undisturbed)
    for moment in some(count(1), 3):
        world = begun()
        came, after = asyncio.run(story(world, moment, seconds))
        assert after == [], moment
        assert end(world) == expected, moment
        if not came:
            break
    assert moment > 90


def test_partition_waiting_for_redis_does_not_block_others() -> None:
    class Slow(MemoryStore):
        async def write(self, site: str, *others: Any) -> None:
            if site == "alder":
                await asyncio.Event().wait()
            await super().write(site, *others)

    world = World()
    for number, site in enumerate(("alder", "birch")):
        world.publish_events(run(generate(3, 30, 32, 0.9), 32, site), number)

    async def scenario() -> None:
        process = Process(world, SETTINGS, store=Slow)
        await process.take_over(0, 1)
        await process.take_all(0)
        await process.take_all(1)
        while len(process.partition(1)):
            await asyncio.sleep(0)
        assert len(process.partition(0)) > 0, "it waits for its first checkpoint before it begins the second"
        await process.hand_over(1)
        assert world.committed == {1: len(world.messages[1])}

    asyncio.run(scenario())
