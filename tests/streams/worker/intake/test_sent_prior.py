"""A prior trained on other sites arrives among a site's events: all readers predict the same."""

import asyncio

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.operator_commands import operate
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, LoadPrior, Prediction
from models.simulation import generate, run
from streams.settings import Settings, WorkerSettings
from streams.worker.ownership import operations
from tests.models.waits.boosted.test_prior import own_prior
from tests.support.fakes import Process
from tests.support.memory_servers import Crash, World

SETTINGS = Settings(
    engine=EngineSettings(method="boosted", shadows=(), runtimes="closest", bounds="", history=64),
    worker=WorkerSettings(checkpoint_events=15, checkpoint_seconds=1e9),
)
BEFORE = 20


def events_and_prior() -> tuple[list[AnyEvent], LoadPrior, list[AnyEvent]]:
    """A young site's events before and after the prior."""
    events = [Capacity(site="alder", time=0.0, cpus=32), *run(generate(3, 40, cpus=32, load=0.9), 32, "alder")]
    prior = LoadPrior(site="alder", time=1e9, by="ada", why="what other sites taught", prior=own_prior())
    return events[:BEFORE], prior, events[BEFORE:]


def replayed() -> list[Prediction]:
    """Return the predictions of an engine without Kafka."""
    before, prior, after = events_and_prior()
    engine = Engine("alder", SETTINGS.engine)
    records = [one for event in before for one in engine.apply(event)]
    assert operate(engine, prior).startswith("the forests start from 400 jobs")
    records += [one for event in after for one in engine.apply(event)]
    return [one for one in records if isinstance(one, Prediction)]


@pytest.mark.parametrize("steps", [None, 4, 9, 14, 19])
def test_worker_with_sent_prior_equals_replay_after_a_crash(steps: int | None) -> None:
    before, prior, after = events_and_prior()
    world = World()
    world.publish_events(before)
    world.publish(b"alder", msgspec.json.encode(prior))
    world.publish_events(after)
    world.steps = steps
    if steps is not None:
        with pytest.raises((Crash, ExceptionGroup)):
            asyncio.run(Process(world, SETTINGS).live())
        world.steps = None
    asyncio.run(Process(world, SETTINGS).live())
    expected = [msgspec.json.encode(one) for one in replayed()]
    assert list(dict.fromkeys(world.records("predictions"))) == expected


def test_prediction_by_prior_has_reason_jobs_of_other_sites() -> None:
    found, (before, _, _) = replayed(), events_and_prior()
    assert {one.reason for one in found} == {"boosted: jobs of other sites"}
    later = [one for one in found if one.made_at > before[-1].time]
    assert later and all(one.predicted_wait_s == pytest.approx(3600.0, rel=0.1) for one in later)
    assert not all(one.predicted_wait_s == pytest.approx(3600.0, rel=0.1) for one in found)


def test_operation_that_fails_becomes_a_dead_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise TypeError("a forest of nothing")

    monkeypatch.setattr(operations, "operate", fail)
    before, prior, after = events_and_prior()
    world = World()
    world.publish_events(before)
    world.publish(b"alder", msgspec.json.encode(prior))
    world.publish_events(after)
    asyncio.run(Process(world, SETTINGS).live())
    letters = [msgspec.json.decode(value) for value in world.records("dead-letters")]
    assert [letter["detail"] for letter in letters if letter["reason"] == "operation_failed"] == [
        "TypeError: a forest of nothing"
    ]
    assert len(world.records("predictions")) == 40
