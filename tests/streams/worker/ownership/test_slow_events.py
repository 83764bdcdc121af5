"""An event with a slow part delays only its own site, and the records equal a replay."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, Partition, Pool, Start, Submit, bundled
from models.site.areas import Areas
from streams.offline.replay import replay
from streams.settings import Settings, WorkerSettings
from tests.support.fakes import Process
from tests.support.memory_servers import World

ENGINE = EngineSettings(method="median", shadows=(), bounds="", what_if_method="median", history=50)
SETTINGS = Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=50, checkpoint_seconds=1e9))
PARTITIONS = [Partition(name="thin", pools=["thin"]), Partition(name="fat", pools=["fat"])]


def capacity(time: float, thin: int) -> Capacity:
    pools = [Pool(name="thin", nodes=thin, cpus=8), Pool(name="fat", nodes=2, cpus=8)]
    return Capacity(site="alder", time=time, cpus=8 * thin + 16, pools=pools, partitions=PARTITIONS)


def submits(site: str, count: int, begin: float) -> list[AnyEvent]:
    return [
        Submit(site=site, time=begin + number, job=f"{begin}-{number}", cpus=2, queue=("thin", "fat")[number % 2])
        for number in range(count)
    ]


ALDER: list[AnyEvent] = [
    *submits("alder", 300, 1000.0),
    capacity(2000.0, 4),
    *submits("alder", 20, 2001.0),
    capacity(3000.0, 5),
    capacity(3000.5, 6),
    Start(site="alder", time=3001.0, job="1000.0-0"),
]
BIRCH = submits("birch", 40, 1000.0)


def records(events: Sequence[AnyEvent]) -> list[bytes]:
    return [msgspec.json.encode(record) for record in replay(events, ENGINE)]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of steps of each filling of the areas."""
    counts: list[int] = []
    fill = Areas.fill

    def counted(areas: Areas):  # type: ignore[no-untyped-def]
        counts.append(0)
        for _ in fill(areas):
            counts[-1] += 1
            yield

    monkeypatch.setattr("models.site.areas.JOBS_PER_STEP", 2)
    monkeypatch.setattr(Areas, "fill", counted)
    return counts


def test_other_sites_are_served_during_a_slow_event(steps: list[int]) -> None:
    world = World()
    world.publish_events(ALDER[:-3])
    world.publish(b"alder", bundled("alder", map(msgspec.json.encode, ALDER[-3:-1])))
    world.publish_events(ALDER[-1:])
    world.publish_events(BIRCH)

    asyncio.run(Process(world, SETTINGS).live())
    assert steps == [150, 160, 160]  # one for each change of the areas
    found = world.records("predictions", "outcomes")
    assert set(found) == {*records(ALDER), *records(BIRCH)}
    for site, expected in (("alder", records(ALDER)), ("birch", records(BIRCH))):
        assert [value for value in found if f'"{site}"'.encode() in value] == expected
    assert found.index(records(BIRCH)[-1]) < found.index(records(ALDER)[-1])


def test_slow_part_error_rejects_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.publish_events([*ALDER[:321], *BIRCH])

    def broken(areas: Areas):  # type: ignore[no-untyped-def]
        yield
        raise ZeroDivisionError("an area without CPUs")

    monkeypatch.setattr(Areas, "fill", broken)
    asyncio.run(Process(world, SETTINGS).live())
    letters = [msgspec.json.decode(value) for value in world.records("dead-letters")]
    assert [letter["reason"] for letter in letters] == ["engine_failed"]
    assert set(world.records("predictions")) == {*records([*ALDER[:300], *ALDER[301:321]]), *records(BIRCH)}
