"""While a site waits for a training, all else goes on, and what comes out is what a replay gives."""

import asyncio
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Prediction
from models.registry import METHODS
from models.simulation import generate, run
from models.site.notes import Pair
from streams.offline.replay import replay
from streams.settings import Settings, WorkerSettings
from streams.worker.ownership import parking
from tests.support.fakes import Crash, Process, World
from tests.support.trained import Trained

ENGINE = EngineSettings(method="trained", shadows=(), bounds="", what_if="trained", history=50)
GATE = threading.Event()


class Gated(Trained):
    """Its trainings take as long as a test wants."""

    def __init__(self) -> None:
        super().__init__()
        fit = self.training._fit

        def gated(jobs: Iterable[Pair]) -> dict[int, float]:
            assert GATE.wait(60)
            return fit(jobs)

        self.training._fit = gated


@pytest.fixture(autouse=True)
def method(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(METHODS, "trained", Gated)
    GATE.set()
    yield
    GATE.set()


def settings(events: int = 1000) -> Settings:
    return Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=events, checkpoint_seconds=1e9))


@cache
def events(site: str) -> list[AnyEvent]:
    return list(run(generate(3, 60, cpus=32, load=0.9), 32, site))


def expected(*sites: str) -> set[bytes]:
    return {value for site in sites for value in replayed(site)}


@cache
def replayed(site: str) -> list[bytes]:
    return [msgspec.json.encode(record) for record in replay(events(site), ENGINE)]


def two_partitions() -> World:
    world = World()
    world.publish_events(events("alder"), 0)
    world.publish_events(events("birch"), 1)
    return world


def test_models_come_into_force() -> None:
    records = list(replay(events("alder"), ENGINE))
    reasons = [record.reason for record in records if isinstance(record, Prediction)]
    assert reasons[0] == "no model" and reasons[-1] == "mean"


def test_other_partitions_and_checkpoints_go_on_and_nothing_is_out_of_order() -> None:
    world, alder, birch = two_partitions(), events("alder"), events("birch")
    GATE.clear()
    process = Process(world, settings(20))

    async def scenario() -> None:
        await process.processor.take_over({0, 1})
        for message in world.delivered(0):
            await process.processor.take(message)
        assert process.processor.parking and not process.ledger.handles.keys() - {"alder"}
        waiting = process.ledger.handles["alder"].offset
        assert 5 < waiting < len(alder) - 1
        before = Engine("birch", ENGINE)
        for message, event in zip(world.delivered(1), birch, strict=True):
            if before.pending() is not None:
                break
            before.apply(event)
            await process.processor.take(message)
            process.processor.pulse.check()
        assert process.ledger.handles["birch"].offset > 5
        assert process.ledger.handles["alder"].offset == waiting
        await process.ledger.checkpoint(1)
        assert b"birch" in world.table

    asyncio.run(scenario())
    GATE.set()
    asyncio.run(Process(world, settings()).live())
    assert set(world.said("predictions", "outcomes")) == expected("alder", "birch")
    values = world.said("predictions", "outcomes")
    for site in ("alder", "birch"):
        said = [value for value in dict.fromkeys(values) if f'"{site}"'.encode() in value]
        assert said == replayed(site)


@checks(max_examples=15)
@given(st.lists(st.integers(0, 600), max_size=3), st.integers(1, 60))
def test_wherever_it_dies_a_model_counts_from_the_same_event(crashes: list[int], checkpoint: int) -> None:
    world = two_partitions()
    for world.steps in crashes:
        try:
            asyncio.run(Process(world, settings(checkpoint)).live())
        except Crash:
            continue
    world.steps = None
    asyncio.run(Process(world, settings(checkpoint)).live())
    assert set(world.said("predictions", "outcomes")) == expected("alder", "birch")


def test_a_partition_that_is_taken_away_meanwhile_is_left_as_it_is() -> None:
    world, alder = World(), events("alder")
    world.publish_events(alder)
    GATE.clear()
    process = Process(world, settings())

    async def scenario() -> None:
        processor = process.processor
        await processor.take_over({0})
        for message in world.delivered():
            await processor.take(message)
        assert processor.parking
        await processor.hand_over({0})
        assert not processor.parking
        offset = msgspec.msgpack.decode(world.table[b"alder"])[2]
        await processor.take_over({0})
        for message in world.delivered():
            await processor.take(message)
        GATE.set()
        while processor.parking:
            await asyncio.sleep(0.001)
        assert offset < process.ledger.handles["alder"].offset == len(alder) - 1
        await processor.hand_over({0})

    asyncio.run(scenario())
    assert world.said("predictions", "outcomes") == replayed("alder")


def test_only_so_many_messages_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "MOST_PARKED", 4)
    world = World()
    world.publish_events(events("alder"))
    GATE.clear()
    process = Process(world, settings())

    async def scenario() -> None:
        await process.processor.take_over({0})
        taken = 0

        async def take() -> None:
            nonlocal taken
            for message in world.delivered():
                await process.processor.take(message)
                taken += 1

        taking = asyncio.ensure_future(take())
        while not process.processor.parking:
            await asyncio.sleep(0)
        done = process.ledger.handles["alder"].offset
        deadline = time.monotonic() + 0.2
        while time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        assert taken <= done + 1 + 1 + 4
        GATE.set()
        await taking
        while process.processor.parking:
            await asyncio.sleep(0.001)
        await process.processor.hand_over({0})

    asyncio.run(scenario())
    assert set(world.said("predictions", "outcomes")) == expected("alder")


def test_an_error_in_what_waited_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.publish_events(events("alder"))
    GATE.clear()
    process = Process(world, settings())

    async def scenario() -> None:
        await process.processor.take_over({0})
        for message in world.delivered():
            await process.processor.take(message)
        monkeypatch.setattr(process.ledger, "record", lambda *_: 1 / 0)
        GATE.set()
        while process.error is None:
            await asyncio.sleep(0.001)

    asyncio.run(scenario())
    assert isinstance(process.error, ZeroDivisionError)
