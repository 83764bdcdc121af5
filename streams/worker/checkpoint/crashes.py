"""Finds out on which event, operation, question or estimate workers crash, so that it can be refused."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.table import Retries

log = logging.getLogger(__name__)
MAX_CRASHES = 2  # workers that may crash on one event; after that it is rejected
FEW_EVENTS = 50  # events of a checkpoint after a worker's crash: so many checkpoints cost some tenths of a second

Place = tuple[str, int, int]
"""What is being done: the topic of an event, its offset, and its number in its bundle; or what else it is, and
which."""

MAX_SUSPECTS = 16  # places that are remembered because a worker crashed there


class CrashMark(msgspec.Struct, array_like=True, frozen=True):
    """What Redis has of a partition while a worker has it.

    `starts` counts the workers that have taken it over since all was well. `under_way` is what is being done now,
    `crashes` counts by place the workers that crashed there.
    """

    starts: int = 1
    under_way: Place | None = None
    crashes: tuple[tuple[Place, int], ...] = ()

    def after_crash(self) -> "CrashMark":
        """Return the mark of the next worker: this one crashed."""
        counts = dict(self.crashes)
        if self.under_way is not None:
            counts[self.under_way] = counts.pop(self.under_way, 0) + 1
        return CrashMark(self.starts + 1, None, tuple(counts.items())[-MAX_SUSPECTS:])


class Solitude:
    """Has one thing at a time done in this process while any of its partitions looks for what workers crash on.

    A process crashes as a whole: with several things under way, each of them would be blamed.
    """

    def __init__(self) -> None:
        self.careful: set[int] = set()
        self._one = asyncio.Lock()
        self._broken = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Be the only one; without waiting where no partition is careful."""
        if not self.careful:
            yield
            return
        async with self._one:
            if self._broken:
                await asyncio.Event().wait()
            try:
                yield
            except Exception:  # which ends this process: until then nothing else may be blamed for it
                self._broken = True
                raise


class CrashTracker:
    """Finds the event on which the workers of a partition crash.

    A worker that gives a partition up deletes its mark; who finds one has a predecessor that crashed. It makes small
    checkpoints, of `FEW_EVENTS` each, of the first events, among which are those of which the predecessor made none. If
    it crashes too, the event is among the next few: its successor is careful. It does one thing at a time in the whole
    process, marks it before, and makes a checkpoint after each event, some 10 ms. So if that crashes, the mark names
    what it was doing; and what two have crashed on is refused. Events of other sites may come first each time, while
    its site is read back: so those that were named are remembered. Questions and estimates are marked as well.

    A mark stands only while something is done that may crash, not while a server is waited for. A worker that ends for
    a reason of its own (a server refuses, it is told to stop) puts back the mark that it found: it counts for nothing.

    Args:
        most: events of a checkpoint at most; twice as many can follow the last one of a worker that crashed.
        solitude: shared by the partitions of this process.
    """

    def __init__(self, partition: int, store: SiteStore, retries: Retries, most: int, solitude: Solitude) -> None:
        self._partition, self._store, self._until_done = partition, store, retries.until_done
        self._most, self._solitude = most, solitude
        self._found: CrashMark | None = None
        self._mark = CrashMark()
        self._done: Place | None = None
        self._left = 0  # events for which this worker is careful
        self._excused = False
        self.checkpoint_events = most  # with so many pending events a checkpoint is due

    @property
    def is_careful(self) -> bool:
        """Whether each event is marked before it is processed, and durable before the next one."""
        return self._left > 0 and self.checkpoint_events == 1

    @property
    def suspects_nothing(self) -> bool:
        """Whether nothing is looked for, in the whole process, and nothing is refused here."""
        return not self._solitude.careful and not self._mark.crashes

    async def begin(self) -> None:
        """The partition is taken over."""
        found = await self._until_done("redis: reading marks", None, self._store.mark, self._partition)
        if found is None:
            return await self._write(CrashMark())
        self._found = mark = _read(found)
        await self._write(mark.after_crash())
        few = min(FEW_EVENTS, self._most)
        if mark.starts == 1:
            self.checkpoint_events, self._left = few, 2 * self._most
        else:
            self.checkpoint_events, self._left = 1, 2 * (self._most if self._mark.crashes else few)
            self._solitude.careful.add(self._partition)
        where = {"partition": self._partition}
        log.warning(
            "The last worker crashed: checkpoints are made every %d events", self.checkpoint_events, extra=where
        )

    def count(self, passes_others: bool) -> None:
        """Count an event that is about to be processed.

        Args:
            passes_others: whether messages of other sites wait that may have come before it: what workers crash on may
                be among them.
        """
        if not passes_others:
            self._left = max(self._left - 1, 0)

    @asynccontextmanager
    async def doing(self, place: Place) -> AsyncIterator[bool]:
        """Do what may crash; give whether it may be done, which it may not where workers have crashed on it."""
        if dict(self._mark.crashes).get(place, 0) >= MAX_CRASHES:
            yield False
            return
        async with self._solitude.turn():
            if not self.is_careful:
                yield True
                return
            await self._write(CrashMark(self._mark.starts, place, self._mark.crashes))
            yield True
            self._done = place
            await self._write(CrashMark(self._mark.starts, None, self._mark.crashes))

    async def survived(self) -> None:
        """A checkpoint has ended."""
        if self._mark.starts == 1:
            return
        if not self._left:
            self.checkpoint_events = self._most
            self._solitude.careful.discard(self._partition)
            await self._write(CrashMark())
        elif self._done is not None and self._done in dict(self._mark.crashes):
            crashes = tuple(one for one in self._mark.crashes if one[0] != self._done)
            await self._write(CrashMark(self._mark.starts, self._mark.under_way, crashes))
            if not crashes:
                self._left = min(self._left, 2 * FEW_EVENTS)

    async def ended(self) -> None:
        """The partition is given up in good order."""
        self._solitude.careful.discard(self._partition)
        await self._write(None)

    async def excuse(self, store: SiteStore) -> None:
        """Put back the mark that was found: this worker ends for a reason of its own."""
        self._excused = True
        await store.set_mark(self._partition, None if self._found is None else _encode(self._found))

    async def _write(self, mark: CrashMark | None) -> None:
        if not self._excused:
            value = None if mark is None else _encode(mark)
            await self._until_done("redis: marking", None, self._store.set_mark, self._partition, value)
        self._mark = mark or CrashMark()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CrashMark).decode


def place_of(raw: Any, number: int) -> Place:
    """Return the place of an event: of its message, and of a bundle its number there, from 0."""
    return raw.topic, raw.offset, number


def _read(found: bytes) -> CrashMark:
    """Return a mark; one that another version wrote says no more than that a worker crashed."""
    try:
        return _decode(found)
    except msgspec.MsgspecError:
        return CrashMark()
