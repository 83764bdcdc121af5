"""Old events that come as bundles do what they do one by one; a bundle is applied as a whole or not at all."""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Bundle, DeadLetter, Requeue, Submit, bundled
from models.simulation import generate, run
from streams.bulk.history import history_of
from streams.settings import Settings, WorkerSettings
from streams.worker.intake.messages import Unreadable, read_event
from tests.support.fakes import Crash, Process, World
from tests.support.stored import saved_state, whole

SETTINGS = Settings(
    engine=EngineSettings(method="boosted", shadows=("median",), runtimes="closest", history=64),
    worker=WorkerSettings(checkpoint_events=40, checkpoint_seconds=1e9),
)
LENGTH = 17


def told() -> tuple[list[AnyEvent], list[AnyEvent]]:
    """A site's history: old events, and those after the first job that is predicted."""
    events = list(history_of(run(generate(3, 120, cpus=32, load=0.9), 32, "alder"), predicted=20))
    first = next(n for n, one in enumerate(events) if isinstance(one, Submit) and not one.old)
    return events[:first], events[first:]


def sent(old: Iterable[AnyEvent], rest: Iterable[AnyEvent], length: int = LENGTH) -> World:
    """A world in which the old events go together."""
    world, left = World(), iter(old)
    while part := list(islice(left, length)):
        world.publish(b"alder", bundled("alder", map(msgspec.json.encode, part)))
    world.publish_events(rest)
    return world


def learnt(world: World) -> Any:
    """What became durable, but for offsets."""
    learnt = msgspec.msgpack.encode([world.started, world.runs, world.rows], enc_hook=lambda array: array.tobytes())
    return whole(saved_state(world.table)), learnt


def letters(world: World) -> Iterator[DeadLetter]:
    return (msgspec.json.decode(value, type=DeadLetter) for value in world.said("dead-letters"))


def test_bundles_teach_what_their_events_teach() -> None:
    old, rest = told()
    one_by_one, together = World(), sent(old, rest)
    one_by_one.publish_events([*old, *rest])
    for world in (one_by_one, together):
        asyncio.run(Process(world, SETTINGS).live())
    assert len(old) > 10 * LENGTH and learnt(one_by_one) == learnt(together)
    assert one_by_one.said("predictions", "outcomes", "dead-letters") == together.said(
        "predictions", "outcomes", "dead-letters"
    )


@pytest.mark.parametrize("steps", range(3, 60, 8))
def test_a_crash_between_bundles_changes_nothing(steps: int) -> None:
    old, rest = told()
    whole_way, broken = sent(old, rest), sent(old, rest)
    asyncio.run(Process(whole_way, SETTINGS).live())
    broken.steps = steps
    with pytest.raises((Crash, ExceptionGroup)):
        asyncio.run(Process(broken, SETTINGS).live())
    broken.steps = None
    asyncio.run(Process(broken, SETTINGS).live())
    assert learnt(whole_way) == learnt(broken)


def test_a_bundle_at_which_the_engine_fails_is_rejected_and_the_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    old, rest = told()
    poison, apply = old[2 * LENGTH + 5], Engine.apply

    def failing(engine: Engine, event: AnyEvent, arrived: float | None = None) -> Any:
        found = apply(engine, event, arrived)
        if event == poison:
            raise ZeroDivisionError("float division by zero")
        return found

    monkeypatch.setattr(Engine, "apply", failing)
    world = sent(old, rest)
    asyncio.run(Process(world, SETTINGS).live())
    monkeypatch.undo()
    assert [(one.reason, one.offset) for one in letters(world) if one.reason == "engine_failed"] == [
        ("engine_failed", 2)
    ]
    other = sent([*old[: 2 * LENGTH], *old[3 * LENGTH :]], rest)
    asyncio.run(Process(other, SETTINGS).live())
    assert learnt(world) == learnt(other)


def test_a_letter_shows_the_event_of_a_bundle_that_was_refused() -> None:
    old, _ = told()
    last = max(old, key=lambda one: one.time)
    bad = Submit(site="alder", time=last.time + 1e9, job="far", past=True, old=True)
    world = World()
    world.arrived = last.time + 10.0
    world.publish(b"alder", bundled("alder", map(msgspec.json.encode, [*old[:5], bad, *old[5:]])))
    asyncio.run(Process(world, SETTINGS).live())
    (letter,) = letters(world)
    assert (letter.site, letter.offset) == ("alder", 0)
    assert msgspec.json.decode(letter.value, type=AnyEvent) == bad


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (Submit(site="alder", time=1.0, job="1", past=True), "submit at 1.0 that is to be predicted"),
        (Requeue(site="alder", time=1.0, job="1"), "requeue at 1.0 that is to be predicted"),
        (Submit(site="birch", time=1.0, job="1", past=True, old=True), "site 'birch'; expected those of 'alder' alone"),
    ],
)
def test_a_bundle_has_old_events_of_its_site_alone(event: AnyEvent, said: str) -> None:
    with pytest.raises(Unreadable, match=said) as refused:
        read_event(b"alder", bundled("alder", [msgspec.json.encode(event)]))
    assert refused.value.reason == "malformed"


def test_a_bundle_of_nothing_is_malformed() -> None:
    with pytest.raises(Unreadable) as refused:
        read_event(b"alder", bundled("alder", []))
    assert refused.value.reason == "malformed"
    assert isinstance(read_event(b"alder", bundled("alder", map(msgspec.json.encode, told()[0][:3]))), Bundle)
