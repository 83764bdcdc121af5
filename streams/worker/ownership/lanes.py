"""The messages of a partition that wait for their turn, and sites that cannot be served yet."""

import asyncio
from collections import deque
from typing import Any

import faust


def site_of_message(message: faust.EventT) -> str:
    """The site whose message this should be, by its key."""
    return (message.message.key or b"").decode(errors="replace")


class Lanes:
    """Gives messages in the order in which they came, but for those of sites that wait for something.

    A site that waits is passed over: its messages stand in a lane of its own until what it waits for is done. Then they
    come before all others. So the messages of one site keep their order, and no site holds up another. O(1) a message.

    Parameters:
        room: how many messages may wait in all; a place is free again once a message is processed or forgotten.
    """

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room = room
        self._new: deque[faust.EventT] = deque()
        self._next: deque[faust.EventT] = deque()  # of sites that do not wait any more
        self._waiting: dict[str, deque[faust.EventT]] = {}
        self._last: faust.EventT | None = None  # which must wait for all that came before it
        self._is_taken = False  # a message is being processed
        self._some = asyncio.Event()

    def __len__(self) -> int:
        """How many messages are not processed yet."""
        waiting = sum(map(len, self._waiting.values()))
        return len(self._new) + len(self._next) + waiting + (self._last is not None) + self._is_taken

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
        self._is_taken = True
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
        if self._is_taken:  # else it was forgotten meanwhile
            self._is_taken = False
            self._room.release()

    def hold(self, message: faust.EventT, awaited: "asyncio.Future[Any]") -> None:
        """Put a message back: it and all others of its site wait until this is done, whatever comes of that."""
        site = site_of_message(message)
        self.hold_site(site, awaited)
        if self._is_taken:
            self._is_taken = False
            self._waiting[site].appendleft(message)

    def hold_site(self, site: str, awaited: "asyncio.Future[Any]") -> None:
        """All further messages of a site wait until this is done. O(messages that do not wait any more)."""
        self._waiting[site] = deque(one for one in self._next if site_of_message(one) == site)
        self._next = deque(one for one in self._next if site_of_message(one) != site)
        awaited.add_done_callback(lambda _: self._release(site))

    def hold_all(self, message: faust.EventT) -> None:
        """Put a message back that has not waited: it, and all that came after it, wait until no site waits."""
        if self._is_taken:
            self._is_taken, self._last = False, message

    def _release(self, site: str) -> None:
        self._next.extend(self._waiting.pop(site, ()))
        self._some.set()

    def clear(self) -> None:
        """Forget all messages: they are another worker's."""
        for _ in range(len(self)):
            self._room.release()
        self._new.clear()
        self._next.clear()
        self._waiting.clear()
        self._last, self._is_taken = None, False
