"""Events that crash workers, and sites with repeated engine failures: the stream continues."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, DeadLetter, Rebuild, Submit
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint import checkpoint
from streams.worker.checkpoint.crashes import CrashMark
from streams.worker.checkpoint.stored_site import ASIDE_S, MOST_FAILURES
from streams.worker.ownership import partition
from streams.worker.ownership.partition_sites import PartitionSites
from tests.support.fakes import Process
from tests.support.memory_servers import Crash, World
from tests.support.sizes import examples
from tests.support.stored import heads, saved_state, whole

SETTINGS = Settings(
    engine=EngineSettings(method="median", shadows=(), history=8),
    worker=WorkerSettings(checkpoint_events=10, checkpoint_seconds=1e9),
)
POISON = "mallory"


@cache
def events(site: str) -> Sequence[AnyEvent]:
    found = run(generate(3, 30, 32, 0.9), 32, site)
    return tuple(replace(one, user=POISON) if isinstance(one, Submit) and one.job == "17" else one for one in found)


def world_of_two() -> World:
    world = World()
    for pair in zip(events("alder"), events("birch"), strict=True):
        world.arrived = pair[0].time
        world.publish_events(pair)
    return world


def letters(world: World) -> list[DeadLetter]:
    return [msgspec.json.decode(value, type=DeadLetter) for value in dict.fromkeys(world.records("dead-letters"))]


def is_poison(event: AnyEvent) -> bool:
    return isinstance(event, Submit) and (event.site, event.user) == ("alder", POISON)


@pytest.fixture
def unencodable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a state with the event impossible to store, without another effect."""
    of = checkpoint.SiteSnapshot.of.__func__  # type: ignore[attr-defined]

    def failing(kind: type, handle: Any) -> Any:
        jobs = handle.engine.context.state.jobs.values()
        if handle.engine.site == "alder" and any(job.user == POISON for job in jobs):
            raise OverflowError("can't serialize ints >= 2**64")
        return of(kind, handle)

    monkeypatch.setattr(checkpoint.SiteSnapshot, "of", classmethod(failing))
    yield


def deaths(world: World, before_each: Callable[[], None] = lambda: None) -> int:
    """Start workers until one survives; return the number of crashes."""
    for died in range(20):
        before_each()
        process = Process(world, SETTINGS)
        try:
            asyncio.run(process.live())
            return died
        except Exception:
            continue
    raise AssertionError("they die for ever")


@pytest.mark.usefixtures("unencodable")
def test_event_crashing_workers_is_rejected_as_poison(caplog: pytest.LogCaptureFixture) -> None:
    world = world_of_two()
    # Anywhere, in its checkpoint of few, and twice on it. On a busy machine the first worker's checkpoint can be so
    # late that its successor survives its careful events before it comes to this one.
    assert deaths(world) in (4, 5)
    assert caplog.text.count("checkpoints are made every 1 events") == 3, "two crash on it, the third rejects it"
    (letter,) = letters(world)
    poisonous = events("alder")[letter.offset // 2]
    assert letter.reason == "poison" and is_poison(poisonous)
    assert world.committed[0] == len(world.messages[0]) and not world.marks
    other = World()
    other.publish_events(events("birch"))
    asyncio.run(Process(other, SETTINGS).live())
    birch = [value for value in dict.fromkeys(world.records("predictions", "outcomes")) if b'"birch"' in value]
    assert birch == other.records("predictions", "outcomes")


@pytest.mark.usefixtures("unencodable")
@pytest.mark.parametrize("slow", [False, True])
def test_redelivery_and_other_sites_do_not_change_crash_marks(slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world, names = world_of_two(), count(1000)
    if slow:  # so events of the other site are always first
        monkeypatch.setattr(partition, "FIRST_S", 0.0)
        read_back = PartitionSites._read_back

        async def slowly(sites: PartitionSites, site: str) -> None:
            await asyncio.sleep(0.2 if site == "alder" else 0.0)
            await read_back(sites, site)

        monkeypatch.setattr(PartitionSites, "_read_back", slowly)

    def meanwhile() -> None:
        """The last commit is lost with the worker, and jobs arrive at the other site."""
        world.committed.clear()
        world.publish_events([Submit(site="birch", time=events("birch")[-1].time, job=str(next(names)))])

    assert deaths(world, meanwhile) <= 5
    (letter,) = [letter for letter in letters(world) if letter.reason == "poison"]
    assert is_poison(events("alder")[letter.offset // 2]) and not world.marks


@pytest.mark.usefixtures("unencodable")
def test_site_of_poison_event_reports_missed_events() -> None:
    world = world_of_two()
    deaths(world)
    assert saved_state(world.table, "alder").gaps.missed_until > 0
    assert saved_state(world.table, "birch").gaps.missed_until <= 0


@pytest.mark.usefixtures("unencodable")
def test_rebuild_over_a_poisonous_event_is_rejected() -> None:
    world = World()
    for event in events("alder"):
        world.publish_events([event])
        if is_poison(event):
            world.publish(b"alder", msgspec.json.encode(Rebuild(site="alder", time=1.0, by="ada")))
    assert deaths(world) <= 8, "four for the event, as many for the operation"
    event_letter, letter = letters(world)
    assert event_letter.reason == letter.reason == "poison" and "operator_rebuild" in letter.value
    assert world.committed[0] == len(world.messages[0])


def world_of_partitions(count: int) -> World:
    """Return the poisonous site in partition 0, and a site in each other partition."""
    world = World()
    for number in range(count):
        world.publish_events(events("alder" if number == 0 else f"site{number}"), number)
    return world


@pytest.mark.usefixtures("unencodable")
def test_poison_event_among_many_partitions_is_found() -> None:
    world = world_of_partitions(6)
    assert deaths(world) <= 6
    (letter,) = letters(world)
    assert letter.reason == "poison" and letter.site == "alder" and is_poison(events("alder")[letter.offset])
    assert not world.marks and all(world.committed[number] == len(world.messages[number]) for number in range(6))


@examples(50, few=6)
@given(st.lists(st.integers(0, 250), min_size=3, max_size=9))
def test_crashes_without_poison_event_reject_no_event(steps: list[int]) -> None:
    """SIGKILL at any moment outside an event, and errors of servers."""
    world = world_of_partitions(3)
    for number in steps:
        world.steps = number
        with contextlib.suppress(Crash):
            asyncio.run(Process(world, SETTINGS).live())
    world.steps = None
    asyncio.run(Process(world, SETTINGS).live())
    assert not letters(world) and not world.marks


def test_worker_that_ends_cleanly_restores_the_crash_mark() -> None:
    async def ended(world: World) -> None:
        process = Process(world, SETTINGS)
        await process.take_over(0)
        await process.take_all(0)
        await process.done()
        assert world.marks
        await process.owner.restore_crash_mark()

    world = world_of_two()
    asyncio.run(ended(world))
    assert not world.marks, "it found none"
    world.marks[0] = before = msgspec.msgpack.encode(CrashMark(3, ("queuecast.events", 7, 0), ()))
    asyncio.run(ended(world))
    assert world.marks == {0: before}


def test_unreadable_poison_message_is_rejected() -> None:
    world = world_of_two()
    asyncio.run(Process(world, SETTINGS).live())

    async def take_question(crash: bool) -> bool:
        process = Process(world, SETTINGS)
        await process.take_over(0)
        while "alder" not in process.owner:
            await asyncio.sleep(0)
        async with process.owner.doing("birch", "estimates") as may:
            assert may
        async with process.owner.doing("alder", "question", 17) as may:
            if crash and may:
                raise Crash
        await process.hand_over(0)
        return may

    for _ in range(10):
        with contextlib.suppress(Crash):
            if not asyncio.run(take_question(crash=True)):
                break
    else:
        raise AssertionError("they crash for ever")


def test_worker_without_crash_writes_no_crash_marker() -> None:
    world = world_of_two()
    assert deaths(world) == 0 and not world.marks and not letters(world)


def test_crash_mark_of_another_version_counts_as_a_crash() -> None:
    world = world_of_two()
    world.marks[0] = msgspec.msgpack.encode((2, "queuecast.events", 7, 1, 0))
    assert deaths(world) == 0 and not world.marks and not letters(world)


def failing_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Make the engine of alder fail in the middle of each submission after the first `count`."""
    apply = Engine.apply

    def failing(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        records = apply(engine, event, arrived)
        if isinstance(event, Submit) and event.site == "alder" and int(event.job) > count:
            raise OverflowError("Python int too large to convert to C long")
        return records

    monkeypatch.setattr(Engine, "apply", failing)


def test_site_with_repeated_failures_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_after(monkeypatch, 5)
    world = world_of_two()
    for raw in world.messages[0]:
        raw.timestamp = events("alder")[-1].time + raw.offset
    begun, apply = set[int](), Engine.apply

    def counted(engine: Engine, *others: Any) -> Any:
        begun.add(id(engine))
        return apply(engine, *others)

    monkeypatch.setattr(Engine, "apply", counted)
    asyncio.run(Process(world, SETTINGS).live())
    reasons = [letter.reason for letter in letters(world) if letter.reason != "implausible_time"]
    assert reasons[:MOST_FAILURES] == ["engine_failed"] * MOST_FAILURES
    assert set(reasons[MOST_FAILURES:]) == {"set_aside"}
    assert len(begun) <= 2 + MOST_FAILURES, "its state is read back no more often than that"
    assert saved_state(world.table, "alder").gaps.missed_until > 0

    monkeypatch.setattr(Engine, "apply", apply)
    later = len(letters(world))
    world.arrived = world.messages[0][-1].timestamp + 2 * ASIDE_S
    world.publish_events([Submit(site="alder", time=events("alder")[-1].time, job="5000")])
    asyncio.run(Process(world, SETTINGS).live())
    assert [letter.reason for letter in letters(world)[later:]] == ["engine_failed"], "after a while it is tried again"


def test_rebuild_with_failing_event_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_after(monkeypatch, 5)
    world = world_of_two()
    world.publish(b"alder", msgspec.json.encode(Rebuild(site="alder", time=1.0, by="ada")))
    asyncio.run(Process(world, SETTINGS).live())
    assert "at the event of offset" in letters(world)[-1].detail and world.committed[0] == len(world.messages[0])


def test_engine_failures_with_crash_give_same_state(monkeypatch: pytest.MonkeyPatch) -> None:
    failing_after(monkeypatch, 20)
    states = []
    for crash in (None, 40, 90, 140):
        world = world_of_two()
        world.steps = crash
        if crash is not None:
            with pytest.raises(Exception):  # noqa: B017
                asyncio.run(Process(world, SETTINGS).live())
            world.steps = None
        asyncio.run(Process(world, SETTINGS).live())
        stored = {
            site: (one.offset, one.failures, whole(saved_state(world.table, site))) for site, one in heads(world.table)
        }
        states.append((stored, [letter.reason for letter in letters(world)]))
    assert all(state == states[0] for state in states)
