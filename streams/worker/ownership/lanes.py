"""The messages of a partition that wait for their turn, and sites that cannot be served yet."""

import asyncio
from collections import deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

import faust


def site_of_message(message: faust.EventT) -> str:
    """The site whose message this should be, by its key."""
    return (message.message.key or b"").decode(errors="replace")


MOST_WAITING = 10_000  # places for messages that wait in all partitions: some 5 MB
PLACE_BYTES = 500  # bytes of a message that take a place, beside the one that each takes


class Allowance:
    """Bounds how much waits: a message takes its places while some are free, and more than are left if need be.

    One task at a time takes places.

    Parameters:
        places: how many there are.
    """

    def __init__(self, places: int = MOST_WAITING) -> None:
        self.places = places
        self._free = asyncio.Event()

    async def take(self, message: faust.EventT) -> None:
        """Wait until places are free, and take those of a message."""
        while self.places <= 0:
            self._free.clear()
            await self._free.wait()
        self.places -= self.of(message)

    def leave(self, message: faust.EventT) -> None:
        """The places of a message are free again."""
        self.places += self.of(message)
        self._free.set()

    @staticmethod
    def of(message: faust.EventT) -> int:
        """How many places a message takes."""
        return 1 + len(message.message.value or b"") // PLACE_BYTES


class Lanes:
    """Gives messages in the order in which they came, but for those of sites that wait for something.

    A site that waits is passed over: its messages stand in a lane of its own until what it waits for is done. Then they
    come before all others. So the messages of one site keep their order, and no site holds up another. O(1) a message.

    Parameters:
        room: where each has its places until it is processed or forgotten.
    """

    def __init__(self, room: Allowance) -> None:
        self._room = room
        self._new: deque[faust.EventT] = deque()
        self._next: deque[faust.EventT] = deque()  # of sites that do not wait any more
        self._waiting: dict[str, deque[faust.EventT]] = {}
        self._last: faust.EventT | None = None  # which must wait for all that came before it
        self._taken: faust.EventT | None = None  # which is being processed
        self._some = asyncio.Event()

    def __len__(self) -> int:
        """How many messages are not processed yet."""
        waiting = sum(map(len, self._waiting.values()))
        return len(self._new) + len(self._next) + waiting + (self._last is not None) + (self._taken is not None)

    def _all(self) -> Iterator[faust.EventT]:
        """The messages that are not processed yet."""
        single = (one for one in (self._last, self._taken) if one is not None)
        return chain(self._new, self._next, *self._waiting.values(), single)

    @property
    def waiting(self) -> frozenset[str]:
        """The sites that wait."""
        return frozenset(self._waiting)

    def put(self, message: faust.EventT) -> None:
        """A message has come; it has its place in the room already."""
        self._new.append(message)
        self._some.set()

    async def next(self) -> faust.EventT:
        """The message whose turn it is. It is to be processed (`done`) or put back (`hold`, `hold_all`)."""
        while (message := self._take()) is None:
            self._some.clear()
            await self._some.wait()
        self._taken = message
        return message

    def _take(self) -> faust.EventT | None:
        if self._last is not None and not self._next and not self._waiting:
            message, self._last = self._last, None
            return message
        while queue := self._next or (self._new if self._last is None else None):
            message = queue.popleft()
            if (lane := self._waiting.get(site_of_message(message))) is None:
                return message
            lane.append(message)
        return None

    def done(self) -> None:
        """The message that was taken is processed."""
        if self._taken is not None:  # else it was forgotten meanwhile
            self._room.leave(self._taken)
            self._taken = None

    def hold(self, message: faust.EventT, awaited: "asyncio.Future[Any]") -> None:
        """Put a message back: it and all others of its site wait until this is done, whatever comes of that.

        O(messages that do not wait any more).
        """
        site = site_of_message(message)
        waiting = deque(one for one in self._next if site_of_message(one) == site)
        self._next = deque(one for one in self._next if site_of_message(one) != site)
        if self._taken is not None:
            waiting.appendleft(message)
            self._taken = None
        self._waiting[site] = waiting
        awaited.add_done_callback(lambda _: self._release(site))

    def hold_all(self, message: faust.EventT) -> None:
        """Put a message back that has not waited: it, and all that came after it, wait until no site waits."""
        if self._taken is not None:
            self._taken, self._last = None, message

    def _release(self, site: str) -> None:
        self._next.extend(self._waiting.pop(site, ()))
        self._some.set()

    def clear(self) -> None:
        """Forget all messages: they are another worker's."""
        for message in self._all():
            self._room.leave(message)
        self._new.clear()
        self._next.clear()
        self._waiting.clear()
        self._last = self._taken = None
