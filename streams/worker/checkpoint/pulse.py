"""Whether this process stood still so long that its partitions may have a new owner."""

import time
from collections.abc import Callable

from streams.errors import UserError

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Seconds since the machine started; time asleep (suspend) counts too where the system has such a clock."""
    return time.clock_gettime(_CLOCK)


class StoodStill(UserError):
    """This process stood still for too long; it must not write anything any more."""


class Pulse:
    """Tells a process whose event loop did not run for so long that the broker may have given it up.

    Heartbeats to the broker leave from the event loop, which also looks here each second. Once it did not run for
    `most_s` seconds (it was stopped, asleep, or busy with one thing), the process stood still, and stays so: whatever
    it holds is of before.

    Parameters:
        most_s: how long it may stand still.
        clock: the current time in seconds, which goes on while the machine sleeps.
    """

    def __init__(self, most_s: float, clock: Callable[[], float] = since_boot) -> None:
        self._most_s = most_s
        self._clock = clock
        self._last: float | None = None
        self._stood_still: float | None = None

    def check(self) -> None:
        """Make sure that this process never stood still for too long. Raises StoodStill: it did."""
        now = self._clock()
        still_s, self._last = now - (self._last or now), now
        if still_s > self._most_s and self._stood_still is None:
            self._stood_still = still_s
        if self._stood_still is not None:
            raise StoodStill(
                f"this process stood still for {self._stood_still:.0f} s (stopped, swapped out, asleep or busy with "
                "one thing); its partitions may have a new owner, so it ends and begins afresh"
            )
