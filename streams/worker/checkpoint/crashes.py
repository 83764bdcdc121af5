"""Find the event, operation, question or estimate that crashes workers, so that it can be rejected."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec

from streams.worker.checkpoint.owned_table import Retries, Revoked
from streams.worker.checkpoint.store import SiteStore

log = logging.getLogger(__name__)
MAX_CRASHES = 2  # workers that may crash on one event; after that it is rejected
FEW_EVENTS = 50  # maximum number of events of a checkpoint after a crash

Place = tuple[str, int, int]
"""Current work: topic, offset and bundle index of an event; or the kind and number of other work."""

MAX_SUSPECTS = 16  # maximum number of recorded crash places


class CrashMark(msgspec.Struct, array_like=True, frozen=True):
    """Crash marker of a partition in Redis while a worker owns it.

    Attributes:
        starts: Workers that have taken over the partition since the last clean state.
        under_way: The current work.
        crashes: Number of crashed workers by place.
    """

    starts: int = 1
    under_way: Place | None = None
    crashes: tuple[tuple[Place, int], ...] = ()

    def after_crash(self) -> "CrashMark":
        """Return the marker after a crash."""
        counts = dict(self.crashes)
        if self.under_way is not None:
            counts[self.under_way] = counts.pop(self.under_way, 0) + 1
        return CrashMark(self.starts + 1, None, tuple(counts.items())[-MAX_SUSPECTS:])


class ExclusiveWork:
    """Run one piece of work at a time in this process while any of its partitions searches for the cause of crashes.

    A process crashes as a whole: with concurrent work, each part would be blamed.
    """

    def __init__(self) -> None:
        self.careful: set[int] = set()
        self._one = asyncio.Lock()
        self._broken = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold the lock in the block; without waiting if no partition is careful."""
        if not self.careful:
            yield
            return
        async with self._one:
            if self._broken:
                await asyncio.Event().wait()
            try:
                yield
            except Revoked:  # the process goes on with its other partitions
                raise
            except Exception:  # this ends the process; until then no other work may be blamed
                self._broken = True
                raise


class CrashTracker:
    """Find the event that crashes the workers of a partition.

    A worker that releases a partition deletes its marker. A worker that finds a marker has a crashed predecessor, and
    makes small checkpoints of `FEW_EVENTS` events. They cover the events for which the predecessor made no checkpoint.

    If it crashes too, the event is among the next few, and its successor is careful: it does one thing at a time in the
    whole process. It writes a marker before each event and makes a checkpoint after it. If that worker crashes, the
    marker names the event. An event that has crashed two workers is rejected. While the site of the event is being
    restored, events of other sites may come first each time, so the named events are remembered. Questions and
    estimates are marked too.

    A marker exists only during work that may crash, not while the worker waits for a server. A worker that ends for
    another reason (a server refuses, or it is stopped) restores the marker that it found. A marker has an owner, the
    latest worker that took over the partition. A former owner that still runs changes nothing.

    Args:
        most: Maximum number of events of a checkpoint; twice as many can follow that of a crashed worker.
        exclusive: Shared by the partitions of this process.
    """

    def __init__(self, partition: int, store: SiteStore, retries: Retries, most: int, exclusive: ExclusiveWork) -> None:
        self._partition, self._store, self._until_done = partition, store, retries.until_done
        self._most, self._exclusive = most, exclusive
        self._found: CrashMark | None = None
        self._mark = CrashMark()
        self._done: Place | None = None
        self._careful_events = 0  # events for which this worker is careful
        self._excused = False
        self._owner = uuid4().hex  # unique for each assignment of a partition
        self.checkpoint_events = most  # number of pending events at which a checkpoint is due

    @property
    def is_careful(self) -> bool:
        """True if each event is marked before it is processed, and durable before the next one."""
        return self._careful_events > 0 and self.checkpoint_events == 1

    @property
    def has_no_suspect(self) -> bool:
        """True if this process searches for no crash cause, and this partition rejects no event."""
        return not self._exclusive.careful and not self._mark.crashes

    async def begin(self) -> None:
        """Take over the partition: read the marker, write the next one, and choose the size of checkpoints."""
        found = await self._until_done("redis: reading the crash mark", None, self._store.mark, self._partition)
        if found is not None:
            self._found = _read(found)
            self._mark = self._found.after_crash()
        given = self._partition, self._owner, _encode(self._mark)
        await self._until_done("redis: taking the crash mark", None, self._store.take_mark, *given)
        if self._found is None:
            return
        few = min(FEW_EVENTS, self._most)
        if self._found.starts == 1:
            self.checkpoint_events, self._careful_events = few, 2 * self._most
        else:
            self.checkpoint_events, self._careful_events = 1, 2 * (self._most if self._mark.crashes else few)
            self._exclusive.careful.add(self._partition)
        where = {"partition": self._partition}
        log.warning(
            "The last worker crashed: checkpoints are made every %d events", self.checkpoint_events, extra=where
        )

    def count(self, passes_others: bool) -> None:
        """Count an event that is about to be processed.

        Args:
            passes_others: Whether earlier messages of other sites may be waiting; these may be the cause of crashes.
        """
        if not passes_others:
            self._careful_events = max(self._careful_events - 1, 0)

    @asynccontextmanager
    async def doing(self, place: Place) -> AsyncIterator[bool]:
        """Mark work that may crash; yield False if it must be rejected because workers have crashed on it."""
        if dict(self._mark.crashes).get(place, 0) >= MAX_CRASHES:
            yield False
            return
        async with self._exclusive.turn():
            if not self.is_careful:
                yield True
                return
            if self._done == place:  # its first half: what workers crash on may come now
                self._done = None
            await self._write(CrashMark(self._mark.starts, place, self._mark.crashes))
            yield True
            self._done = place
            await self._write(CrashMark(self._mark.starts, None, self._mark.crashes))

    async def survived(self) -> None:
        """Update the marker after a checkpoint."""
        if self._mark.starts == 1:
            return
        if not self._careful_events:
            self.checkpoint_events = self._most
            self._exclusive.careful.discard(self._partition)
            await self._write(CrashMark())
        elif self._done is not None and self._done in dict(self._mark.crashes):
            crashes = tuple(one for one in self._mark.crashes if one[0] != self._done)
            await self._write(CrashMark(self._mark.starts, self._mark.under_way, crashes))
            if not crashes:
                self._careful_events = min(self._careful_events, 2 * FEW_EVENTS)

    async def ended(self) -> None:
        """Delete the marker after a clean release of the partition."""
        self._exclusive.careful.discard(self._partition)
        await self._write(None, released=True)

    async def restore_crash_mark(self, store: SiteStore) -> None:
        """Restore the marker that was found: this worker does not end because of its work."""
        self._excused = True
        mark = None if self._found is None else _encode(self._found)
        await store.set_mark(self._partition, self._owner, mark, True)

    async def _write(self, mark: CrashMark | None, released: bool = False) -> None:
        if not self._excused:
            value = None if mark is None else _encode(mark)
            given = self._partition, self._owner, value, released
            await self._until_done("redis: marking", None, self._store.set_mark, *given)
        self._mark = mark or CrashMark()


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CrashMark).decode


def place_of(raw: Any, number: int) -> Place:
    """Return the place of an event: its message, and its number in the bundle, from 0."""
    return raw.topic, raw.offset, number


def _read(found: bytes) -> CrashMark:
    """Decode a marker; a marker of another version only means that a worker crashed."""
    try:
        return _decode(found)
    except msgspec.MsgspecError:
        return CrashMark()
