"""Whether this process stood still so long that its partitions may have a new owner."""

import threading
import time
from collections.abc import Callable
from typing import Self

from streams.errors import UserError

BEAT_S = 0.5  # seconds between two beats of the thread
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds since the machine started; time asleep (suspend) counts too where the system has such a clock."""
    return time.clock_gettime(_CLOCK)


class StoodStill(UserError):
    """This process stood still for too long; it must not write anything any more."""


class Pulse:
    """Tells a process that was stopped or asleep from one whose event loop is merely busy.

    Heartbeats to the broker leave from a thread, so a busy loop loses no partition; a process of which no thread ran
    does. So a thread beats here too: only where neither it nor the loop ran for `most_s` seconds, the process stood
    still. Once it did, it stays so: whatever it holds is of before.

    Parameters:
        most_s: how long it may stand still.
        clock: the current time in seconds, which goes on while the machine sleeps.
    """

    def __init__(self, most_s: float, clock: Callable[[], float] = since_boot) -> None:
        self._most_s = most_s
        self._clock = clock
        self._last: float | None = None
        self._stood_still: float | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        """Begin to beat in a thread."""
        self._ended.clear()
        threading.Thread(target=self._keep_beating, name="pulse", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def _keep_beating(self) -> None:
        while not self._ended.wait(BEAT_S):
            self.beat()

    def beat(self) -> None:
        """A thread of this process runs."""
        now = self._clock()
        still_s, self._last = now - (self._last or now), now
        if still_s > self._most_s and self._stood_still is None:
            self._stood_still = still_s

    def check(self) -> None:
        """Make sure that this process never stood still for too long. Raises StoodStill: it did."""
        self.beat()
        if self._stood_still is not None:
            raise StoodStill(
                f"this process stood still for {self._stood_still:.0f} s (stopped, swapped out or asleep); its "
                "partitions may have a new owner, so it ends and begins afresh"
            )
