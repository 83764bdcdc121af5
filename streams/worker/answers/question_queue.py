"""Queue of questions: fair turns between clients, and eviction under overload.

A client waits for two seconds. Under overload the oldest question is therefore dropped first: its client has timed out
or will soon, while the newest question can still be answered in time.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from aiokafka import ConsumerRecord

from models.records import BUSY, QUOTA, AnyQuestion

ASKER_WAITS_S = 2.0  # default timeout of a client, seconds

LOG_APPEND_TIME = 1  # timestamp type of a broker timestamp

WINDOW_S = 30.0
"""Period for which the minimum delay is measured, seconds; limited because clocks may be adjusted."""


class WaitingQuestion(NamedTuple):
    """A question, its message, the start of its wait, and the client's deadline (s, by the queue's clock)."""

    question: AnyQuestion
    message: ConsumerRecord
    since: float
    until: float


class DroppedQuestion(NamedTuple):
    """A question to answer without the engine, and the reason: `BUSY` or `QUOTA`."""

    waited: WaitingQuestion
    reason: str


class MessageAge:
    """Estimate how long messages waited in the broker before they were read.

    The broker's clock may differ from ours. The fastest message of the last minute is assumed to have waited for no
    time; the ages of others are relative to it.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._least = self._before = float("inf")
        self._window_start = clock()

    def of(self, message: ConsumerRecord) -> float:
        """Return the age of a message, seconds; 0 if its timestamp is the client's, whose clock may be wrong."""
        if message.timestamp_type != LOG_APPEND_TIME:
            return 0.0
        now = self._clock()
        if not 0 <= now - self._window_start <= WINDOW_S:
            self._least, self._before, self._window_start = float("inf"), self._least, now
        delay: float = now - message.timestamp / 1000
        self._least = min(self._least, delay)
        return delay - min(self._least, self._before)


class WaitingQuestions:
    """Round-robin queue with one lane per client, so that a flood from one client delays others by one question.

    Args:
        most: Maximum number of questions.
        most_each: Maximum number of questions per client.
        patience_s: Maximum wait of a question, seconds.
    """

    def __init__(
        self, most: int, most_each: int, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._most = most
        self._most_each = most_each
        self._patience_s = patience_s
        self._lanes: OrderedDict[str | None, deque[WaitingQuestion]] = OrderedDict()
        self._ids: set[str] = set()
        self._some = asyncio.Event()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def put(self, question: AnyQuestion, message: ConsumerRecord, age_s: float = 0.0) -> DroppedQuestion | None:
        """Queue a question that was sent `age_s` seconds ago; return the question that is dropped for it, if any.

        A queued question is not added twice, because clients retry.
        """
        now, wait_s = self._clock(), ASKER_WAITS_S if question.wait_s is None else question.wait_s
        waiting = WaitingQuestion(question, message, now, now - age_s + wait_s)
        if self.is_late(waiting):
            return DroppedQuestion(waiting, BUSY)
        if question.id in self._ids:
            return None
        lane = self._lanes.setdefault(question.client_id, deque())
        dropped = None
        if len(lane) >= self._most_each:
            dropped = DroppedQuestion(self._taken(question.client_id), QUOTA)
        elif len(self._ids) >= self._most:
            dropped = DroppedQuestion(self._taken(self._longest()), BUSY)
        self._lanes.setdefault(question.client_id, lane).append(waiting)
        self._ids.add(question.id)
        self._some.set()
        return dropped

    def is_late(self, waiting: WaitingQuestion) -> bool:
        """Return whether a question has waited longer than `patience_s`, or its client has timed out."""
        now = self._clock()
        return now - waiting.since > self._patience_s or now > waiting.until

    def expired(self) -> Iterator[DroppedQuestion]:
        """Remove and yield late questions, the oldest of each client first."""
        for client in [client for client, lane in self._lanes.items() if self.is_late(lane[0])]:
            while client in self._lanes and self.is_late(self._lanes[client][0]):
                yield DroppedQuestion(self._taken(client), BUSY)

    async def next(self) -> WaitingQuestion:
        """Wait for a question, and return the first one of the next client."""
        await self._some.wait()
        client = next(iter(self._lanes))
        first = self._taken(client)
        if client in self._lanes:
            self._lanes.move_to_end(client)
        return first

    def clear(self) -> None:
        """Remove all questions; their clients retry."""
        self._lanes.clear()
        self._ids.clear()
        self._some.clear()

    def _longest(self) -> str | None:
        """Return the client with the most questions; of several, the one whose first question has waited longest."""
        waiting = ((client, lane) for client, lane in self._lanes.items() if lane)
        return max(waiting, key=lambda one: (len(one[1]), -one[1][0].since))[0]

    def _taken(self, client: str | None) -> WaitingQuestion:
        """Remove and return a client's oldest question."""
        lane = self._lanes[client]
        first = lane.popleft()
        self._ids.discard(first.question.id)
        if not lane:
            del self._lanes[client]
        if not self._ids:
            self._some.clear()
        return first
