"""The queue order follows the scheduler's priorities if they are reported and match its starts."""

import numpy as np
import pytest

from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Alter, Capacity, End, Start, Submit
from models.site.job import Extras, Job
from models.waits.order import LearntOrder
from models.waits.order.ordered_queue import _least_wrong

SETTINGS = EngineSettings(method="order", shadows=(), bounds="", what_if_method="order", history=200)
HOUR_S = 3600.0


def submit(name: str, time: float, priority: float | None) -> Submit:
    return Submit(site="alder", time=time, job=name, user=name, cpus=4, walltime=HOUR_S, priority=priority)


def queue_of(priorities: dict[str, float | None]) -> Engine:
    """Build a site whose CPUs are all in use for an hour, and these jobs queued in this order."""
    engine = Engine("alder", SETTINGS)
    engine.apply(Capacity(site="alder", time=0.0, cpus=4))
    engine.apply(submit("runs", 1.0, None))
    engine.apply(Start(site="alder", time=2.0, job="runs"))
    for number, (name, priority) in enumerate(priorities.items()):
        engine.apply(submit(name, 10.0 + number, priority))
    return engine


def in_order(engine: Engine) -> list[str]:
    method, state = engine.methods.waits["order"], engine.context.state
    assert isinstance(method, LearntOrder)
    ordered = method.ordered(engine.context, engine.time)
    keys = [state.table.keys[row] for row in ordered.sight.rows[ordered.order]]
    return [key[0] for key in keys if key is not None]


def place(engine: Engine, priority: float | None) -> str:
    extras = Extras(priority=priority)
    job = Job("", 0, engine.time, user="new", cpus=4, walltime=HOUR_S, extras=extras)
    (answer,) = consider(engine, [job])
    return answer.reason.partition("place ")[2].partition(" ")[0]


def test_job_with_the_highest_priority_is_first() -> None:
    engine = queue_of({"a": 10.0, "b": 500.0, "c": 30.0})
    assert in_order(engine) == ["b", "c", "a"]
    engine.apply(Alter(site="alder", time=20.0, job="a", priority=40.0))
    assert in_order(engine) == ["b", "a", "c"]


def test_equal_priorities_fall_back_to_the_learned_order() -> None:
    assert in_order(queue_of({"a": 5.0, "b": 5.0, "c": 7.0})) == ["c", "a", "b"]


def test_missing_priority_falls_back_to_the_learned_order() -> None:
    assert in_order(queue_of({"a": 10.0, "b": 500.0, "c": None})) == ["a", "b", "c"]


@pytest.mark.parametrize(("priority", "found"), [(1000.0, "1"), (500.0, "2"), (20.0, "3"), (1.0, "4"), (None, "4")])
def test_considered_job_is_placed_by_its_priority(priority: float | None, found: str) -> None:
    assert place(queue_of({"a": 10.0, "b": 500.0, "c": 30.0}), priority) == found


def test_least_wrong_returns_the_place_with_fewest_conflicts() -> None:
    before = np.array([True, False, True, True, False])
    assert _least_wrong(before) == 4
    assert _least_wrong(~before) == 2
    assert (_least_wrong(before[:0]), _least_wrong(before[:1]), _least_wrong(before[1:2])) == (0, 1, 0)


def test_priorities_that_do_not_match_the_starts_are_ignored() -> None:
    engine = queue_of({})
    time = 100.0
    for number in range(20):
        low, high = f"low{number}", f"high{number}"
        engine.apply(submit(low, time, 1.0))
        engine.apply(submit(high, time + 1.0, 9.0))
        running = "runs" if number == 0 else f"high{number - 1}"
        engine.apply(End(site="alder", time=time + 60.0, job=running))
        engine.apply(Start(site="alder", time=time + 60.0, job=low))
        engine.apply(End(site="alder", time=time + 120.0, job=low))
        engine.apply(Start(site="alder", time=time + 120.0, job=high))
        time += 1000.0
    engine.apply(submit("a", time, 1.0))
    engine.apply(submit("b", time + 1.0, 9.0))
    assert in_order(engine) == ["a", "b"]


def test_simulated_schedule_follows_the_priorities() -> None:
    engine = queue_of({"a": 10.0, "b": 500.0, "c": 30.0})
    method = engine.methods.waits["order"]
    assert isinstance(method, LearntOrder)
    starts = method.starts(engine.context, engine.time)
    assert list(np.argsort(starts[~np.isnan(starts)])) == [1, 2, 0]
