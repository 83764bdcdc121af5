"""Detection of a stalled process."""

import pytest

from streams.worker.checkpoint.watchdog import Watchdog, WorkerStalled


def test_stalled_loop_is_detected_and_stays_stalled() -> None:
    now = 1000.0
    pulse = Watchdog(30.0, lambda: now)
    for still_s in (0.0, 30.0):
        now += still_s
        pulse.check()
    for still_s in (31.0, 1.0):
        now += still_s
        with pytest.raises(WorkerStalled, match=r"stood still for 31 s .*; its partitions may have a new owner"):
            pulse.check()
