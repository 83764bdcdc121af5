"""Detect a stall long enough for Kafka to reassign our partitions."""

import time
from collections.abc import Callable

from streams.errors import UserError

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def since_boot() -> float:
    """Return the seconds since boot, including suspend if the system has such a clock."""
    return time.clock_gettime(_CLOCK)


class WorkerStalled(UserError):
    """The worker stalled for too long; it must not write anything any more."""


class Watchdog:
    """Detect that the event loop stalled so long that the broker may have removed this member.

    The event loop sends the heartbeats to the broker, and calls `check` every second. After a stall longer than
    `most_s` seconds (stopped, suspended, or busy), the process counts as stalled until it ends, because its state is
    out of date.

    Args:
        most_s: Maximum duration of a stall, seconds.
        clock: Current time in seconds, which includes suspend.
    """

    def __init__(self, most_s: float, clock: Callable[[], float] = since_boot) -> None:
        self._most_s = most_s
        self._clock = clock
        self._last: float | None = None
        self._stood_still: float | None = None

    def check(self) -> None:
        """Check that this process never stalled for too long.

        Raises:
            WorkerStalled: It did.
        """
        now = self._clock()
        still_s, self._last = now - (self._last or now), now
        if still_s > self._most_s and self._stood_still is None:
            self._stood_still = still_s
        if self._stood_still is not None:
            raise WorkerStalled(
                f"this process stood still for {self._stood_still:.0f} s (stopped, swapped out, asleep or busy with "
                "one thing); its partitions may have a new owner, so it ends and begins afresh"
            )
