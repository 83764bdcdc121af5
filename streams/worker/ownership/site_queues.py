"""Message queues by site: fair turns, blocked sites, and messages that are parked and read again later."""

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from streams.broker.fetched import Fetched
from streams.worker.checkpoint.event_logs import MessageBatch

MAX_WAITING = 20_000  # places for waiting messages of all partitions, some 10 MB
PLACE_BYTES = 500  # each message takes one place, plus one per this number of bytes

REFILL_MESSAGES = 500
"""Parked messages of a site per read."""

MAX_PARKED = 100_000
"""Maximum number of parked messages of a partition, each of which is read twice; then consumption pauses."""

MAX_STRANGERS = 10_000  # maximum places of unknown keys in a partition; then consumption pauses
NEARER_S = 0.05  # polling interval while consumption is paused, seconds

MAX_IDLE = 1024  # number of queues from which idle ones are dropped


class MemoryBudget:
    """Limit on the queued messages of all partitions of a worker.

    A queue may hold as many places as are still free, so a growing queue leaves as much to the others (the dynamic
    threshold of Choudhury and Hahne, 1998).
    """

    def __init__(self, places: int = MAX_WAITING) -> None:
        self.free = places

    def admits(self, held: int) -> bool:
        """Return whether a queue that holds `held` places may grow."""
        return held < self.free

    @staticmethod
    def places(message: Fetched) -> int:
        """Return the number of places that a message takes."""
        return 1 + len(message.value or b"") // PLACE_BYTES


class ParkedMessages:
    """Messages of one site that are not in memory: those from offset `first` to `last` of its topic."""

    __slots__ = ("count", "first", "last", "topic")

    def __init__(self, message: Fetched) -> None:
        self.topic, self.first, self.last, self.count = message.topic, message.offset, message.offset, 1

    def add(self, message: Fetched) -> None:
        """Park a later message."""
        self.last, self.count = message.offset, self.count + 1


class SiteQueue:
    """Messages of one site on one topic, in order; `key` is None for all unknown keys together.

    `served_s` is the processing time of its messages, as the fair turns count it.
    """

    __slots__ = ("blocked", "held", "key", "messages", "parked", "queued", "reading", "served_s")

    def __init__(self, key: tuple[str, bytes | None], served_s: float) -> None:
        self.key, self.served_s = key, served_s
        self.messages: deque[Fetched] = deque()
        self.held = 0  # places
        self.blocked = self.queued = self.reading = False
        self.parked: ParkedMessages | None = None

    @property
    def is_empty(self) -> bool:
        """True if no message is left, in memory or parked."""
        return not self.messages and self.parked is None


class _ParkedRange(NamedTuple):
    """A site's messages before an offset of a topic, which must be processed first."""

    topic: str
    offset: int
    key: bytes

    def comes_before(self, message: Fetched) -> bool:
        """Return whether a message came before the offset."""
        return message.topic != self.topic or message.offset < self.offset


class SiteQueues:
    """Fair queue of a partition's messages: the site with the least processing time is next.

    A site's messages keep their order. A blocked site is skipped until it is ready. If a site has more messages than
    its share of the `room`, the later ones are parked. Only their range is kept, and they are read again when its queue
    is nearly empty. So neither a flood nor a blocked site delays other sites. Messages with keys of unknown sites share
    one queue. O(log sites) per message.

    The turns follow start-time fair queuing (Goyal et al., 1996) with the measured cost of each message: a site without
    messages gains no credit.

    Args:
        room: Limits the messages in memory of all partitions of the worker.
        is_known: Returns whether a key belongs to a site of this partition.
        read: Reads messages again: topic, key, first and last offset, and maximum number.
        begin: Starts a task in the scope of the partition.
        taken: Called with each message that is now held in memory.
        is_full: Returns whether a new site needs the place of another. Unknown keys then come first, because the
            earlier messages determine which site is evicted.
        clock: Monotonic clock, seconds.
    """

    def __init__(
        self,
        room: MemoryBudget,
        is_known: Callable[[bytes], bool],
        read: Callable[[str, bytes, int, int, int], Awaitable[MessageBatch]],
        begin: Callable[[Callable[[], Awaitable[None]]], object],
        taken: Callable[[Fetched], None] = lambda _: None,
        is_full: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._room, self._is_known, self._read, self._begin = room, is_known, read, begin
        self._note_taken, self._is_full, self._clock = taken, is_full, clock
        self._queues: dict[tuple[str, bytes | None], SiteQueue] = {}
        self._ready: list[tuple[float, int, SiteQueue]] = []
        self._strangers: Counter[bytes] = Counter()  # number of messages of each unknown key
        self._number = 0
        self._now_s = 0.0  # virtual time: the service time of the last served queue
        self._taken: tuple[SiteQueue, float] | None = None  # the queue being served, and the start of its turn
        self._parked = self._blocked = 0
        self._some, self._closed = asyncio.Event(), False
        self._first: _ParkedRange | None = None
        self._behind: list[SiteQueue] = []  # queues whose next message came after `_first`

    def __len__(self) -> int:
        """Return the number of messages that are not processed yet, including parked ones."""
        return sum(len(queue.messages) for queue in self._all()) + self._parked

    @property
    def is_busy(self) -> bool:
        """True if a message is ready or being processed."""
        return (bool(self._ready) and not self._closed) or self._taken is not None

    async def until_nearer(self) -> None:
        """Wait until fewer messages are parked, have unknown keys, or are in memory."""
        while (
            self._parked >= MAX_PARKED
            or self._room.free <= -MAX_WAITING
            or (self._strangers and any(one.key[1] is None and one.held >= MAX_STRANGERS for one in self._all()))
        ):
            await asyncio.sleep(NEARER_S)

    def waiting(self, before: int) -> dict[str, float]:
        """Return the broker timestamp of the last waiting message before an offset, by site.

        O(messages in memory).
        """
        latest: dict[str, float] = {}
        for queue in self._all():
            for message in queue.messages:
                if message.offset < before:
                    latest[(message.key or b"").decode(errors="replace")] = message.timestamp
        return latest

    @property
    def blocked(self) -> frozenset[str]:
        """The sites that wait for something."""
        return frozenset((queue.key[1] or b"").decode(errors="replace") for queue in self._all() if queue.blocked)

    @property
    def is_any_blocked(self) -> bool:
        """True if a site waits for something."""
        return self._blocked > 0

    def _all(self) -> Iterator[SiteQueue]:
        return iter(self._queues.values())

    def oldest_parked(self, topic: str) -> int | None:
        """Return the first parked offset of a topic; None if there is none."""
        return min((one.parked.first for one in self._all() if one.parked and one.parked.topic == topic), default=None)

    def put(self, message: Fetched) -> None:
        """Queue a message in memory, or park it."""
        key = message.key or b""
        known = key not in self._strangers and ((message.topic, key) in self._queues or self._is_known(key))
        queue = self._queue((message.topic, key if known else None))
        if queue.parked is not None:
            self._parked += 1
            queue.parked.add(message)
            return
        if known and queue.messages and not self._room.admits(queue.held):
            self._parked += 1
            queue.parked = ParkedMessages(message)
            return
        self._append(queue, message)
        if not known:
            self._strangers[key] += 1
        self._make_ready(queue)

    def _queue(self, key: tuple[str, bytes | None]) -> SiteQueue:
        queue = self._queues.get(key)
        if queue is None:
            if len(self._queues) > MAX_IDLE:
                self._forget_idle()
            queue = self._queues[key] = SiteQueue(key, self._now_s)
        return queue

    def _forget_idle(self) -> None:
        for key in [key for key, one in self._queues.items() if one.is_empty and not one.blocked]:
            del self._queues[key]

    def _append(self, queue: SiteQueue, message: Fetched) -> None:
        places = self._room.places(message)
        queue.messages.append(message)
        queue.held += places
        self._room.free -= places
        self._note_taken(message)

    def _make_ready(self, queue: SiteQueue) -> None:
        """Schedule a queue if it has a message and is not blocked."""
        if not queue.messages or queue.blocked or queue.queued or (self._taken and self._taken[0] is queue):
            return
        queue.served_s = max(queue.served_s, self._now_s)
        queue.queued = True
        self._number += 1
        comes_first = queue.key[1] is None and self._is_full()
        heappush(self._ready, (-math.inf if comes_first else queue.served_s, self._number, queue))
        self._some.set()

    async def next(self) -> Fetched:
        """Return the next message. The caller then marks it as `done`, or puts it back with `hold` or `again`."""
        while (message := self.poll()) is None:
            self._some.clear()
            await self._some.wait()
        return message

    def poll(self) -> Fetched | None:
        """Return the next message as `next` does; None if there is none now."""
        while self._ready and not self._closed:
            served_s, _, queue = heappop(self._ready)
            queue.queued = False
            if self._first is None or self._first.comes_before(queue.messages[0]):
                self._now_s = max(served_s, self._now_s)
                self._taken = queue, self._clock()
                return queue.messages[0]
            self._behind.append(queue)
        return None

    def done(self) -> None:
        """Record that the current message is processed."""
        if (queue := self._charge()) is None:
            return
        message = queue.messages.popleft()
        queue.held -= (places := self._room.places(message))
        self._room.free += places
        if queue.key[1] is None:
            key = message.key or b""
            self._leave_strangers(key)
            if key in self._strangers and self._is_known(key):
                self._make_ready(self._own_queue(queue, key))
        self._refill(queue)
        self._make_ready(queue)
        self._look_behind(queue)

    def again(self) -> None:
        """Put the current message back: its rest comes at the site's next turn."""
        if (queue := self._charge()) is not None:
            self._make_ready(queue)

    def follow(self, site: str) -> None:
        """Put the current message back, until a site's earlier messages are processed; later messages wait too."""
        if (queue := self._charge()) is not None:
            message, key = queue.messages[0], site.encode()
            before, first = self._queues.get((message.topic, key)), _ParkedRange(message.topic, message.offset, key)
            if before is not None and before.messages and first.comes_before(before.messages[0]):
                self._first = first
            self._make_ready(queue)

    def _look_behind(self, queue: SiteQueue) -> None:
        """Resume later messages once the earlier messages of a site are processed."""
        first = self._first
        if first is None or queue.key[1] != first.key or (queue.messages and first.comes_before(queue.messages[0])):
            return
        self._first, behind = None, self._behind
        self._behind = []
        for one in behind:
            self._make_ready(one)

    def hold(self, awaited: "asyncio.Future[object]") -> None:
        """Put the current message back and block its site until `awaited` is done, with any result."""
        if (queue := self._charge()) is None:
            return
        if queue.key[1] is None:
            queue = self._own_queue(queue, queue.messages[0].key or b"")
        queue.blocked = True
        self._blocked += 1
        awaited.add_done_callback(lambda _: self._unblock(queue))

    def _charge(self) -> SiteQueue | None:
        """Add the time of the turn to its site, and return the queue; None if the messages were dropped meanwhile."""
        if self._taken is None:
            return None
        (queue, since), self._taken = self._taken, None
        queue.served_s = max(queue.served_s, self._now_s) + self._clock() - since
        return queue

    def _own_queue(self, strangers: SiteQueue, key: bytes) -> SiteQueue:
        """Move the messages of an unknown key to a separate queue. O(messages of unknown keys)."""
        own = self._queue((strangers.key[0], key))
        for message in strangers.messages:
            if message.key == key:
                places = self._room.places(message)
                own.messages.append(message)
                own.held, strangers.held = own.held + places, strangers.held - places
                self._leave_strangers(key)
        strangers.messages = deque(message for message in strangers.messages if message.key != key)
        self._make_ready(strangers)
        return own

    def _leave_strangers(self, key: bytes) -> None:
        self._strangers[key] -= 1
        if not self._strangers[key]:
            del self._strangers[key]

    def _unblock(self, queue: SiteQueue) -> None:
        queue.blocked = False
        self._blocked -= 1
        self._make_ready(queue)

    def _refill(self, queue: SiteQueue) -> None:
        """Read parked messages again if few are left."""
        if queue.parked is None or queue.reading or len(queue.messages) > REFILL_MESSAGES // 4:
            return
        queue.reading = True
        self._begin(lambda: self._read_parked(queue))

    async def _read_parked(self, queue: SiteQueue) -> None:
        parked, key = queue.parked, queue.key[1]
        assert parked is not None and key is not None
        last = parked.last
        found = await self._read(parked.topic, key, parked.first, last, REFILL_MESSAGES)
        queue.reading = False
        if queue.parked is not parked:  # dropped meanwhile
            return
        for message in found.messages:
            self._append(queue, message)
        remaining = 0 if found.next > parked.last else max(parked.count - len(found.messages), 1)
        self._parked += remaining - parked.count
        parked.first, parked.count = max(found.next, parked.first), remaining
        if not remaining:
            queue.parked = None
        self._make_ready(queue)
        self._refill(queue)

    def close(self) -> None:
        """Return no more messages. They stay queued, because the processing of the last one may depend on them."""
        self._closed = True

    def clear(self) -> None:
        """Drop all messages: another worker owns them."""
        self._room.free += sum(queue.held for queue in self._all())
        self._queues.clear()
        self._ready.clear()
        self._strangers.clear()
        self._parked, self._taken, self._first = 0, None, None
        self._behind.clear()
