"""An event is applied completely or not at all: if a method raises, the earlier state is kept."""

import asyncio
from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, DeadLetter, JobEvent
from models.runtimes.closest import Closest
from models.simulation import generate, run
from models.site.history import History
from models.site.runs import RunHistory
from models.waits.trivial import Median
from streams.settings import Settings, WorkerSettings
from tests.support.fakes import Process
from tests.support.memory_servers import World
from tests.support.stored import saved_state, whole

ENGINE = EngineSettings(method="zero", shadows=("median",), runtimes="closest", bounds="", history=8)
POISON = "20"

CALLS = [(Median, "predict"), (Median, "learn"), (Median, "ended"), (Closest, "predict"), (Closest, "learn")]
CALLS += [(History, "learn"), (RunHistory, "learn")]  # type: ignore[list-item]


def events() -> list[AnyEvent]:
    return list(run(generate(3, 40, cpus=32, load=0.9), 32, "alder"))


def stored(world: World) -> Any:
    return whole(saved_state(world.table))


@pytest.mark.parametrize("checkpoint", [7, 1000])
@pytest.mark.parametrize(("kind", "name"), CALLS)
def test_raising_method_keeps_state_of_before_event(
    kind: type, name: str, checkpoint: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, failed = getattr(kind, name), [False]

    def raises(self: Any, job: Any, *others: Any) -> Any:
        done = whole(self, job, *others)  # half of the event's work is done
        if job.id == POISON and not failed[0]:
            failed[0] = True
            raise ZeroDivisionError("float division by zero")
        return done

    monkeypatch.setattr(kind, name, raises)
    world = World()
    world.publish_events(events())
    settings = Settings(engine=ENGINE, worker=WorkerSettings(checkpoint_events=checkpoint, checkpoint_seconds=1e9))
    asyncio.run(Process(world, settings).live())
    monkeypatch.undo()
    letters = [msgspec.json.decode(value, type=DeadLetter) for value in world.records("dead-letters")]
    (letter,) = (one for one in letters if one.reason == "engine_failed")
    poisonous = events()[letter.offset]
    assert isinstance(poisonous, JobEvent) and poisonous.job == POISON

    other = World()
    other.publish_events(event for place, event in enumerate(events()) if place != letter.offset)
    asyncio.run(Process(other, settings).live())
    assert stored(world) == stored(other)
    assert [*world.started["alder"]] == [*other.started["alder"]]
    assert world.records("predictions", "outcomes") == other.records("predictions", "outcomes")


def test_events_before_failure_are_reapplied_with_arrival_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world, whole = World(), Engine.apply
    seen: list[tuple[AnyEvent, float | None]] = []

    def noted(engine: Engine, event: AnyEvent, arrived: float | None) -> Any:
        seen.append((event, arrived))
        if len(seen) == 10:
            raise ZeroDivisionError("float division by zero")
        return whole(engine, event, arrived)

    monkeypatch.setattr(Engine, "apply", noted)
    for place, event in enumerate(events()[:12]):
        world.arrived = 1000.0 + place
        world.publish_events([event])
    asyncio.run(Process(world, Settings(engine=ENGINE)).live())
    assert seen[10:19] == seen[:9]
