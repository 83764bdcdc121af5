"""Processing of messages by a worker, and crashes at any moment."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
import pytest
from faust.types import TP
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, DeadLetter, Heartbeat, Start, Submit
from models.simulation import generate, run
from streams.offline.replay import replay
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint.watchdog import WorkerStalled
from streams.worker.ownership import partition
from tests.support.fakes import Process
from tests.support.memory_servers import TOPIC, Crash, MemoryStore, World
from tests.support.sizes import examples, some
from tests.support.stored import heads, saved_state, whole

ENGINE = EngineSettings(method="median", shadows=("zero",), history=8)
SITES = ("alder", "birch")


def settings(events: int = 1000, **worker: Any) -> Settings:
    """Return settings with a checkpoint only every `checkpoint` events."""
    return Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=events, checkpoint_seconds=1e9, **worker))


@cache
def site(name: str, jobs: int) -> Sequence[AnyEvent]:
    return tuple(run(generate(3, jobs, cpus=32, load=0.9), 32, name))


def by_site(world: World) -> dict[bytes | None, list[tuple[str, bytes]]]:
    """Return the distinct outputs of each site, in order."""
    outputs = dict.fromkeys(world.outputs)
    return {key: [(topic, value) for topic, of, value in outputs if of == key] for _, key, _ in outputs}


def mixed() -> World:
    """Return two sites and a few invalid messages in one partition."""
    world = World()
    events = sorted(site("alder", 100) + site("birch", 30), key=lambda event: event.time)
    world.publish_events(events[:100])
    world.publish(b"alder", b"what?")
    world.publish_events([Capacity(site="alder", time=0.0, cpus=1)])
    world.publish_events(events[100:])
    world.publish(b"cedar", None)
    return world


def live(process: Process) -> None:
    asyncio.run(process.live())


def states(world: World) -> dict[bytes, tuple[int, Any]]:
    """Return the sites' offsets and states, without recent deletions, which depend on the time of storing."""
    found = heads(world.table)
    return {site.encode(): (stored.offset, whole(saved_state(world.table, site))) for site, stored in found}


def histories(world: World) -> dict[str, tuple[list[Any], dict[int, Any], dict[str, Any]]]:
    """Return the entries counted by the sites' states."""
    found = {}
    for site, stored in heads(world.table):
        place = world.place(site, stored.generation)
        rows = [(number, row.features.tobytes(), row.wait_s) for number, row in sorted(world.started[place].items())]
        found[site] = rows, world.runs[place], world.rows[place]
    return found


@pytest.fixture(scope="module")
def undisturbed() -> World:
    world = mixed()
    live(Process(world, settings()))
    return world


def test_worker_outputs_equal_replay(undisturbed: World) -> None:
    messages = [message.value for message in undisturbed.messages[0]]
    events = [msgspec.json.decode(value, type=AnyEvent) for value in messages if value not in (b"what?", None)]
    records = [msgspec.json.encode(record) for record in replay(events, ENGINE) if not hasattr(record, "rejected")]
    for site in (b'"alder"', b'"birch"'):
        of_site = [value for value in undisturbed.records("predictions", "outcomes") if site in value]
        assert of_site == [value for value in records if site in value]
    letters = [msgspec.json.decode(value, type=DeadLetter) for value in undisturbed.records("dead-letters")]
    assert sorted([(one.reason, one.site, one.offset) for one in letters], key=lambda letter: letter[2]) == [
        ("not_json", None, 100),
        ("stale_capacity", "alder", 101),
        ("empty", None, len(messages) - 1),
    ]
    assert undisturbed.committed == {0: len(messages)}


@examples(30, few=6)
@given(st.lists(st.integers(0, 1200), max_size=4), st.integers(1, 120), st.booleans())
@example([0], 1, False)
@example([50, 60, 70, 80], 10, True)
def test_worker_crashes_at_any_step_give_same_outputs(
    undisturbed: World, crashes: list[int], checkpoint: int, eager: bool
) -> None:
    world = mixed()
    world.eager = eager
    for world.steps in crashes:
        try:
            live(Process(world, settings(checkpoint)))
        except Crash:
            assert world.committed.get(0, 0) <= len(world.messages[0])
    world.steps = None
    live(Process(world, settings(checkpoint)))
    assert by_site(world) == by_site(undisturbed)
    assert states(world) == states(undisturbed)
    assert histories(world) == histories(undisturbed)
    assert world.committed == undisturbed.committed


def test_worker_crash_at_each_checkpoint_step_gives_same_state(undisturbed: World) -> None:
    whole = mixed()
    live(Process(whole, settings(10), now=lambda: 0.0))
    forgotten = [run for run in range(1, 60) if run not in whole.runs["alder"]]
    assert forgotten
    assert whole.log[-40:].count("trim alder") > 1
    for steps in some(range(len(whole.log) - 40, len(whole.log)), 6):
        world = mixed()
        world.steps = steps
        with pytest.raises(Crash):
            live(Process(world, settings(10), now=lambda: 0.0))
        world.steps = None
        live(Process(world, settings(10), now=lambda: 0.0))
        assert by_site(world) == by_site(undisturbed)
        assert states(world) == states(undisturbed)
        assert histories(world) == histories(undisturbed)


def a_few(world: World, partition: int = 0) -> World:
    world.publish_events([Submit(site="alder", time=1.0, job="1"), Start(site="alder", time=5.0, job="1")], partition)
    return world


@pytest.fixture
def process() -> Process:
    return Process(a_few(World()), settings())


def test_redelivered_event_is_ignored(process: Process) -> None:
    async def twice() -> None:
        await process.take_over(0)
        await process.take_all()
        await process.take_all()
        await process.done()
        await process.hand_over(0)

    asyncio.run(twice())
    assert len(process.world.outputs) == 2
    assert process.world.committed == {0: 2}


def test_messages_of_unowned_partition_are_ignored(process: Process) -> None:
    async def others() -> None:
        await process.take_over(1)
        await process.take_all(0)
        await process.hand_over(1)

    asyncio.run(others())
    assert process.world.log == []


def test_failing_method_stops_no_site(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = Engine.apply

    def flawed(engine: Engine, event: AnyEvent, arrived: float | None) -> Any:
        if isinstance(event, Start) and event.site == "alder":
            raise ZeroDivisionError("float division by zero")
        return whole(engine, event, arrived)

    monkeypatch.setattr(Engine, "apply", flawed)
    process.world.publish_events([Submit(site="alder", time=6.0, job="2"), Submit(site="birch", time=6.0, job="2")])
    live(process)
    assert len(process.world.records("predictions")) == 3
    (letter,) = (msgspec.json.decode(value, type=DeadLetter) for value in process.world.records("dead-letters"))
    assert (letter.reason, letter.site, letter.offset) == ("engine_failed", "alder", 1)
    assert "ZeroDivisionError" in letter.detail
    (record,) = (record for record in caplog.records if record.name == "streams.worker.ownership.processing")
    assert (record.site, record.partition, record.offset) == ("alder", 0, 1)  # type: ignore[attr-defined]


def test_excess_sites_are_rejected_also_after_a_restart() -> None:
    world = World()
    names = ("a", "b", "c", "a", "c", "b")
    world.publish_events(Submit(site=name, time=1.0, job=str(n)) for n, name in enumerate(names))
    live(Process(world, settings(max_sites_per_partition=2)))
    world.committed = {}
    live(Process(world, settings(max_sites_per_partition=2)))
    letters = [msgspec.json.decode(value, type=DeadLetter) for value in world.records("dead-letters")]
    assert [(one.reason, one.offset) for one in letters] == [("too_many_sites", 2), ("too_many_sites", 4)] * 2
    assert set(world.table) == {b"a", b"b"}


def test_heartbeat_of_unknown_site_takes_no_place() -> None:
    world = World()
    world.publish_events([Heartbeat(site="b", time=1.0), Submit(site="a", time=2.0, job="1")])
    world.publish_events([Heartbeat(site="c", time=3.0)])
    live(Process(world, settings(max_sites_per_partition=1)))
    assert set(world.table) == {b"a"}
    assert world.records("dead-letters") == []
    assert len(world.records("predictions")) == 1


@pytest.mark.parametrize("crashes", [[700], [150, 400], [40, 80, 200, 200]])
def test_sites_restored_by_their_next_event_give_same_records(
    undisturbed: World, crashes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "FIRST_S", -1.0)
    world = mixed()
    for world.steps in crashes:
        process = Process(world, settings(20))
        with suppress(Crash):
            live(process)
    world.steps = None
    process = Process(world, settings(20))

    async def scenario() -> None:
        await process.take_over(0)
        assert not list(process.owner)
        assert all(process.owner.is_restoring(key.decode()) for key in world.table)
        await process.live()

    asyncio.run(scenario())
    assert by_site(world) == by_site(undisturbed)
    assert states(world) == states(undisturbed)
    assert histories(world) == histories(undisturbed)


def test_late_final_checkpoint_is_skipped_for_next_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(MemoryStore):
        async def write(self, *_: Any) -> None:
            await asyncio.Event().wait()

    world = a_few(World())
    process = Process(world, settings(), store=Stuck)
    with monkeypatch.context() as hasty:
        hasty.setattr(partition, "HAND_OVER_S", 0.05)
        live(process)
    assert list(process.owner) == []
    assert (world.table, world.committed) == ({}, {})
    live(Process(world, settings()))
    assert world.committed == {0: 2}
    assert len(set(world.outputs)) == 2


def test_stalled_process_raises_worker_stalled() -> None:
    now = 1000.0
    process = Process(a_few(World()), settings(), clock=lambda: now)
    process.pulse.check()
    now += 29.0
    process.pulse.check()
    now += 31.0
    with pytest.raises(WorkerStalled, match="stood still for 31 s"):
        process.pulse.check()
    with pytest.raises(WorkerStalled, match="stood still"):
        live(process)


def test_late_prediction_is_marked_in_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    world, now = World(), 10_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    for arrived, job in ((now - 60.0, "1"), (now - 75.9, "2"), (now + 5.0, "3")):
        world.arrived = arrived
        world.publish_events([Submit(site="alder", time=1.0, job=job), Start(site="alder", time=2.0, job=job)])
    process = Process(world, settings(late_after_seconds=60.0))
    live(process)
    marks = [
        (topic.rpartition(".")[2], headers) for (topic, *_), headers in zip(world.outputs, world.headers, strict=True)
    ]
    assert [headers for topic, headers in marks if topic == "predictions"] == [[], [("late", b"75")], []]
    assert not any(headers for topic, headers in marks if topic != "predictions")
    assert b"queuecast_late_predictions_total 1.0" in generate_latest(process.metrics.registry)

    world.committed, world.table, now = {}, {}, now + 1000.0
    live(Process(world, settings(late_after_seconds=60.0)))
    half = len(world.outputs) // 2
    assert world.outputs[half:] == world.outputs[:half]
    assert [headers for headers in world.headers[half:] if headers] == [
        [("late", b"1060")],
        [("late", b"1075")],
        [("late", b"995")],
    ]


def test_returning_partition_has_no_gap_from_other_owners() -> None:
    world = mixed()
    process = Process(world, settings())
    asyncio.run(process.live())
    world.committed[0] += 10  # by another worker
    world.messages[0] += world.messages[0][:10]

    async def come_back() -> None:
        await process.take_over(0)
        assert {process.freshness.of(handle).lag_messages for handle in process.owner.values()} == {0}

    asyncio.run(come_back())
    process.metrics.lag(process.freshness, [TP(TOPIC, 0)])
    assert "queuecast_consumer_lag_messages{" not in generate_latest(process.metrics.registry).decode()
