"""Finds the event on which workers die, whatever the cause, so that it can be rejected."""

import logging
from typing import Any

import msgspec

from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.table import Retries

log = logging.getLogger(__name__)
MOST_DEATHS = 2  # workers that may die on one event; after that it is rejected
FEW = 50  # events of a checkpoint after a worker's death: so many checkpoints cost some tenths of a second

Place = tuple[str, int, int]  # of an event: its topic, its offset, and its number in its bundle
MOST_BLAMED = 16  # events that are remembered because a worker died on them


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """What Redis has of a partition while a worker has it.

    `starts` counts the workers that have taken it over since all was well. `under_way` is the event that is being
    processed. `deaths` are the events on which workers died, each with how many.
    """

    starts: int = 1
    under_way: Place | None = None
    deaths: tuple[tuple[Place, int], ...] = ()

    def left(self) -> "Mark":
        """That of the next worker: this one died."""
        counts = dict(self.deaths)
        if self.under_way is not None:
            counts[self.under_way] = counts.pop(self.under_way, 0) + 1
        return Mark(self.starts + 1, None, tuple(counts.items())[-MOST_BLAMED:])

    def survived(self) -> "Mark":
        """The event that was under way is durable."""
        return Mark(self.starts, None, tuple(one for one in self.deaths if one[0] != self.under_way))


class Deaths:
    """Which event the workers of a partition died on.

    A worker that gives a partition up deletes its mark; who finds one has a predecessor that died. It makes small
    checkpoints, `FEW` events each, of the first events, among which are those of which the predecessor made none. If it
    dies, too, the event is among the next `FEW`: its successor makes a checkpoint after each event, some 10 ms, and
    marks it before. So if that dies, the mark names the event; and if another dies on it, it is rejected. Events of
    other sites may come first each time, while its site is read back: so those that were named are remembered.

    Parameters:
        most: events of a checkpoint at most; twice as many can follow the last one of a worker that died.
    """

    def __init__(self, partition: int, store: SiteStore, retries: Retries, most: int) -> None:
        self._partition = partition
        self._store = store
        self._until_done = retries.until_done
        self._most = most
        self._mark = Mark()
        self._left = 0  # events for which this worker is careful
        self.checkpoint_events = most  # with so many pending events a checkpoint is due

    async def begin(self) -> None:
        """The partition is taken over."""
        found = await self._until_done("redis: reading marks", None, self._store.mark, self._partition)
        if found is None:
            return await self._write(Mark())
        mark = _read(found)
        await self._write(mark.left())
        few = min(FEW, self._most)
        if mark.starts == 1:
            self.checkpoint_events, self._left = few, 2 * self._most
        else:
            self.checkpoint_events, self._left = 1, 2 * (self._most if self._mark.deaths else few)
        where = {"partition": self._partition}
        log.warning("the last worker died: checkpoints are made every %d events", self.checkpoint_events, extra=where)

    async def may(self, raw: Any, number: int, passes_others: bool) -> bool:
        """Whether an event may be processed, which is about to be.

        Parameters:
            raw: its message; of a bundle the event has a `number` there, from 0.
            passes_others: whether messages of other sites wait, which may have come before it: that which workers die
                on may be among them.
        """
        is_careful = self._left > 0 and self.checkpoint_events == 1
        if not passes_others:
            self._left = max(self._left - 1, 0)
        if not is_careful:
            return True
        place = (raw.topic, raw.offset, number)
        if self._mark.under_way != place:
            await self._write(Mark(self._mark.starts, place, self._mark.deaths))
        return dict(self._mark.deaths).get(place, 0) < MOST_DEATHS

    async def survived(self) -> None:
        """A checkpoint has ended."""
        if self._mark.starts == 1:
            return
        if not self._left:
            self.checkpoint_events = self._most
            await self._write(Mark())
        elif self._mark.under_way is not None:
            blamed = bool(self._mark.deaths)
            await self._write(self._mark.survived())
            if blamed and not self._mark.deaths:
                self._left = min(self._left, 2 * FEW)

    async def ended(self) -> None:
        """The partition is given up in good order."""
        await self._write(None)

    async def _write(self, mark: Mark | None) -> None:
        value = None if mark is None else _encode(mark)
        await self._until_done("redis: marking", None, self._store.set_mark, self._partition, value)
        self._mark = mark or Mark()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Mark).decode


def _read(found: bytes) -> Mark:
    """A mark; one that another version wrote says no more than that a worker died."""
    try:
        return _decode(found)
    except msgspec.MsgspecError:
        return Mark()
