"""A site is rebuilt after an engine failure, with the same state for any position of checkpoints."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import BUSY, AnyEvent, NoAnswer, SiteAnswer, SiteQuestion, Submit, bundled
from streams.settings import Settings, WorkerSettings
from streams.worker.answers.answering import Answering
from streams.worker.checkpoint.crashes import CrashTracker, Place
from streams.worker.checkpoint.event_logs import LogGaps
from tests.support.fakes import Process
from tests.support.memory_servers import MemoryStore, World
from tests.support.stored import heads, saved_state, whole


def settings(events: int) -> Settings:
    return Settings(
        engine=EngineSettings(method="median", shadows=(), history=8),
        worker=WorkerSettings(checkpoint_events=events, checkpoint_seconds=1e9),
    )


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the engine fail in the middle of each job named `bad`."""
    apply = Engine.apply

    def failing(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        records = apply(engine, event, arrived)
        if getattr(event, "job", "") == "bad":
            raise ZeroDivisionError("float division by zero")
        return records

    monkeypatch.setattr(Engine, "apply", failing)


def submit(site: str, number: int, job: str, old: bool = False) -> Submit:
    return Submit(site=site, time=float(number), job=job, historical=old, old=old)


def stored(world: World, events: int) -> Any:
    """Return the durable state of a site with a checkpoint every `events` events."""
    asyncio.run(Process(world, settings(events)).live())
    ((_, head),) = heads(world.table)
    return head.offset, head.applied_parts, head.stamp, head.arrivals, head.failures, whole(saved_state(world.table))


def with_refused_parts() -> World:
    """A message arrives every 100 s; the last part of each is invalid, and the engine fails at two events."""
    world = World()
    for number in range(40):
        world.arrived = 1e9 + 100.0 * number
        job = "bad" if number in (10, 38) else str(number)
        world.publish(b"alder", bundled("alder", [msgspec.json.encode(submit("alder", number, job, old=True)), b"7"]))
    return world


def test_arrival_rate_counts_partly_rejected_messages() -> None:
    one_by_one, together = stored(with_refused_parts(), 1), stored(with_refused_parts(), 40)
    assert one_by_one[3].last == 1e9 + 3900.0 and one_by_one == together == stored(with_refused_parts(), 1000)


@pytest.mark.parametrize("poison", [(1,), (2, 5)])
def test_missed_events_stay_recorded_after_rebuild(monkeypatch: pytest.MonkeyPatch, poison: tuple[int, ...]) -> None:
    @asynccontextmanager
    async def doing(_: CrashTracker, place: Place) -> AsyncIterator[bool]:
        yield place[1] not in poison

    monkeypatch.setattr(CrashTracker, "doing", doing)
    monkeypatch.setattr(CrashTracker, "has_no_suspect", False)

    def world() -> World:
        world = World()
        jobs = ["0", "1", "2", "3", "bad", "5", "6", "bad", "7"]
        world.publish_events([submit("alder", number, job) for number, job in enumerate(jobs)])
        return world

    found = [stored(world(), events) for events in (1, 3, 1000)]
    assert found[0] == found[1] == found[2]
    last = world()
    asyncio.run(Process(last, settings(1000)).live())
    assert b'"degraded":"events were lost' in last.records("predictions")[-1]


class Slow(MemoryStore):
    """A store that delays claims until the test allows them."""

    may: asyncio.Event

    async def claim(self, site: str, after: int = 0) -> int:
        await self.may.wait()
        return await super().claim(site, after)


def test_repair_lets_others_continue_and_defers_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    async def is_gap(_: LogGaps, place: Any, expected: int, found: int) -> bool:
        return True

    monkeypatch.setattr(LogGaps, "is_one", is_gap)
    world = World()
    world.publish_events([submit("alder", 0, "0"), submit("birch", 0, "0"), submit("alder", 1, "bad")])
    world.publish_events([*(submit("birch", number, str(number)) for number in range(1, 9)), submit("alder", 2, "2")])

    async def scenario() -> None:
        Slow.may = asyncio.Event()
        Slow.may.set()
        process = Process(world, settings(1000), store=Slow)
        await process.take_over(0)
        messages = world.delivered(0)
        answering = Answering(process.owner, process.freshness, is_restoring=process.owner.is_restoring)
        for message in messages[:2]:
            await process.owner.take(message)
        await process.done()
        Slow.may.clear()
        failed = process.owner["alder"]
        for message in messages[2:-2]:
            await process.owner.take(message)
        while process.owner["birch"].offset < 9:
            await asyncio.sleep(0)
        answer = answering.answer(SiteQuestion(id="1", site="alder"))
        assert isinstance(answer, NoAnswer) and answer.reason == BUSY, answer
        await process.owner.take(messages[-1])  # one is skipped, perhaps of alder
        for _ in range(100):
            await asyncio.sleep(0)
        Slow.may.set()
        await process.done()
        answer = answering.answer(SiteQuestion(id="2", site="alder"))
        assert isinstance(answer, SiteAnswer) and not process.owner.is_restoring("alder")
        assert process.owner["alder"] is not failed, "who is making estimates by the engine that failed stops"
        assert {process.owner[site].engine.degraded for site in ("alder", "birch")} == {"events were lost"}
        await process.hand_over(0)

    asyncio.run(scenario())
