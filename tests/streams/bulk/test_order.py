"""Order of simultaneous events, and of logs whose records are not in time order."""

import random
from pathlib import Path

from models.records import AnyEvent, Cancel, Capacity, End, Requeue, Start, Submit
from streams.bulk.event_log import in_order
from streams.sources.swf import events_of, read_swf
from tests.support.traces import made_trace


def kinds(*events: AnyEvent) -> list[str]:
    return [f"{event.kind} {getattr(event, 'job', '')}".strip() for event in in_order(events)]


def at(kind: type, job: str, **more: object) -> AnyEvent:
    return kind(site="s", time=more.pop("time", 5.0), job=job, **more)


def test_equal_times_sort_ends_before_starts_and_submits() -> None:
    found = kinds(at(Submit, "3"), at(Start, "3"), at(Start, "2"), at(End, "1"), Capacity(site="s", time=5.0, cpus=4))
    assert found == ["capacity", "end 1", "start 2", "submit 3", "start 3"]


def test_simultaneous_events_of_job_are_in_logical_order() -> None:
    assert kinds(at(End, "1"), at(Start, "1"), at(Submit, "1")) == ["submit 1", "start 1", "end 1"]
    assert kinds(at(Start, "1", attempt=1), at(Requeue, "1")) == ["requeue 1", "start 1"]
    assert kinds(at(Cancel, "1"), at(Submit, "1"), at(Submit, "2")) == ["submit 1", "submit 2", "cancel 1"]


def test_array_task_start_follows_array_submit() -> None:
    tasks = [at(Start, f"7_{task}", array="7") for task in (1, 2)]
    found = kinds(at(End, "7_1"), *tasks, at(Submit, "7", array_size=2))
    assert found == ["submit 7", "start 7_1", "start 7_2", "end 7_1"]


def test_repeated_events_are_dropped() -> None:
    twice = [at(Submit, "1"), at(Submit, "1"), at(Submit, "1", cpus=2), at(Start, "1"), at(Start, "1")]
    assert kinds(*twice) == ["submit 1", "start 1"]
    assert kinds(at(Submit, "1"), at(Submit, "1", attempt=1)) == ["submit 1", "submit 1"]
    assert len(list(in_order([Capacity(site="s", time=1.0, cpus=4)] * 3))) == 1


def test_large_array_events_are_sorted_in_short_time() -> None:
    starts = [at(Start, f"7_{task}", array="7") for task in range(30_000)]
    assert len(list(in_order([*starts, at(Submit, "7", array_size=30_000)]))) == 30_001


def test_trace_order_is_unchanged(tmp_path: Path) -> None:
    events = list(events_of(read_swf(made_trace(tmp_path / "made.swf")), "s"))
    assert list(in_order(events)) == events


def test_event_order_is_independent_of_input_order(tmp_path: Path) -> None:
    events = list(events_of(read_swf(made_trace(tmp_path / "made.swf")), "s"))
    mixed = events[:]
    random.Random(3).shuffle(mixed)
    mixed.sort(key=lambda event: event.time)
    assert sorted(map(repr, in_order(mixed))) == sorted(map(repr, events))
    assert [event.time for event in in_order(mixed)] == [event.time for event in events]
