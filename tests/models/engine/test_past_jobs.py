"""Jobs of a site's history: all is learnt from them, and nothing is told of them."""

from typing import Any

import msgspec
import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Requeue, Submit
from tests.support.events import cancel, capacity, end, start, submit
from tests.support.stories import applied, contents, outcomes, predictions

SETTINGS = EngineSettings(publish_shadows=True)


def months(jobs: int) -> list[AnyEvent]:
    """Jobs that wait for each other; one in ten is cancelled in the queue, one in ten runs again."""
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
    return [msgspec.structs.replace(one, past=True) if isinstance(one, Submit | Requeue) else one for one in events]


def test_who_learnt_from_the_past_says_what_one_does_who_saw_it_happen() -> None:
    seen, told = Engine("s", SETTINGS), Engine("s", SETTINGS)
    events, later = months(300), submit("new", 150_100.0, user="u1", cpus=32, walltime=3600.0)
    assert applied(seen, events) and not applied(told, past(events))
    assert applied(told, [later]) == applied(seen, [later])
    kept: list[dict[str, Any]] = [contents(engine) for engine in (seen, told)]
    assert kept[0].pop("scores") != kept[1].pop("scores")
    assert kept[0] == kept[1]
    assert told.scores.accuracy["blend"].jobs == 0 and told.scores.predictions["blend"] == 1


@pytest.mark.parametrize("array", [None, 3])
def test_a_job_of_the_past_that_queues_still_has_no_outcome(array: int | None) -> None:
    """None is told of which there was no prediction."""
    engine = Engine("s", SETTINGS)
    applied(engine, [capacity(64), submit("1", 0.0, past=True, cpus=4, array_size=array)])
    task, name = ({"array": "1"}, "1_1") if array else ({}, "1")
    records = applied(engine, [start(name, 90_000.0, **task), end(name, 90_100.0), submit("2", 90_200.0, cpus=4)])
    assert not outcomes(records)
    assert {told.job for told in predictions(records)} == {"2"}
