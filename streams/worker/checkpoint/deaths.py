"""Finds the event on which workers die, whatever the cause, so that it can be rejected."""

import logging
from typing import Any

import msgspec

from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.table import Retries

log = logging.getLogger(__name__)
MOST_DEATHS = 2  # workers that may die on one event; after that it is rejected
FEW = 50  # events of a checkpoint after a worker's death: so many checkpoints cost some tenths of a second


class Mark(msgspec.Struct, array_like=True):
    """What Redis has of a partition while a worker has it.

    `starts` counts the workers that have taken it over since all was well. `deaths` counts those of them that died on
    the event at `offset` of `topic`, of a bundle on the one with this `number`; with an empty topic none is under way.
    """

    starts: int = 1
    topic: str = ""
    offset: int = -1
    deaths: int = 0
    number: int = 0


class Deaths:
    """Which event the workers of a partition died on.

    A worker that gives a partition up deletes its mark; who finds one has a predecessor that died. It makes small
    checkpoints, `FEW` events each, of the first events, among which are those of which the predecessor made none. If it
    dies, too, the event is among the next `FEW`: its successor makes a checkpoint after each event, some 10 ms, and
    marks it before. So if that dies, the mark names the event; and if another dies on it, it is rejected.

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
        mark = _decode(found)
        await self._write(msgspec.structs.replace(mark, starts=mark.starts + 1, deaths=mark.deaths + bool(mark.topic)))
        few = min(FEW, self._most)
        self.checkpoint_events, self._left = (few, 2 * self._most) if mark.starts == 1 else (1, 2 * few)
        where = {"partition": self._partition}
        log.warning("the last worker died: checkpoints are made every %d events", self.checkpoint_events, extra=where)

    async def may(self, raw: Any, number: int) -> bool:
        """Whether an event may be processed, which is about to be: that of a message, or one of a bundle, from 0."""
        is_careful = self._left > 0 and self.checkpoint_events == 1
        self._left = max(self._left - 1, 0)
        if not is_careful:
            return True
        if (self._mark.topic, self._mark.offset, self._mark.number) != (raw.topic, raw.offset, number):
            await self._write(Mark(self._mark.starts, raw.topic, raw.offset, number=number))
        return self._mark.deaths < MOST_DEATHS

    async def survived(self) -> None:
        """A checkpoint has ended."""
        if self._mark.starts == 1:
            return
        if not self._left:
            self.checkpoint_events = self._most
            await self._write(Mark())
        elif self._mark.topic:
            await self._write(Mark(self._mark.starts))

    async def ended(self) -> None:
        """The partition is given up in good order."""
        await self._write(None)

    async def _write(self, mark: Mark | None) -> None:
        value = None if mark is None else _encode(mark)
        await self._until_done("redis: marking", None, self._store.set_mark, self._partition, value)
        self._mark = mark or Mark()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Mark).decode
