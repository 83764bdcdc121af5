"""When a process counts as one that stood still."""

import time

import pytest

from streams.worker.checkpoint import pulse
from streams.worker.checkpoint.pulse import Pulse, StoodStill


def test_a_process_whose_loop_is_busy_for_long_did_not_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_S", 0.02)
    with Pulse(0.2) as beating:
        beating.check()
        time.sleep(0.5)  # of the thread that asks; others of this process run
        beating.check()


def test_one_of_which_no_thread_ran_did_and_nothing_mends_it() -> None:
    now = 1000.0
    stopped = Pulse(30.0, lambda: now)
    stopped.check()
    now += 31.0
    stopped.beat()  # whoever runs first when it goes on
    for _ in range(2):
        with pytest.raises(StoodStill, match=r"stood still for 31 s .*; its partitions may have a new owner"):
            stopped.check()
        now += 1.0


def test_the_thread_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "BEAT_S", 0.01)
    beats = 0

    def clock() -> float:
        nonlocal beats
        beats += 1
        return 0.0

    with Pulse(1.0, clock):
        time.sleep(0.1)
    assert beats > 1
    time.sleep(0.05)
    ended = beats
    time.sleep(0.05)
    assert beats == ended
