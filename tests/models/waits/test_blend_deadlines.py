"""Deadlines are taken once each, in their order, and so many at a time."""

import pytest

from models.waits.blend import deadlines
from models.waits.blend.deadlines import Deadline, Deadlines


def all_of(times: list[float]) -> list[Deadline]:
    return [(time, (str(number), 0), 1) for number, time in enumerate(times)]


def test_after_a_silence_some_are_taken_at_each_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_TAKEN", 3)
    watched = Deadlines()
    watched.add(all_of([1.0, 2.0, 3.0, 3.0, 3.0, 4.0, 5.0, 9.0]))
    assert [time for time, _, _ in watched.until(8.0)] == [1.0, 2.0, 3.0, 3.0, 3.0]  # those of one time together
    assert watched.passed == 4.0
    assert [time for time, _, _ in watched.until(8.0)] == [4.0, 5.0]
    assert watched.passed == 8.0


def test_a_restart_between_them_takes_none_twice_and_leaves_none_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "MAX_TAKEN", 2)
    every = all_of([1.0, 1.0, 1.0, 2.0, 2.5, 2.5, 6.0, 7.0])
    watched, taken = Deadlines(), []
    watched.add(every)
    for now in (3.0, 3.0, 6.5, 6.5, 8.0, 8.0):
        taken += list(watched.until(now))
        anew = Deadlines()
        anew.restore(watched.passed, every)
        watched = anew
    assert sorted(taken) == sorted(every)
