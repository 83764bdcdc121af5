"""A site is made again after its engine has failed: as it was, wherever checkpoints fell."""

import asyncio
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Submit, bundled
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.deaths import Deaths
from tests.support.fakes import Process, World
from tests.support.stored import heads, saved_state, whole


def settings(events: int) -> Settings:
    return Settings(
        engine=EngineSettings(method="median", shadows=(), history=8),
        worker=WorkerSettings(checkpoint_events=events, checkpoint_seconds=1e9),
    )


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine fails in the middle of each job of the name `bad`."""
    apply = Engine.apply

    def failing(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        records = apply(engine, event, arrived)
        if getattr(event, "job", "") == "bad":
            raise ZeroDivisionError("float division by zero")
        return records

    monkeypatch.setattr(Engine, "apply", failing)


def submit(site: str, number: int, job: str, old: bool = False) -> Submit:
    return Submit(site=site, time=float(number), job=job, past=old, old=old)


def stored(world: World, events: int) -> Any:
    """What becomes durable of a site with a checkpoint after so many events."""
    asyncio.run(Process(world, settings(events)).live())
    ((_, head),) = heads(world.table)
    return head.offset, head.begun, head.stamp, head.arrivals, head.failures, whole(saved_state(world.table))


def with_refused_parts() -> World:
    """A message comes every 100 s; the last part of each is no event, and the engine fails at two."""
    world = World()
    for number in range(40):
        world.arrived = 1e9 + 100.0 * number
        job = "bad" if number in (10, 38) else str(number)
        world.publish(b"alder", bundled("alder", [msgspec.json.encode(submit("alder", number, job, old=True)), b"7"]))
    return world


def test_how_often_events_come_counts_messages_of_which_a_part_was_refused() -> None:
    one_by_one, together = stored(with_refused_parts(), 1), stored(with_refused_parts(), 40)
    assert one_by_one[3].last == 1e9 + 3900.0 and one_by_one == together == stored(with_refused_parts(), 1000)


@pytest.mark.parametrize("poison", [(1,), (2, 5)])
def test_that_events_were_lost_is_not_forgotten(monkeypatch: pytest.MonkeyPatch, poison: tuple[int, ...]) -> None:
    async def may(_: Deaths, raw: Any, part: int) -> bool:
        return raw.offset not in poison

    monkeypatch.setattr(Deaths, "may", may)

    def world() -> World:
        world = World()
        jobs = ["0", "1", "2", "3", "bad", "5", "6", "bad", "7"]
        world.publish_events([submit("alder", number, job) for number, job in enumerate(jobs)])
        return world

    found = [stored(world(), events) for events in (1, 3, 1000)]
    assert found[0] == found[1] == found[2]
    last = world()
    asyncio.run(Process(last, settings(1000)).live())
    assert b'"degraded":"events were lost' in last.said("predictions")[-1]
