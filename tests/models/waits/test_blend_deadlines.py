"""Deadlines are taken once each, in order, and in batches."""

from math import nan

import pytest

from models.records import JobKey
from models.waits.blend import deadlines
from models.waits.blend.deadlines import Deadline, Deadlines

EVERY = {(str(number), 0) for number in range(10)}


def all_of(times: list[float]) -> list[Deadline]:
    return [(time, (str(number), 0), 1) for number, time in enumerate(times)]


def times_of(deadlines: list[Deadline]) -> list[tuple[JobKey, list[float]]]:
    """Return the jobs with their times by place."""
    return [(key, [nan, time]) for time, key, _ in deadlines]


def watch(watched: Deadlines, deadlines: list[Deadline]) -> None:
    for key, times in times_of(deadlines):
        watched.add(key, times)


def test_deadlines_after_a_gap_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_TAKEN", 3)
    watched = Deadlines(EVERY)
    watch(watched, all_of([1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 9.0]))
    assert [time for time, _, _ in watched.take_due(8.0)] == [1.0, 2.0, 3.0]  # any number of equal times
    assert (watched.reached, watched.begin > 3.0) == ((3.0, ("3", 0), 1), True)
    assert [time for time, _, _ in watched.take_due(8.0)] == [3.0, 3.0, 4.0]
    assert watched.reached == (5.0, ("6", 0), 1)
    assert [time for time, _, _ in watched.take_due(8.0)] == [5.0]
    assert watched.begin == 8.0


def test_deadlines_of_a_time_already_taken_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_TAKEN", 1)
    watched = Deadlines(EVERY)
    watch(watched, all_of([3.0, 3.0]))
    assert len(list(watched.take_due(4.0))) == 1
    watch(watched, [(3.0, ("0", 0), 1), (3.0, ("9", 0), 1)])
    assert [key for _, key, _ in watched.take_due(4.0)] == [("1", 0)]
    assert list(watched.take_due(4.0)) == []


def test_restart_between_deadlines_processes_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_TAKEN", 2)
    every = all_of([1.0, 1.0, 1.0, 2.0, 2.5, 2.5, 6.0, 7.0])
    watched, taken = Deadlines(EVERY), []
    watch(watched, every)
    for now in (3.0, 3.0, 3.0, 6.5, 6.5, 8.0, 8.0):
        taken += list(watched.take_due(now))
        restored = Deadlines(EVERY)
        restored.restore(watched.reached, times_of(every))
        watched = restored
    assert sorted(taken) == sorted(every)
    assert len(taken) == len(every)


def test_deadlines_of_departed_jobs_do_not_count_in_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_TAKEN", 1)
    watched = Deadlines({("1", 0), ("3", 0)})
    watch(watched, all_of([1.0, 2.0, 3.0, 4.0]))
    assert [key for _, key, _ in watched.take_due(9.0)] == [("1", 0)]
    assert watched.reached == (4.0, ("3", 0), 1)


def test_deadlines_of_all_jobs_are_processed_by_time() -> None:
    one, two = ("1", 0), ("2", 0)
    jobs = {one, two}
    watched = Deadlines(jobs)
    watched.add(("2", 0), [7.0, nan, 1.0, 4.0, 4.0])
    watched.add(("1", 0), [4.0, 2.0, 9.0])
    assert list(watched.take_due(5.0)) == [
        (1.0, two, 2),
        (2.0, one, 1),
        (4.0, one, 0),
        (4.0, two, 3),
        (4.0, two, 4),
    ]
    jobs.remove(one)
    assert list(watched.take_due(8.0)) == [(7.0, two, 0)]
    assert list(watched.take_due(10.0)) == []
