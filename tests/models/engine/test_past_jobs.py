"""Historical jobs train the engine and have no predictions or outcomes."""

from typing import Any

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Requeue, Submit
from models.waits.boosted.boosted import Boosted
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import applied, contents, outcomes, predictions

SETTINGS = EngineSettings(publish_shadows=True)


def months(jobs: int) -> list[AnyEvent]:
    """Return jobs that queue; one in ten is cancelled while queued, one in ten is requeued."""
    found: list[AnyEvent] = [capacity(64)]
    for number in range(jobs):
        time, job = 500.0 * number, str(number)
        found.append(submit(job, time, user=f"u{number % 3}", cpus=8 + number % 48, walltime=3600.0))
        if number % 10 == 3:
            found.append(cancel(job, time + 400.0))
            continue
        found.append(start(job, time + 60.0 * (number % 7)))
        if number % 10 == 5:
            found += [Requeue(site="s", time=time + 430.0, job=job), start(job, time + 440.0, attempt=1)]
        found.append(end(job, time + 450.0, attempt=int(number % 10 == 5)))
    return found


def past(events: list[AnyEvent]) -> list[AnyEvent]:
    return [
        msgspec.structs.replace(one, historical=True) if isinstance(one, Submit | Requeue) else one for one in events
    ]


def test_engine_of_past_jobs_equals_one_that_saw_them_live() -> None:
    seen, loaded = Engine("s", SETTINGS), Engine("s", SETTINGS)
    events, later = months(300), submit("new", 150_100.0, user="u1", cpus=32, walltime=3600.0)
    assert applied(seen, events) and not applied(loaded, past(events))
    assert applied(loaded, [later]) == applied(seen, [later])
    kept: list[dict[str, Any]] = [contents(engine) for engine in (seen, loaded)]
    assert kept[0].pop("scores") != kept[1].pop("scores")
    assert kept[0] == kept[1]
    assert loaded.scores.accuracy["blend"].jobs == 0 and loaded.scores.predictions["blend"] == 1


def test_old_jobs_without_prediction_are_learned() -> None:
    loaded, spared = Engine("s", SETTINGS), Engine("s", SETTINGS)
    events = past(months(300))
    old = [msgspec.structs.replace(one, old=True) if isinstance(one, Submit) else one for one in events]
    assert not applied(loaded, events) and not applied(spared, old)
    rows = [forests_of(engine).learnt_rows() for engine in (loaded, spared)]
    for ours, theirs in zip(*rows, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(rows[0].waits) == 330
    kept = [contents(engine)["histories"] for engine in (loaded, spared)]
    assert kept[0]["started"] == kept[1]["started"] and kept[0]["runs"] == kept[1]["runs"]
    assert forests_of(spared).training.model is None, "no model is trained before a job requires it"
    new = [event for event in months(330) if event.time >= 150_000.0]
    assert len(predictions(applied(spared, new))) and forests_of(spared).training.model is not None


def forests_of(engine: Engine) -> Boosted:
    blend = engine.methods.waits["blend"]
    boosted = blend.parts["boosted"]
    assert isinstance(boosted, Boosted)
    return boosted


@pytest.mark.parametrize("array", [None, 3])
def test_historical_job_still_queued_has_no_outcome(array: int | None) -> None:
    """A job that has no prediction has no outcome."""
    engine = Engine("s", SETTINGS)
    applied(engine, [capacity(64), submit("1", 0.0, historical=True, cpus=4, array_size=array)])
    task, name = ({"array": "1"}, "1_1") if array else ({}, "1")
    records = applied(engine, [start(name, 90_000.0, **task), end(name, 90_100.0), submit("2", 90_200.0, cpus=4)])
    assert not outcomes(records)
    assert {prediction.job for prediction in predictions(records)} == {"2"}


def test_historical_array_marks_its_tasks_old() -> None:
    engine = Engine("s", SETTINGS)
    row = msgspec.structs.replace(submit("a", 10.0, array_size=3), historical=True, old=True)
    for event in (capacity(64), row, *(start(f"a_{task}", 20.0, array="a") for task in range(2))):
        engine.apply(event)
    assert [engine.context.state.jobs[f"a_{task}", 0].progress.old for task in range(2)] == [True, True]
