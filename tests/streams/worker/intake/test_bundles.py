"""Bundles of historical events: same effect as single events, and one bad event affects no other."""

import asyncio
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import MAX_EVENTS, AnyEvent, DeadLetter, Rebuild, Requeue, Submit, bundled
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.checkpoint import checkpoint
from streams.worker.checkpoint.loader import EVENTS_PER_TURN
from streams.worker.checkpoint.stored_site import SiteHandle
from streams.worker.intake.messages import Unreadable, read_site_message
from streams.worker.ownership import runs
from tests.support.events import as_history
from tests.support.fakes import Process
from tests.support.memory_servers import Crash, World
from tests.support.stored import saved_state, whole

SETTINGS = Settings(
    engine=EngineSettings(method="boosted", shadows=("median",), runtimes="closest", history=64),
    worker=WorkerSettings(checkpoint_events=40, checkpoint_seconds=1e9),
)
LENGTH = 17


@cache
def history_and_rest() -> tuple[list[AnyEvent], list[AnyEvent]]:
    """Return a site's history, with predictions for its last jobs, and the events after it."""
    events = list(run(generate(3, 180, cpus=32, load=0.9), 32, "alder"))
    cut = [place for place, one in enumerate(events) if isinstance(one, Submit)][150]
    return as_history(events[:cut], predicted=50), events[cut:]


def sent(old: Iterable[AnyEvent], rest: Iterable[AnyEvent], length: int = LENGTH) -> World:
    """Return a world with the historical events in bundles."""
    world, left = World(), iter(old)
    while part := list(islice(left, length)):
        world.publish(b"alder", bundled("alder", map(msgspec.json.encode, part)))
    world.publish_events(rest)
    return world


def learnt(world: World) -> Any:
    """Return the durable state without offsets."""
    learnt = msgspec.msgpack.encode([world.started, world.runs, world.rows], enc_hook=lambda array: array.tobytes())
    return whole(saved_state(world.table)), learnt


def letters(world: World) -> Iterator[DeadLetter]:
    return (msgspec.json.decode(value, type=DeadLetter) for value in world.records("dead-letters"))


def test_bundles_train_as_their_single_events() -> None:
    old, rest = history_and_rest()
    one_by_one, together = World(), sent(old, rest)
    one_by_one.publish_events([*old, *rest])
    for world in (one_by_one, together):
        asyncio.run(Process(world, SETTINGS).live())
    assert len(old) > 10 * LENGTH and learnt(one_by_one) == learnt(together)
    assert one_by_one.records("predictions", "outcomes", "dead-letters") == together.records(
        "predictions", "outcomes", "dead-letters"
    )


@pytest.fixture(scope="module")
def undisturbed() -> World:
    world = sent(*history_and_rest())
    asyncio.run(Process(world, SETTINGS).live())
    return world


@pytest.mark.parametrize("steps", range(3, 60, 8))
def test_bundles_after_crash_give_same_state(steps: int, undisturbed: World) -> None:
    broken = sent(*history_and_rest())
    broken.steps = steps
    with pytest.raises((Crash, ExceptionGroup)):
        asyncio.run(Process(broken, SETTINGS).live())
    broken.steps = None
    asyncio.run(Process(broken, SETTINGS).live())
    assert learnt(undisturbed) == learnt(broken)


def as_if_not_there(world: World, old: list[AnyEvent], bad: int, rest: list[AnyEvent]) -> bool:
    """Check that the durable state equals the state without the event."""
    other = sent([*old[:bad], *old[bad + 1 :]], rest)
    asyncio.run(Process(other, SETTINGS).live())
    return bool(learnt(world) == learnt(other)) and distinct_records(world) == distinct_records(other)


def distinct_records(world: World) -> list[bytes]:
    return list(dict.fromkeys(world.records("predictions", "outcomes")))


BAD = 2 * LENGTH + 5


def test_bundle_event_failing_in_engine_is_rejected_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    old, rest = history_and_rest()
    bad, apply = old[BAD], Engine.apply

    def failing(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        found = apply(engine, event, arrived)
        if event == bad:
            raise ZeroDivisionError("float division by zero")
        return found

    monkeypatch.setattr(Engine, "apply", failing)
    world = sent(old, rest)
    asyncio.run(Process(world, SETTINGS).live())
    monkeypatch.undo()
    (letter,) = (one for one in letters(world) if one.reason == "engine_failed")
    assert (letter.offset, letter.part) == (2, 5) and msgspec.json.decode(letter.value, type=AnyEvent) == bad
    assert as_if_not_there(world, old, BAD, rest)


def test_bundle_event_crashing_workers_is_rejected_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    old, rest = history_and_rest()
    bad, apply, of = old[BAD], Engine.apply, checkpoint.SiteSnapshot.of
    doomed = set[int]()  # engines whose state cannot be stored

    def deadly(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        if event == bad:
            doomed.add(id(engine))
        return apply(engine, event, arrived)

    def failing(handle: SiteHandle) -> Any:
        if id(handle.engine) in doomed:
            raise OverflowError("can't serialize ints >= 2**64")
        return of(handle)

    monkeypatch.setattr(Engine, "apply", deadly)
    monkeypatch.setattr(checkpoint.SiteSnapshot, "of", failing)
    world, deaths = sent(old, rest), 0
    while world.committed.get(0) != len(world.messages[0]) and deaths < 9:
        doomed.clear()
        try:
            asyncio.run(Process(world, SETTINGS).live())
        except Exception:
            deaths += 1
    monkeypatch.undo()
    assert deaths == 4, "anywhere, in its checkpoint of few, and twice on it"
    (letter,) = {one.reason: one for one in letters(world)}.values()
    assert (letter.reason, letter.offset, letter.part) == ("poison", 2, 5)
    assert saved_state(world.table).gaps.missed_until > 0
    assert msgspec.json.decode(letter.value, type=AnyEvent) == bad


LINE = b'{"v":1,"site":"alder","type":"submit","time":1.0,"job":"1","historical":true,"old":true'


@pytest.mark.parametrize(
    ("reason", "value", "message"),
    [
        ("version", LINE.replace(b'"v":1', b'"v":2') + b"}", "version 2; this reads up to 1"),
        ("unknown_type", LINE.replace(b"submit", b"dance") + b"}", "'dance'; expected one of submit"),
        ("unknown_type", bundled("alder", [LINE + b"}"]), "'bundle'; expected one of submit"),
        ("malformed", LINE + b',"cpus":0}', "$.cpus"),
        ("malformed", b"17", "Expected `object`"),
        (
            "malformed",
            LINE.replace(b',"historical":true,"old":true', b"") + b"}",
            "submit of a job that is not historical",
        ),
        (
            "malformed",
            msgspec.json.encode(Requeue(site="alder", time=1.0, job="1")),
            "requeue of a job",
        ),
        ("wrong_key", LINE.replace(b"alder", b"birch") + b"}", "site 'birch' in a bundle of 'alder'"),
    ],
)
def test_bundle_event_unreadable_is_rejected_alone(reason: str, value: bytes, message: str, undisturbed: World) -> None:
    old, rest = history_and_rest()
    others = list(map(msgspec.json.encode, old[:LENGTH]))
    world = World()
    world.publish(b"alder", bundled("alder", [*others[:5], value, *others[5:]]))
    for event in [*old[LENGTH:], *rest]:
        world.publish_events([event])
    asyncio.run(Process(world, SETTINGS).live())
    (letter,) = letters(world)
    assert (letter.reason, letter.offset, letter.part, letter.site) == (reason, 0, 5, "alder")
    assert message in letter.detail and letter.value == value.decode()
    assert learnt(world) == learnt(undisturbed)


def test_bundle_of_unreadable_events_is_one_dead_letter() -> None:
    world = World()
    world.publish(b"alder", bundled("alder", [LINE.replace(b'"v":1', b'"v":2') + b"}"] * 3))
    asyncio.run(Process(world, SETTINGS).live())
    (letter,) = letters(world)
    assert (letter.reason, letter.part) == ("version", msgspec.UNSET)
    assert letter.detail == "none of 3 events can be read, the first: version 2; this reads up to 1"
    assert not world.table and world.committed[0] == 1


def test_bundle_of_unreadable_events_is_one_letter_with_counts() -> None:
    old, rest = history_and_rest()
    good = list(map(msgspec.json.encode, old[:LENGTH]))
    bad = [b"17", LINE.replace(b'"v":1', b'"v":2') + b"}", b"18"]
    world = World()
    world.publish(b"alder", bundled("alder", [bad[0], *good[:5], bad[1], *good[5:], bad[2]]))
    for event in [*old[LENGTH:], *rest]:
        world.publish_events([event])
    asyncio.run(Process(world, SETTINGS).live())
    (letter,) = letters(world)
    assert (letter.reason, letter.part, letter.value) == ("malformed", 0, "17")
    counts = f"3 of {LENGTH + 3} events cannot be read (2 malformed, 1 version), the first: "
    assert letter.detail.startswith(counts) and "Expected `object`" in letter.detail
    other = sent(old, rest)
    asyncio.run(Process(other, SETTINGS).live())
    assert learnt(world) == learnt(other)


def test_bundle_of_too_many_events_is_one_letter() -> None:
    world = World()
    for more in (0, 1):
        world.publish(b"alder", bundled("alder", [LINE + b"}", *[b"1"] * (MAX_EVENTS - 1 + more)]))
    asyncio.run(Process(world, SETTINGS).live())
    found = list(letters(world))
    assert [one.offset for one in found] == [0, 1] and found[-1].reason == "malformed"
    assert found[-1].detail == "Expected `array` of length <= 1200 - at `$.events`" and world.committed[0] == 2


def test_unknown_fields_within_a_bundle_are_counted() -> None:
    world = World()
    world.publish(b"alder", bundled("alder", [LINE + b',"wallclock":60}', LINE + b"}", LINE + b',"wallclock":1}']))
    process = Process(world, SETTINGS)
    asyncio.run(process.live())
    assert process.intake.unknown_fields.of("alder") == {"wallclock": 2}


def test_loop_runs_while_bundles_are_applied_or_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old, rest = history_and_rest()
    world = sent(old, rest, length=150)
    world.publish(b"alder", msgspec.json.encode(Rebuild(site="alder", time=1.0, by="ada")))
    applied, at_once, apply = 0, 0, Engine.apply

    def counted(engine: Engine, *given: Any) -> Any:
        nonlocal applied, at_once
        applied, at_once = applied + 1, at_once + 1
        assert at_once <= EVENTS_PER_TURN, "other tasks wait for their turn"
        return apply(engine, *given)

    monkeypatch.setattr(Engine, "apply", counted)
    monkeypatch.setattr(runs, "RUNS_S", 0.0)  # a run of one message

    async def turns() -> None:
        nonlocal at_once
        while True:
            at_once = 0
            await asyncio.sleep(0)

    async def scenario() -> None:
        others = asyncio.ensure_future(turns())
        await Process(world, SETTINGS).live()
        others.cancel()

    asyncio.run(scenario())
    assert applied == 2 * len([*old, *rest]) and not world.records("dead-letters")


def test_dead_letter_has_the_rejected_event_of_bundle() -> None:
    old, _ = history_and_rest()
    last = max(old, key=lambda one: one.time)
    bad = Submit(site="alder", time=last.time + 1e9, job="far", historical=True, old=True)
    world = World()
    world.arrived = last.time + 10.0
    world.publish(b"alder", bundled("alder", map(msgspec.json.encode, [*old[:5], bad, *old[5:]])))
    asyncio.run(Process(world, SETTINGS).live())
    (letter,) = letters(world)
    assert (letter.site, letter.offset, letter.part) == ("alder", 0, 5)
    assert msgspec.json.decode(letter.value, type=AnyEvent) == bad


def test_bundle_without_events_is_malformed() -> None:
    with pytest.raises(Unreadable) as refused:
        read_site_message(b"alder", bundled("alder", []))
    assert refused.value.reason == "malformed"


def test_job_without_prediction_has_no_latency() -> None:
    old, _ = history_and_rest()
    world = sent(old, [Submit(site="alder", time=max(one.time for one in old), job="new")])
    process = Process(world, SETTINGS)
    asyncio.run(process.live())
    (count,) = (
        sample.value
        for family in process.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "queuecast_prediction_latency_seconds_count"
    )
    assert count == len(world.records("predictions")) == 1


def test_bundle_of_rejected_events_has_one_letter_per_reason() -> None:
    old = [Submit(site="alder", time=1e9, job=str(number), historical=True) for number in range(3)]
    refused = [Submit(site="alder", time=9e9, eligible=9.9e10, job=f"r{n}", historical=True) for n in range(40)]
    world = World()
    world.arrived = 1e9 + 10.0
    world.publish(b"alder", bundled("alder", [msgspec.json.encode(event) for event in (*old, *refused)]))
    process = Process(world, SETTINGS)
    asyncio.run(process.live())
    (letter,) = [msgspec.json.decode(value, type=DeadLetter) for value in world.records("dead-letters")]
    assert letter.reason == "implausible_time" and letter.part == 3
    assert process.metrics.rejections["implausible_time"] == 40
