"""Operator commands for a site: applied once, in the order of its events, also after a crash."""

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.records import AnyOperation, DeadLetter, ForgetJob, Rebuild, SetCapacity, Start, Submit
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.stored_site import StoredState
from tests.support.fakes import Process
from tests.support.memory_servers import Crash, World
from tests.support.stored import saved_state

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=(), history=20),
    worker=WorkerSettings(checkpoint_events=1000, checkpoint_seconds=1e9),
)


def live(world: World) -> StoredState:
    asyncio.run(Process(world, SETTINGS).live())
    return stored(world)


def stored(world: World) -> StoredState:
    return msgspec.msgpack.decode(world.table[b"alder"], type=StoredState)


def state_of(found: StoredState) -> Any:
    return saved_state({}, stored=found)


def send(world: World, operation: AnyOperation, arrived: float) -> None:
    world.arrived = arrived
    world.publish(operation.site.encode(), msgspec.json.encode(operation))


def begun(jobs: int = 2) -> World:
    world = World()
    world.publish_events(Submit(site="alder", time=float(n), job=str(n), cpus=4) for n in range(jobs))
    return world


def test_forgotten_job_stays_removed_after_start_event() -> None:
    world = begun()
    send(world, ForgetJob(site="alder", time=5.0, by="ada", why="lost", job="1"), 1000.0)
    world.arrived = 0.0
    world.publish_events([Start(site="alder", time=9.0, job="1"), Start(site="alder", time=9.0, job="0")])
    found = live(world)
    assert [job.id for job in state_of(found).live.jobs] == ["0"]
    (done,) = found.operations
    assert (done.by, done.why, done.at, done.done) == ("ada", "lost", 1000.0, "job 1, queued, is forgotten")
    assert live(world).operations == found.operations


def test_operator_capacity_replaces_capacity_of_site() -> None:
    world = begun()
    send(world, SetCapacity(site="alder", time=1e9, by="ada", cpus=430), 1000.0)
    capacity = state_of(live(world)).capacity
    assert (capacity.cpus, capacity.time) == (430, 1.0)


def test_operation_for_unknown_site_becomes_dead_letter() -> None:
    world = begun()
    send(world, Rebuild(site="elm", time=1.0, by="ada"), 1000.0)
    live(world)
    (letter,) = world.records("dead-letters")
    assert msgspec.json.decode(letter, type=DeadLetter).reason == "unknown_site"


def rebuilt() -> World:
    world = World()
    world.publish_events(run(generate(3, 60, cpus=32, load=0.9), 32, "alder"))
    send(world, Rebuild(site="alder", time=1.0, by="ada"), 1000.0)
    return world


def test_rebuilt_site_equals_state_of_its_events() -> None:
    plain = World()
    plain.publish_events(run(generate(3, 60, cpus=32, load=0.9), 32, "alder"))
    expected, world = state_of(live(plain)), rebuilt()
    found = live(world)
    again = state_of(found)
    assert [job.id for job in again.live.jobs] == [job.id for job in expected.live.jobs]
    counts = [(of.events, of.histories.started, of.histories.runs) for of in (again, expected)]
    assert counts[0] == counts[1]
    assert [done.rebuilt for done in found.operations] == [True]
    assert world.outputs == plain.outputs


@pytest.mark.parametrize("steps", range(0, 400, 40))
def test_rebuild_after_crash_gives_same_state(steps: int) -> None:
    undisturbed, world = rebuilt(), rebuilt()
    live(undisturbed)
    world.steps = steps
    with suppress(Crash):
        live(world)
    world.steps = None
    live(world)
    again, expected = state_of(stored(world)), state_of(stored(undisturbed))
    again.histories.forgotten = expected.histories.forgotten = []
    assert again.histories.started == expected.histories.started and [job.id for job in again.live.jobs] == [
        job.id for job in expected.live.jobs
    ]
    assert list(dict.fromkeys(world.outputs)) == undisturbed.outputs


def test_repeated_rebuilds_are_rejected() -> None:
    world = rebuilt()
    for number in range(3):
        send(world, Rebuild(site="alder", time=1.0, by="eve"), 1001.0 + number)
    assert len(live(world).operations) == 1
    reasons = [msgspec.json.decode(letter, type=DeadLetter).reason for letter in world.records("dead-letters")]
    assert reasons == ["rebuilt_lately"] * 3


def test_operation_message_is_not_counted_as_lag() -> None:
    world = World()
    world.publish_events(list(run(generate(3, 20, cpus=32, load=0.9), 32, "alder")))
    world.publish(b"alder", msgspec.json.encode(SetCapacity(site="alder", time=1e9, by="ada", cpus=64)))
    one = Process(world, SETTINGS)

    async def read_all() -> None:
        await one.take_on(0)
        assert one.freshness.of(one.owner["alder"]).lag_messages == 0

    asyncio.run(read_all())
