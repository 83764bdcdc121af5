"""Accuracy of the last weeks and the queues in use."""

from itertools import pairwise

import pytest

from models.durations import WEEK_S
from models.engine.asking.accuracy import weeks
from models.engine.engine import Engine
from models.engine.scores import MAX_WEEKS
from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, End, Start, Submit


def weekly(jobs: int, every_s: float, wait_s: float) -> list[AnyEvent]:
    found: list[AnyEvent] = []
    for number in range(jobs):
        submit = number * every_s
        found.append(Submit(site="alder", time=submit, job=str(number), cpus=1))
        found.append(Start(site="alder", time=submit + wait_s, job=str(number)))
        found.append(End(site="alder", time=submit + wait_s + 1, job=str(number)))
    return found


def test_accuracy_is_reported_by_week() -> None:
    engine = Engine("alder", EngineSettings(method="median", shadows=("zero",), bounds="", history=50))
    for event in weekly(900, WEEK_S / 200, wait_s=600.0):
        engine.apply(event)
    by_week = weeks(engine, engine.time)
    assert len(by_week) == 5 and by_week[-1].end == engine.time
    assert all(one.end == other.begin for one, other in pairwise(by_week))
    for week in by_week:
        median, zero = week.methods
        assert (median.method, zero.method) == ("median", "zero")
        assert median.jobs == zero.jobs and median.mean_error_s == pytest.approx(0.0)
        assert zero.mean_error_s == pytest.approx(600.0) and zero.within_factor_2 == 0.0
        assert zero.mean_error_share == pytest.approx(600.0 / 601.0)
    assert all(week.methods[0].jobs == pytest.approx(200, abs=64) for week in by_week[:-1])
    assert 900 - 64 <= sum(week.methods[0].jobs for week in by_week) <= 900


def test_late_event_does_not_change_the_weeks() -> None:
    engine = Engine("alder", EngineSettings(method="median", shadows=(), bounds="", history=50))
    events = weekly(900, WEEK_S / 200, wait_s=600.0)
    for place, event in enumerate(events):
        engine.apply(event)
        if place == len(events) - 100:
            engine.apply(Capacity(site="alder", time=events[0].time, cpus=64))  # As in a repeated replay of a trace.
    assert [week.begin for week in weeks(engine, engine.time)] == pytest.approx(
        [number * WEEK_S for number in range(5)], abs=WEEK_S / 2
    )


def test_weeks_are_limited_to_the_most_recent() -> None:
    engine = Engine("alder", EngineSettings(method="median", shadows=(), bounds="", history=50))
    for event in weekly(2000, WEEK_S / 100, wait_s=600.0):
        engine.apply(event)
    assert len(weeks(engine, engine.time)) == MAX_WEEKS
    assert weeks(engine, engine.time)[0].begin == pytest.approx(engine.time - MAX_WEEKS * WEEK_S, abs=1.5 * WEEK_S)


def test_queues_close_a_week_after_the_last_of_them() -> None:
    engine = Engine("alder", EngineSettings(history=60))
    for number, (time, queue) in enumerate([(0.0, "a"), (1.0, "b"), (2.0, "b"), (3.0, "c"), (WEEK_S + 1.5, "c")]):
        engine.apply(Submit(site="alder", time=time, job=str(number), queue=queue))
        if queue != "a":
            engine.apply(Start(site="alder", time=time, job=str(number)))
            engine.apply(End(site="alder", time=time, job=str(number)))
    assert engine.open_queues(8) == ["a", "b", "c"]  # a has a live job; the last job of b is not a week old
    assert engine.open_queues(2) == ["b", "c"]
    engine.apply(Submit(site="alder", time=WEEK_S + 3.0, job="9", queue="c"))
    assert engine.open_queues(8) == ["a", "c"]
