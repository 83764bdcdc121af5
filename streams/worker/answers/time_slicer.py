"""Scheduling on the event loop: events have priority; questions and estimates run in time slices between them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
Tracked = tuple[str, str, int]
"""Site, kind and number of work, by which it is rejected if it crashes workers."""

Doing = Callable[[str, str, int], AbstractAsyncContextManager[bool]]
"""Track work; yield whether it may be done."""


class CrashingWork(Exception):
    """Work was not done, because workers have crashed on it."""


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
        doing: Tracks a slice for crash detection, and may refuse it. It covers only the work, not the wait for a turn:
            while workers search for the cause of crashes, no event is processed meanwhile.
    """

    def __init__(
        self,
        waiting: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
        doing: Doing = allowed,
    ) -> None:
        self.waiting = waiting
        self._clock, self._doing = clock, doing
        self._one_at_a_time = asyncio.Lock()
        self._ended = clock()
        self._spent_s = 0.0  # duration of the last slice

    async def take(self, work: Callable[[], T], share: float, tracked: Tracked, always: bool = False) -> T:
        """Run a slice of work in its turn; it should take at most a few milliseconds.

        Args:
            share: Fraction of the loop's time for such slices while events wait.
            always: Apply the share also while no event waits; the call then returns later.

        Raises:
            CrashingWork: Workers have crashed on this work.
        """
        async with self._one_at_a_time:
            await self._turn(share)
            async with self._doing(*tracked) as may:
                if not may:
                    raise CrashingWork(*tracked)
                result = self._run(work)
            spent_s = self._spent_s
        if always:
            await asyncio.sleep(spent_s * (1 / share - 1))
        return result.result()

    def _run(self, work: Callable[[], T]) -> "Future[T]":
        """Return the result or error of a slice; an error of a slice does not end the worker, so it is no crash."""
        start_s, result = self._clock(), Future[T]()
        try:
            result.set_result(work())
        except Exception as error:
            result.set_exception(error)
        self._ended = self._clock()
        self._spent_s = self._ended - start_s
        return result

    async def _turn(self, share: float) -> None:
        """Give events priority until slices have used less than their share."""
        await asyncio.sleep(HANDING_S if self._spent_s > SHORT_S else 0)
        due = self._ended + self._spent_s * (1 / share - 1)
        while self.waiting() and self._clock() < due:
            await asyncio.sleep(HANDING_S)
