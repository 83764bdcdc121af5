"""Brings a site back from its stored state and its entries in Redis, also when some of these are lost."""

import asyncio
import logging
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

from models.engine.checkpoint import SavedState, read_saved
from models.engine.engine import Engine
from models.engine.salvage import salvage
from models.engine.settings import EngineSettings
from streams.worker.claims import WritesLost
from streams.worker.parking import until_ready
from streams.worker.retries import Retries
from streams.worker.store import SiteStore, Stored, included
from streams.worker.stored import Events, SiteHandle, StoredState, decode_stored

log = logging.getLogger(__name__)

MESSAGES_PER_TURN = 100
"""Messages that are read anew before other tasks get their turn."""


STATES_AT_A_TIME = (64, 1024, None)
"""Messages at the changelog's end among which an earlier state is looked for, in turn; None: all there are."""


class SiteLoader:
    """Makes the handles of sites: new ones, and those of stored states.

    `replay` applies a message to a handle's engine as the worker would, and sends nothing.
    """

    def __init__(self, store: SiteStore, settings: EngineSettings, retries: Retries) -> None:
        self.events: Events | None = None
        self.replay: Callable[[SiteHandle, Any], None] = lambda *_: None
        self._store = store
        self._settings = settings
        self._until_done = retries.until_done

    async def begin(self, site: str, partition: int, own: bool) -> SiteHandle:
        """A site without a stored state. What Redis may hold of its name is left alone: a backup may count it."""
        await self._claim(site)
        generation = await self._until_done("redis: looking", partial(self._store.begin, site), site)
        return SiteHandle(Engine(site, self._settings), partition, own=own, generation=generation)

    async def begin_anew(self, handle: SiteHandle, offset: int) -> tuple[SiteHandle, int]:
        """A site as its events before `offset` make it, as far as the topic has them still, and how many these are.

        What it had learnt is left in Redis until the new state is stored, so a crash in between begins this anew.
        """
        site = handle.engine.site
        fresh = await self.begin(site, handle.partition, handle.own)
        fresh.offset, fresh.epoch, fresh.stamp = handle.offset, handle.epoch, handle.stamp
        assert self.events is not None
        read = partial(self.events.read, handle.log, 0, offset - 1, site.encode())
        messages = await self._until_done("kafka: reading events", read, site)
        for number, message in enumerate(messages):
            await until_ready(fresh.engine)
            self.replay(fresh, message)
            if number % MESSAGES_PER_TURN == 0:
                await asyncio.sleep(0)
        return fresh, len(messages)

    async def load(self, site: str, stored: StoredState) -> tuple[SiteHandle, bool]:
        """A site as it was stored, and whether it had to be mended, so that it is to be stored anew."""
        while True:
            try:
                return await self._load(site, stored)
            except WritesLost as error:  # just now, while it was read
                log.error("Redis has lost what was written last: %s", error, extra=_where(site, stored))

    async def _load(self, site: str, stored: StoredState) -> tuple[SiteHandle, bool]:
        saved = read_saved(zlib.decompress(stored.state))
        await self._claim(site)
        entries = await self._read(site, stored)
        try:
            engine, mended = self._engine(saved, entries), False
        except ValueError as error:
            return await self._mend(site, stored, saved, entries, error), True
        await self._clean(site, stored, entries, saved)
        log.info("the site goes on, %d live jobs", len(engine.context.state), extra=_where(site, stored))
        return _handle(engine, stored), mended

    async def _claim(self, site: str) -> None:
        await self._until_done("redis: claiming", partial(self._store.claim, site), site)

    async def _read(self, site: str, stored: StoredState) -> Stored:
        await self._until_done("redis: reading", partial(self._store.take_back, site, stored.generation), site)
        return await self._until_done("redis: reading", partial(self._store.read, site, stored.generation), site)

    def _engine(self, saved: SavedState, entries: Stored) -> Engine:
        return Engine.load(saved, entries.started, entries.runs, self._settings, entries.rows)

    async def _clean(self, site: str, stored: StoredState, entries: Stored, saved: SavedState) -> None:
        kept = included(entries, saved, self._settings.history)
        clean = partial(self._store.clean, site, entries, kept, stored.generation)
        await self._until_done("redis: clearing", clean, site)

    async def _mend(
        self, site: str, stored: StoredState, saved: SavedState, entries: Stored, error: ValueError
    ) -> SiteHandle:
        """Go on though entries are lost: from the events if that is possible, else with the entries that are left."""
        if again := await self._go_back(site, stored, saved, entries):
            log.warning("Redis has lost entries (%s); made anew from the events", error, extra=_where(site, stored))
            return again
        generation = await self._until_done("redis: looking", partial(self._store.begin, site), site)
        if entries.started or entries.runs:
            log.error("Redis has lost entries (%s); the rest is kept, degraded", error, extra=_where(site, stored))
            engine = salvage(saved, entries.started, entries.runs, entries.rows, self._settings)
        else:
            log.error(
                "Redis has lost entries, all of them; the histories begin anew, degraded", extra=_where(site, stored)
            )
            engine = Engine.load(saved, None, None, self._settings)
        handle = _handle(engine, stored)
        handle.generation = generation
        return handle

    async def _go_back(self, site: str, stored: StoredState, saved: SavedState, entries: Stored) -> SiteHandle | None:
        """Begin from an earlier state, whose entries are all there, and apply the events since then once more.

        That gives the same state again, to the byte. A Redis that lost its last seconds has all entries of the state
        from before, and the changelog has that state: it is compacted only after a while. None where it is not so.
        """
        if self.events is None or not (entries.started or entries.runs):
            return None
        for most in STATES_AT_A_TIME:
            read = partial(self.events.earlier_states, stored.partition, site.encode(), most)
            for earlier in map(decode_stored, await self._until_done("kafka: reading states", read, site)):
                if (found := self._as_it_was(earlier, stored, entries)) is None:
                    continue
                handle, before = found
                if not await self._catch_up(handle, stored, saved):
                    return None
                await self._clean(site, earlier, entries, before)
                return handle
        return None

    def _as_it_was(
        self, earlier: StoredState, stored: StoredState, entries: Stored
    ) -> tuple[SiteHandle, SavedState] | None:
        """A site as an earlier state has it; None where its entries are not all there, or its offsets are others."""
        same = (earlier.epoch, earlier.own, earlier.generation) == (stored.epoch, stored.own, stored.generation)
        if not same or earlier.offset >= stored.offset:
            return None
        before = read_saved(zlib.decompress(earlier.state))
        try:
            return _handle(self._engine(before, entries), earlier), before
        except ValueError:
            return None

    async def _catch_up(self, handle: SiteHandle, stored: StoredState, saved: SavedState) -> bool:
        """Apply a site's events up to a stored state; returns whether that came to the same."""
        assert self.events is not None
        log_of, key = handle.log, handle.engine.site.encode()
        ranges = await self._until_done("kafka: the ends of partitions", partial(self.events.ranges, [log_of]))
        if ranges[log_of].first > handle.offset + 1:
            return False
        read = partial(self.events.read, log_of, handle.offset + 1, stored.offset, key)
        for message in await self._until_done("kafka: reading events", read, handle.engine.site):
            await until_ready(handle.engine)
            try:
                self.replay(handle, message)
            except Exception:  # an event that is in the dead letters as `engine_failed`, and half in this engine
                log.exception("the engine failed", extra={"site": handle.engine.site})
                return False
        handle.offset, handle.stamp, handle.operations = stored.offset, stored.stamp, stored.operations
        context, events = handle.engine.context, handle.engine.events
        return (events, context.history.count, context.runs.count) == (saved.events, saved.started, saved.runs)


def _handle(engine: Engine, stored: StoredState) -> SiteHandle:
    return SiteHandle(
        engine,
        stored.partition,
        stored.offset,
        stored.epoch,
        stored.own,
        stored.generation,
        stored.stamp,
        stored.arrivals,
        stored.operations,
    )


def _where(site: str, stored: StoredState) -> dict[str, Any]:
    return {"site": site, "partition": stored.partition, "offset": stored.offset}
