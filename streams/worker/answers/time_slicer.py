"""Scheduling on the event loop: events have priority; questions and estimates run in time slices between them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
Doing = Callable[[str, str, int], AbstractAsyncContextManager[bool]]
"""Track work by site, kind and number; yield whether it may be done."""


@asynccontextmanager
async def allowed(site: str, what: str, number: int) -> AsyncIterator[bool]:
    """Allow everything."""
    yield True


SHORT_S = 0.002
"""Maximum duration of a slice without a pause. After a longer slice the loop pauses for `HANDING_S`, so that the
Kafka consumer can deliver events."""

HANDING_S = 0.001  # pause between two slices for other tasks, seconds


class TimeSlicer:
    """Run slices of work one at a time, so that an event waits for at most one slice.

    A slice starts when no event waits. Under a constant load of events, slices still get a share of the time, so that a
    backlog does not stop the answers. Without events there is no limit.

    Args:
        waiting: Returns whether an event waits.
    """

    def __init__(
        self, waiting: Callable[[], bool] = lambda: False, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.waiting = waiting
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()
        self._ended = clock()
        self._spent_s = 0.0  # duration of the last slice

    async def take(self, work: Callable[[], T], share: float, always: bool = False) -> T:
        """Run a slice of work in its turn; it should take at most a few milliseconds.

        Args:
            share: Fraction of the loop's time for such slices while events wait.
            always: Apply the share also while no event waits; the call then returns later.
        """
        async with self._one_at_a_time:
            await self._turn(share)
            begun = self._clock()
            try:
                done = work()
            finally:
                self._ended = self._clock()
                self._spent_s = spent_s = self._ended - begun
        if always:
            await asyncio.sleep(spent_s * (1 / share - 1))
        return done

    async def _turn(self, share: float) -> None:
        """Give events priority until slices have used less than their share."""
        await asyncio.sleep(HANDING_S if self._spent_s > SHORT_S else 0)
        due = self._ended + self._spent_s * (1 / share - 1)
        while self.waiting() and self._clock() < due:
            await asyncio.sleep(HANDING_S)
