"""Placement of a site: partition of its key, dedicated topic, eviction, and lost events."""

import asyncio
from collections.abc import Iterable
from copy import deepcopy
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from kafka.partitioner.default import DefaultPartitioner

from models.engine.settings import EngineSettings
from models.records import DeadLetter, Start, Submit
from models.simulation import generate, run
from streams.broker.topics import partition_of
from streams.errors import UserError
from streams.settings import Settings, SitesSettings, WorkerSettings
from streams.worker.checkpoint.event_logs import ChangelogRecords
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog, SiteHandle, decode_stored
from streams.worker.intake.intake import EventPlaces
from tests.support.fakes import Process
from tests.support.memory_servers import TOPIC, MemoryTable, World
from tests.support.stored import saved_state

ENGINE = EngineSettings(method="median", shadows=("zero",), history=20)


def settings(sites: SitesSettings | None = None, **worker: Any) -> Settings:
    worker = {"checkpoint_events": 10, "checkpoint_seconds": 1e9} | worker
    return Settings(engine=ENGINE, worker=WorkerSettings(**worker), sites=sites or SitesSettings())


def live(world: World, chosen: Settings, **fakes: Any) -> Process:
    process = Process(world, chosen, **fakes)
    asyncio.run(process.live())
    return process


def read_back(world: World, **fakes: Any) -> SiteHandle:
    """Return the only site as a new worker loads it."""
    process = Process(world, settings(), **fakes)

    async def read() -> SiteHandle:
        await process.take_over(0)
        (handle,) = process.owner.values()
        return handle

    return asyncio.run(read())


def letters(world: World) -> list[tuple[str, int]]:
    found = [msgspec.json.decode(value, type=DeadLetter) for value in world.records("dead-letters")]
    return [(letter.reason, letter.offset) for letter in found]


@pytest.mark.parametrize("site", ["kth", "alder", "ä", "🌲", "x" * 64, "21"])
@pytest.mark.parametrize("partitions", [1, 12, 48])
def test_site_partition_equals_kafka_default_partitioner(site: str, partitions: int) -> None:
    every = set(range(partitions))
    cluster = SimpleNamespace(
        topics=lambda: {"t"}, partitions_for_topic=lambda _: every, available_partitions_for_topic=lambda _: every
    )
    key = site.encode()
    assert partition_of(site, partitions) == DefaultPartitioner().partition("t", site, key, None, None, cluster)


def jobs(site: str, numbers: Iterable[int]) -> list[Any]:
    return [
        event
        for number in numbers
        for event in (
            Submit(site=site, time=10.0 * number, job=str(number), user="ada"),
            Start(site=site, time=10.0 * number + 5.0, job=str(number)),
        )
    ]


def test_events_of_another_partition_are_rejected_unchanged() -> None:
    home = partition_of("alder", 12)
    other = (home + 5) % 12
    world, quiet = World(), World()
    quiet.publish_events(jobs("alder", range(20)), home)
    world.publish_events(jobs("alder", range(20)), home)
    world.publish_events(jobs("alder", range(100, 140)), other)
    places = EventPlaces(settings(), 12)
    live(quiet, settings(), places=places)
    live(world, settings(), places=places)
    assert world.table == quiet.table
    assert list(world.started["alder"]) == list(quiet.started["alder"])
    assert letters(world) == [("wrong_partition", offset) for offset in range(80)]
    assert world.records("predictions") == quiet.records("predictions")


def test_state_in_wrong_partition_raises_user_error() -> None:
    home = partition_of("alder", 12)
    world = World()
    world.publish_events(jobs("alder", range(3)), home)
    live(world, settings(), places=EventPlaces(settings(), 12))
    process = Process(world, settings(), places=EventPlaces(settings(), 13))
    before = dict(world.table), {site: dict(rows) for site, rows in world.started.items()}
    with pytest.raises(UserError, match=r"the state of 'alder' is in partition \d+, to which its key does not belong"):
        asyncio.run(process.take_over(home))
    assert (world.table, world.started) == before


def test_event_places_reject_forbidden_or_misplaced_site() -> None:
    chosen = settings(SitesSettings(allowed=("k*", "ctc"), dedicated_topics=("alder",)))
    places = EventPlaces(chosen, 1)
    for topic, site, reason in (
        (TOPIC, "kth", None),
        (TOPIC, "ctc", None),
        (TOPIC, "ctc2", "site_not_allowed"),
        (TOPIC, "birch", "site_not_allowed"),
        (TOPIC, "alder", "wrong_topic"),
        (f"{TOPIC}.alder", "alder", None),
        (f"{TOPIC}.alder", "kth", "wrong_site"),
    ):
        try:
            assert places.check(topic, 0, site) is topic.endswith("alder")
            found = None
        except Exception as error:
            found = getattr(error, "reason", repr(error))
        assert found == reason, (topic, site)


def test_site_moved_to_dedicated_topic_continues_there() -> None:
    world = World()
    world.publish_events(jobs("alder", range(6)))
    live(world, settings())
    assert decode_stored(world.table[b"alder"]).offset == 11
    world.messages, world.committed = {}, {}
    world.publish_events(jobs("alder", range(6, 8)))
    for message in world.messages[0]:
        message.topic = f"{TOPIC}.alder"
    live(world, settings(SitesSettings(dedicated_topics=("alder",))))
    stored = decode_stored(world.table[b"alder"])
    assert (stored.own, stored.epoch, stored.offset) == (True, 1, 3)
    assert len(world.records("predictions")) == 8


DAY_S = 86_400.0


def test_idle_site_is_evicted_and_again_after_a_crash() -> None:
    world = World()
    for arrived, site in ((DAY_S, "old"), (2 * DAY_S, "new"), (30 * DAY_S, "late"), (402 * DAY_S, "latest")):
        world.arrived = arrived
        world.publish_events(jobs(site, range(2)))
    chosen = settings(max_sites_per_partition=2)
    live(world, chosen)
    assert set(world.table) == {b"new", b"latest"}
    assert set(world.started) == {"new", "latest"}
    assert letters(world) == [("too_many_sites", offset) for offset in range(8, 12)]
    predictions = world.records("predictions")
    world.committed = {}
    live(world, chosen)
    assert set(world.table) == {b"new", b"latest"}
    assert set(world.records("predictions")) == set(predictions)


def test_returning_evicted_site_is_deleted_before_it_restarts() -> None:
    """Otherwise its deletion and expiry would affect the active site."""
    world = World()
    for day, site in ((1, "old"), (500, "new"), (1000, "old")):
        world.arrived = day * DAY_S
        world.publish_events(jobs(site, range(2)))
    live(world, settings(max_sites_per_partition=1, checkpoint_events=1000))
    begun = [place for place, what in enumerate(world.log) if what == "begin old"]
    assert len(begun) == 2 and begun[0] < world.log.index("forget old") < begun[1]
    assert set(world.table) == {b"old"} and set(world.started) == {"old"}
    assert decode_stored(world.table[b"old"]).generation == 0


class Logs:
    """The event topics and the changelog of the world."""

    def __init__(self, world: World, states: list[tuple[bytes, bytes]] | None = None, **ranges: Any) -> None:
        self.world, self.states, self.given = world, states or [], ranges
        self.lost_events: dict[int, int] = {}

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    async def ranges(self, logs: Iterable[PartitionLog]) -> dict[PartitionLog, LogOffsets]:
        first, committed = self.given.get("first", 0), self.given.get("committed")
        return {log: LogOffsets(first, len(self.world.messages[log.partition]), committed) for log in logs}

    def renewed(self, partition: int) -> None:
        raise AssertionError(partition)

    def lost(self, partition: int, events: int) -> None:
        self.lost_events[partition] = events

    async def read(self, log: PartitionLog, first: int, last: int, key: bytes) -> list[Any]:
        return [raw for raw in self.world.messages[log.partition][first : last + 1] if raw.key == key]

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        return self.states[::-1][:most]


class HistoryTable(MemoryTable):
    """A table that records its changelog."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.states: list[tuple[bytes, bytes]] = []

    def arrived(self, key: bytes, value: bytes | None, partition: int) -> None:
        super().arrived(key, value, partition)
        if value is not None:
            self.states.append((key, value))


def simulated(failover: bool = False) -> tuple[World, HistoryTable, World]:
    """Return a processed site with pending events, its changelog, and the uninterrupted run.

    With a failover, Redis has the state of some checkpoints before the last one.
    """
    events = list(run(generate(3, 120, 32, 0.9), 32, "alder"))
    whole, world = World(), World()
    whole.publish_events(events)
    table = HistoryTable(world)
    world.publish_events(events[:225])
    live(world, settings(), table=table)
    before = deepcopy((world.started, world.runs, world.rows))
    world.publish_events(events[225:260])
    live(world, settings(), table=table)
    if failover:
        world.started, world.runs, world.rows = before
    world.publish_events(events[260:])
    live(whole, settings())
    return world, table, whole


def test_lost_redis_entries_are_rebuilt_to_the_byte() -> None:
    world, table, whole = simulated(failover=True)
    assert max(world.started["alder"]) + 3 < saved_state(dict(table.states)).histories.started
    live(world, settings(), events=Logs(world, table.states))
    assert list(dict.fromkeys(world.outputs)) == whole.outputs
    assert not any(b"gap" in value for value in world.records("predictions"))
    assert [(n, row.features.tobytes(), row.wait_s) for n, row in sorted(world.started["alder"].items())] == [
        (n, row.features.tobytes(), row.wait_s) for n, row in sorted(whole.started["alder"].items())
    ]
    assert world.runs["alder"] == whole.runs["alder"]


def test_unrecoverable_entries_are_a_gap_until_they_expire() -> None:
    world, table, _ = simulated()
    before = len(world.records("predictions"))
    kept = dict(world.started["alder"])
    latest = max(kept)
    for number in (latest, latest - 1):
        del world.started["alder"][number]
    live(world, settings(), events=Logs(world, table.states, first=255))
    stored = decode_stored(world.table[b"alder"])
    assert stored.generation == 1
    degraded = [msgspec.json.decode(value)["degraded"] for value in world.records("predictions")[before:]]
    assert degraded[0] == "history has a gap"
    assert degraded[-1] is None
    changes = sum(one != other for one, other in pairwise(degraded))
    assert changes == 1
    # A reload restores the full state and gives the same predictions.
    handle = read_back(world)
    assert len(handle.engine.context.history) == ENGINE.history
    assert handle.generation == 1


def test_events_deleted_unread_mark_predictions_degraded() -> None:
    world, _, _ = simulated()
    before = len(world.records("predictions"))
    world.committed = {0: 300}
    logs = Logs(world, first=300, committed=260)
    live(world, settings(), events=logs)
    assert logs.lost_events == {0: 40}
    degraded = {msgspec.json.decode(value)["degraded"] for value in world.records("predictions")[before:]}
    assert degraded == {"events were lost"}
    handle = read_back(world, events=Logs(world, first=300, committed=len(world.messages[0])))
    assert handle.engine.degraded == "events were lost"


def test_events_deleted_while_running_are_counted_and_reported() -> None:
    world = World()
    world.publish_events(run(generate(3, 120, 32, 0.9), 32, "alder"))
    del world.messages[0][200:240]
    logs = Logs(world)
    process = Process(world, settings(), events=logs)

    async def overtaken() -> None:
        await process.take_over(0)
        for message in world.delivered():
            if message.message.offset == 240:
                logs.given["first"] = 240
            await process.owner.take(message)
        await process.done()
        await process.hand_over(0)

    asyncio.run(overtaken())
    assert logs.lost_events == {0: 40}
    degraded = [msgspec.json.decode(value)["degraded"] for value in world.records("predictions")]
    assert set(degraded[-10:]) == {"events were lost"} and "events were lost" not in degraded[:50]
    handle = read_back(world)
    assert handle.engine.degraded == "events were lost"


def test_offsets_that_are_no_events_are_not_lost() -> None:
    """Offsets of a transactional source; the broker has deleted no record."""
    world = World()
    world.publish_events(run(generate(3, 120, 32, 0.9), 32, "alder"))
    del world.messages[0][1::3]
    logs = Logs(world)
    live(world, settings(), events=logs)
    assert logs.lost_events == {}


def test_owner_age_is_age_of_oldest_non_durable_event() -> None:
    now, world = 100.0, World()
    world.publish_events(jobs("alder", range(1)))
    process = Process(world, settings(), now=lambda: now)

    async def scenario() -> None:
        nonlocal now
        assert process.owner.age_s == 0.0
        await process.take_on(0)
        now += 30.0
        assert process.owner.age_s == 30.0
        await process.hand_over(0)
        assert process.owner.age_s == 0.0

    asyncio.run(scenario())
