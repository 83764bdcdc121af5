"""Messages that wait: for the end of a training, or for their site; all that does not depend on it goes on."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any

import faust

MOST_PARKED = 10_000
"""Messages of a partition that wait at most; some 5 MB. While there are so many, none of any partition is taken."""


AnyFuture = Future[Any] | asyncio.Future[Any]
"""Something to wait for, of another thread or of this one."""


class _Lane:
    """The messages of one partition that wait, in order."""

    def __init__(self) -> None:
        self.messages: deque[faust.EventT] = deque()
        self.room = asyncio.Event()
        self.dropped = asyncio.Event()


class Parking:
    """Has messages processed in the order of their partition, each as soon as its site need not wait for anything.

    Where a message has to wait, those that follow in its partition wait behind it; other partitions go on. What is
    parked has not been processed: no checkpoint counts it, and it is delivered again after a crash.

    Parameters:
        process: takes one message in.
        pending: what its site would have to wait for.
        supervised: runs a task; what that raises stops the worker.
    """

    def __init__(
        self,
        process: Callable[[faust.EventT], Awaitable[None]],
        pending: Callable[[faust.EventT], AnyFuture | None],
        supervised: Callable[[Awaitable[None]], Awaitable[None]],
    ) -> None:
        self._process = process
        self._pending = pending
        self._supervised = supervised
        self._lanes: dict[int, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._lanes)

    async def take(self, message: faust.EventT) -> None:
        """Have a message processed: at once, or in its turn. 2 µs where nothing waits."""
        partition = message.message.partition
        lane = self._lanes.get(partition)
        if lane is None and self._pending(message) is None:
            await self._process(message)
            return
        if lane is None:
            lane = self._lanes[partition] = _Lane()
            task = asyncio.ensure_future(self._supervised(self._work_off(partition, lane)))
            self._tasks.add(task)
            task.add_done_callback(self._end)
        lane.messages.append(message)
        if len(lane.messages) >= MOST_PARKED:
            lane.room.clear()
            await lane.room.wait()

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # known by now; else asyncio would tell of it once more

    async def _work_off(self, partition: int, lane: _Lane) -> None:
        while lane.messages:
            while not lane.dropped.is_set() and (future := self._pending(lane.messages[0])) is not None:
                await _first_of(future, lane.dropped)
            if lane.dropped.is_set():
                return
            await self._process(lane.messages.popleft())
            lane.room.set()
        if self._lanes.get(partition) is lane:  # else dropped while the last one was processed
            del self._lanes[partition]

    def drop(self, partition: int) -> None:
        """Forget what waits of a partition that is being taken away; its next owner gets it again."""
        lane = self._lanes.pop(partition, None)
        if lane is not None:
            lane.messages.clear()
            lane.dropped.set()
            lane.room.set()


async def _first_of(future: AnyFuture, dropped: asyncio.Event) -> None:
    end = asyncio.ensure_future(dropped.wait())
    try:
        await asyncio.wait([asyncio.wrap_future(future), end], return_when=asyncio.FIRST_COMPLETED)
    finally:
        end.cancel()
