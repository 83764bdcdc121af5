"""While a site waits for a training, other sites continue, and the outputs equal a replay."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.engine.settings import EngineSettings
from models.method_registry import METHODS
from models.records import AnyEvent, Prediction, Start, Submit, bundled
from models.simulation import generate, run
from models.site.notes import Pair
from streams.offline.replay import replay
from streams.settings import Settings, WorkerSettings
from streams.worker.ownership import site_queues
from streams.worker.ownership.site_queues import MAX_WAITING, MemoryBudget
from tests.support.fakes import Process
from tests.support.memory_servers import Crash, World
from tests.support.sizes import examples
from tests.support.stored import heads
from tests.support.trained import Trained

ENGINE = EngineSettings(method="trained", shadows=(), bounds="", what_if_method="trained", history=50)
GATE = threading.Event()


class Gated(Trained):
    """A method whose trainings last until the test releases them."""

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


def test_trained_model_replaces_initial_prediction() -> None:
    records = list(replay(events("alder"), ENGINE))
    reasons = [record.reason for record in records if isinstance(record, Prediction)]
    assert reasons[0] == "no model" and reasons[-1] == "mean"


async def waits(process: Process, partition: int = 0) -> None:
    """Wait until a partition waits for a training."""
    owned = process.partition(partition)
    while not owned._queues.blocked:
        process.raise_error()
        await asyncio.sleep(0)


def test_blocked_site_keeps_others_running_in_order() -> None:
    world, alder, birch = two_partitions(), events("alder"), events("birch")
    GATE.clear()

    async def scenario() -> None:
        process = Process(world, settings(20))
        await process.take_over(0, 1)
        await process.take_all(0)
        await waits(process)
        assert not process.owner.keys() - {"alder"}
        waiting = process.owner["alder"].offset
        assert 5 < waiting < len(alder) - 1
        await process.take_all(1)
        await waits(process, 1)
        assert 5 < process.owner["birch"].offset < len(birch) - 1
        assert process.owner["alder"].offset == waiting
        await process.hand_over(1)
        assert b"birch" in world.table and process.owner.behind

    asyncio.run(scenario())
    GATE.set()
    asyncio.run(Process(world, settings()).live())
    assert set(world.records("predictions", "outcomes")) == expected("alder", "birch")
    values = world.records("predictions", "outcomes")
    for site in ("alder", "birch"):
        records = [value for value in dict.fromkeys(values) if f'"{site}"'.encode() in value]
        assert records == replayed(site)


def test_blocked_site_is_skipped_and_limits_acknowledgement() -> None:
    world = World()
    submitted = [Submit(site="birch", time=event.time, job=str(n)) for n, event in enumerate(events("alder"))]
    for pair in zip(events("alder"), submitted, strict=True):
        world.publish_events(pair)
    GATE.clear()

    async def scenario() -> int:
        process = Process(world, settings(20))
        await process.take_over(0)
        await process.take_all()
        while process.owner.keys() != {"alder", "birch"} or process.owner["birch"].offset < 2 * len(submitted) - 1:
            await asyncio.sleep(0)
        first = process.owner["alder"].offset + 2
        assert process.partition()._queues.blocked == {"alder"} and 5 < first < len(submitted)
        await process.hand_over(0)
        return first

    first = asyncio.run(scenario())
    assert world.committed[0] <= first
    GATE.set()
    asyncio.run(Process(world, settings()).live())
    birch = [msgspec.json.encode(record) for record in replay(submitted, ENGINE)]
    assert set(world.records("predictions", "outcomes")) == {*expected("alder"), *birch}
    assert world.committed[0] == 2 * len(submitted)


def test_new_site_and_junk_are_processed_during_a_training() -> None:
    world = World()
    world.publish_events(events("alder")[:120])
    world.publish_events([Submit(site="cedar", time=events("alder")[120].time, job="1")])
    world.publish(b"nobody", b"junk")
    GATE.clear()

    async def scenario() -> None:
        process = Process(world, settings())
        await process.take_over(0)
        await process.take_all()
        await waits(process)
        for _ in range(100):
            await asyncio.sleep(0)
        assert process.owner.keys() == {"alder", "cedar"} and process.owner["cedar"].offset == 120
        GATE.set()
        await process.done()
        await process.hand_over(0)

    asyncio.run(scenario())
    assert len(world.records("dead-letters")) == 1 and world.committed[0] == 122


@examples(15, few=7)
@given(st.lists(st.integers(0, 600), max_size=3), st.integers(1, 60))
def test_model_takes_effect_at_same_event_after_any_crash(crashes: list[int], checkpoint: int) -> None:
    world = two_partitions()
    for world.steps in crashes:
        try:
            asyncio.run(Process(world, settings(checkpoint)).live())
        except Crash:
            continue
    world.steps = None
    asyncio.run(Process(world, settings(checkpoint)).live())
    assert set(world.records("predictions", "outcomes")) == expected("alder", "birch")


def test_partition_revoked_while_blocked_is_unchanged() -> None:
    world, alder = World(), events("alder")
    world.publish_events(alder)
    GATE.clear()

    async def scenario() -> None:
        process = Process(world, settings())
        await process.take_over(0)
        await process.take_all()
        await waits(process)
        await process.hand_over(0)
        assert not process.owner.behind and process.means.room.free == MAX_WAITING
        offset = msgspec.msgpack.decode(world.table[b"alder"])[2]
        await process.take_over(0)
        await process.take_all()
        GATE.set()
        await process.done()
        assert offset < process.owner["alder"].offset == len(alder) - 1
        await process.hand_over(0)

    asyncio.run(scenario())
    assert world.records("predictions", "outcomes") == replayed("alder")


def test_blocked_site_holds_a_limited_number_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_queues, "REFILL_MESSAGES", 8)
    world = World()
    world.publish_events(events("alder"))
    world.publish_events([Submit(site="cedar", time=events("alder")[-1].time, job="1")])
    GATE.clear()

    async def scenario() -> None:
        process = Process(world, settings(5))
        process.means.room = MemoryBudget(20)
        await process.take_over(0)
        process.partition()._queues._room = process.means.room
        first, *others = world.delivered()
        await process.owner.take(first)  # type: ignore[arg-type]
        await process.done()
        for message in others:
            await process.owner.take(message)  # type: ignore[arg-type]
        await waits(process)
        for _ in range(100):
            await asyncio.sleep(0)
        assert process.owner["cedar"].offset == len(events("alder"))
        assert process.means.room.free > 5 and process.owner.behind > 30
        assert world.committed[0] <= process.owner["alder"].offset + 1
        GATE.set()
        await process.done()
        await process.hand_over(0)
        assert process.means.room.free == 20

    asyncio.run(scenario())
    assert set(world.records("predictions", "outcomes")) >= expected("alder")
    assert world.committed[0] == len(events("alder")) + 1


def test_error_after_training_stops_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.publish_events(events("alder"))
    GATE.clear()
    process = Process(world, settings())

    async def scenario() -> None:
        await process.take_over(0)
        await process.take_all()
        await waits(process)
        monkeypatch.setattr(process.partition()._processing, "_check_gaps", lambda: 1 / 0)
        GATE.set()
        with pytest.raises(ZeroDivisionError):
            await process.done()

    asyncio.run(scenario())


def with_a_bundle(site: str) -> tuple[list[AnyEvent], list[AnyEvent], list[AnyEvent]]:
    """Return jobs that start singly, jobs that start in a bundle with trainings, and later jobs."""
    jobs = list(map(str, range(100)))
    first: list[AnyEvent] = [Submit(site=site, time=float(n), job=job, cpus=1 + n % 3) for n, job in enumerate(jobs)]
    first += [Start(site=site, time=200.0 + n, job=job) for n, job in enumerate(jobs[:8])]
    bundle: list[AnyEvent] = [Start(site=site, time=300.0 + n, job=job) for n, job in enumerate(jobs[8:])]
    rest: list[AnyEvent] = [Submit(site=site, time=500.0 + n, job=f"later{n}", cpus=1 + n % 3) for n in range(9)]
    return first, bundle, rest


def world_with_a_bundle() -> tuple[World, list[bytes]]:
    """Return a world with such a site, and the records of its replay."""
    first, bundle, rest = with_a_bundle("alder")
    world = World()
    world.publish_events(first)
    world.publish(b"alder", bundled("alder", map(msgspec.json.encode, bundle)))
    world.publish_events(rest)
    return world, [msgspec.json.encode(record) for record in replay([*first, *bundle, *rest], ENGINE)]


def test_model_due_within_a_bundle_is_awaited_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    world, replayed = world_with_a_bundle()
    training_started, opened, fit = threading.Event(), threading.Event(), Trained.fit
    trainings = 0

    def fitted(jobs: Iterable[Pair]) -> dict[int, float]:
        nonlocal trainings
        training_started.set()
        assert opened.wait(60), "the loop stands still until the training has ended"
        opened.clear()
        trainings += 1
        return fit(jobs)

    monkeypatch.setattr(Trained, "fit", staticmethod(fitted))
    monkeypatch.setitem(METHODS, "trained", Trained)

    async def opening() -> None:
        while True:
            await asyncio.sleep(0)
            if training_started.is_set():
                training_started.clear()
                opened.set()

    async def scenario() -> None:
        loop = asyncio.ensure_future(opening())
        await Process(world, settings()).live()
        loop.cancel()

    asyncio.run(scenario())
    assert trainings > 2 and world.records("predictions", "outcomes") == replayed


def test_partly_applied_bundle_yields_and_can_move() -> None:
    world, replayed = world_with_a_bundle()
    first, bundle, _ = with_a_bundle("alder")
    world.publish_events([Submit(site="birch", time=1000.0, job=str(n)) for n in range(5)])
    world.messages[0].insert(0, world.messages[0].pop(-1))
    for offset, raw in enumerate(world.messages[0]):
        raw.offset = offset
    GATE.clear()

    async def scenario() -> int:
        process = Process(world, settings(20))
        await process.take_over(0)
        await process.take_all()
        for _ in range(10):  # release trainings until one is awaited within the bundle
            await waits(process)
            if process.owner["alder"].applied_parts:
                break
            GATE.set()
            while process.partition()._queues.blocked:
                await asyncio.sleep(0)
            GATE.clear()
        while process.owner["birch"].offset < len(world.messages[0]) - 1:
            await asyncio.sleep(0)
        begun = process.owner["alder"].applied_parts
        await process.hand_over(0)
        return begun

    begun = asyncio.run(scenario())
    (stored,) = (state for site, state in heads(world.table) if site == "alder")
    assert 0 < begun == stored.applied_parts < len(bundle) and stored.offset == len(first) + 1 == world.committed[0]
    GATE.set()
    asyncio.run(Process(world, settings()).live())
    records = [value for value in dict.fromkeys(world.records("predictions", "outcomes")) if b'"alder"' in value]
    assert records == replayed and world.committed[0] == len(world.messages[0])
