"""Questions that wait for their answers: so many at most, and those who ask take turns."""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import NamedTuple

from aiokafka import ConsumerRecord

from models.records import BUSY, QUOTA, AnyQuestion


class Asked(NamedTuple):
    """A question, the message that it came in, and when it began to wait (s, by the queue's clock)."""

    question: AnyQuestion
    message: ConsumerRecord
    since: float


class WaitingQuestions:
    """A lane for each asker; the lanes take turns, so who asks a thousand questions delays another's by one.

    Parameters:
        most: questions that wait at most.
        most_each: those of one asker.
    """

    def __init__(self, most: int, most_each: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._most = most
        self._most_each = most_each
        self._lanes: OrderedDict[str | None, deque[Asked]] = OrderedDict()
        self._count = 0
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    def put(self, question: AnyQuestion, message: ConsumerRecord) -> str | None:
        """Have a question wait; gives the reason where it may not: `BUSY` or `QUOTA`."""
        lane = self._lanes.get(question.asker)
        if lane is not None and len(lane) >= self._most_each:
            return QUOTA
        if self._count >= self._most:
            return BUSY
        if lane is None:
            lane = self._lanes[question.asker] = deque()
        lane.append(Asked(question, message, self.clock()))
        self._count += 1
        self._some.set()
        return None

    async def next(self) -> Asked:
        """The first question of the asker whose turn it is; waits for one."""
        await self._some.wait()
        asker, lane = next(iter(self._lanes.items()))
        first = lane.popleft()
        if lane:
            self._lanes.move_to_end(asker)
        else:
            del self._lanes[asker]
        self._count -= 1
        if not self._count:
            self._some.clear()
        return first

    def clear(self) -> None:
        """Forget all: who asked has no answer, and asks again."""
        self._lanes.clear()
        self._count = 0
        self._some.clear()
