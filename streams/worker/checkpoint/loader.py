"""Restore a site from its stored state and its entries in Redis, even if some of these are lost."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from models.engine.engine import Engine
from models.engine.operator_commands import restarted
from models.engine.salvage import salvage
from models.engine.saved_state import SavedState
from models.engine.settings import EngineSettings
from streams.worker.checkpoint.claims import WritesLost
from streams.worker.checkpoint.crashes import Place
from streams.worker.checkpoint.event_logs import ChangelogRecords, EventLogs, as_os_errors
from streams.worker.checkpoint.job_log import keys_of, site_of
from streams.worker.checkpoint.owned_table import Retries
from streams.worker.checkpoint.pacing import Pacer
from streams.worker.checkpoint.store import HistoryEntries, SiteStore, included
from streams.worker.checkpoint.stored_site import IN_BOTH, SiteHandle, StoredState, decode_stored, read_state

log = logging.getLogger(__name__)
EVENTS_PER_TURN = 16  # replayed events per turn, between which other tasks run

REBUILT_AT_A_TIME = 5000  # messages per read in a rebuild

STATES_AT_A_TIME = (64, 1024, None)
"""Numbers of messages at the end of the changelog to search for an earlier state, in turn; None for all."""


class EngineFailed(Exception):
    """A site's engine failed while it applied an event."""

    def __init__(self, site: str, detail: str) -> None:
        super().__init__(detail)
        self.site = site
        self.detail = detail


@dataclass(eq=False)
class SiteLoader:
    """Create the handles of sites, for new sites and from stored states.

    Slow work, which is to decode a state and to create its engine, runs in another thread.

    Args:
        segment: Returns the value of a job segment in the table by key.
        replay: Applies a message, or its first events, to a handle's engine as the worker does. It pauses before each
            event and sends nothing.
        confirm: Raises if the group of workers does not count this process as a member now.
        is_busy: Returns whether events of other sites wait.
        doing: Tracks a recovery from the events for crash detection, and yields whether it may be done
            (`CrashTracker.doing`). Tracked work that waits for a tracked load would wait forever.
    """

    store: SiteStore
    settings: EngineSettings
    retries: Retries
    events: EventLogs
    segment: Callable[[bytes], bytes | None]
    replay: Callable[[SiteHandle, Any, int | None], Iterator[None]]
    confirm: Callable[[], Awaitable[None]]
    is_busy: Callable[[], bool] = lambda: False
    doing: Callable[[Place], AbstractAsyncContextManager[bool]] = lambda _: nullcontext(True)

    async def begin(
        self, site: str, partition: int, own: bool, after: int = 0, after_generation: int = -1
    ) -> SiteHandle:
        """Create a site without a stored state. Existing entries in Redis stay, as a backup may count them.

        Args:
            after: Number of an earlier claim of the site.
            after_generation: Generation of an earlier state of the site.
        """
        claim = await self.claim(site, after)
        await self.confirm_membership()
        generation = await self.retries.until_done("redis: looking", site, self.store.begin, site, after_generation)
        return SiteHandle(Engine(site, self.settings), partition, own=own, generation=generation, claim=claim)

    async def rebuild(self, handle: SiteHandle, offset: int) -> tuple[SiteHandle, int]:
        """Recreate a site from its events before `offset` that are still in the topic; return their number too.

        The old histories stay in Redis until the new state is stored, so a crash in between repeats the rebuild. It
        uses only a share of the event loop while other sites have events.

        Raises:
            EngineFailed: The engine failed at one of these events.
        """
        site, count, first = handle.engine.site, 0, max(handle.first, 0)
        fresh = await self.begin(site, handle.partition, handle.own, handle.claim, handle.generation)
        fresh.epoch = handle.epoch
        while first < offset:
            place = (self.events.place(handle), site.encode(), first, offset - 1, REBUILT_AT_A_TIME)
            some = await self.retries.until_done("kafka: reading events", site, self.events.read_some, *place)
            await self._replay(fresh, some.messages, paced=True)
            count, first = count + len(some.messages), some.next
        return await self._in_place_of(handle, fresh), count

    async def reset(self, handle: SiteHandle) -> SiteHandle:
        """Create a site without history, with the live jobs of this one. The old histories stay as in `rebuild`.

        Raises:
            EngineFailed: The engine failed at one of the live jobs.
        """
        site = handle.engine.site
        fresh = await self.begin(site, handle.partition, handle.own, handle.claim, handle.generation)
        fresh.epoch = handle.epoch
        pacer = Pacer(self.is_busy)
        try:
            for engine in restarted(handle.engine):
                fresh.engine = engine
                await pacer.pause()
        except Exception as error:
            log.exception("the engine failed", extra={"site": site})
            raise EngineFailed(site, repr(error)) from None
        return await self._in_place_of(handle, fresh)

    async def _in_place_of(self, handle: SiteHandle, fresh: SiteHandle) -> SiteHandle:
        """Complete a handle that replaces another one."""
        for name in ("offset", "applied_parts", "stamp", "first", "arrivals", "operations"):
            setattr(fresh, name, getattr(handle, name))
        await asyncio.to_thread(fresh.jobs.fill, fresh.engine, handle.jobs.all_keys)
        return fresh

    async def in_turns(self, steps: Iterator[None]) -> None:
        """Run the steps of slow work in turns with other tasks."""
        pacer = Pacer(self.is_busy)
        for _ in steps:
            await pacer.pause()

    async def load(self, site: str, stored: StoredState) -> tuple[SiteHandle, bool]:
        """Restore a site, and return whether it was repaired and must be stored again."""
        while True:
            try:
                return await self._load(site, stored)
            except WritesLost as error:  # lost during the restore
                log.error("Redis lost acknowledged writes: %s", error, extra=_where(site, stored))

    async def _load(self, site: str, stored: StoredState) -> tuple[SiteHandle, bool]:
        saved, jobs = await asyncio.to_thread(read_state, site, stored, self.segment)
        claim = await self.claim(site, stored.claim)
        entries = await self._read(site, stored)
        handle, is_repaired = await self._handle(site, stored, saved, jobs.fault, entries)
        handle.claim = claim
        if is_repaired:
            await asyncio.to_thread(handle.jobs.fill, handle.engine, keys_of(site, stored.runs))
        else:
            handle.jobs = jobs
        log.info("Restored site with %d live jobs", len(handle.engine.context.state), extra=_where(site, stored))
        return handle, is_repaired

    async def _handle(
        self, site: str, stored: StoredState, saved: SavedState, fault: str | None, entries: HistoryEntries
    ) -> tuple[SiteHandle, bool]:
        """Create a site from its stored data, and return whether something was missing.

        Args:
            fault: Describes what is wrong with its live jobs.
        """
        if fault is not None:
            return await self._restore_jobs(site, stored, saved, fault, entries), True
        try:
            engine = await asyncio.to_thread(self._engine, saved, entries)
        except ValueError as error:
            return await self._restore_entries(site, stored, saved, entries, error), True
        await self._clean(site, stored, entries, saved)
        return _handle(engine, stored), False

    async def claim(self, site: str, after: int = 0) -> int:
        """Become the only writer of a site's entries; return the number of the claim (`FencingLeases.claim`)."""
        return await self.retries.until_done("redis: claiming", site, self.store.claim, site, after)

    async def confirm_membership(self) -> None:
        """Wait until the group's coordinator confirms this process as a member, after it has claimed sites.

        So a claim is followed by states only if no other worker owned the partition before the claim. A worker that is
        cut off from the coordinator, and claims sites that its successor has claimed already, waits here forever.
        """

        async def confirm() -> None:
            with as_os_errors():
                await self.confirm()

        await self.retries.until_done("kafka: confirming the group membership", None, confirm)

    async def late_states(self, partition: int, after: int | None) -> ChangelogRecords:
        """Read late records of a partition of the changelog (`EventLogs.late_states`)."""
        return await self.retries.until_done("kafka: reading states", None, self.events.late_states, partition, after)

    async def _read(self, site: str, stored: StoredState) -> HistoryEntries:
        await self.retries.until_done("redis: reading", site, self.store.take_back, site, stored.generation)
        return await self.retries.until_done("redis: reading", site, self.store.read, site, stored.generation)

    def _engine(self, saved: SavedState, entries: HistoryEntries) -> Engine:
        """Restore an engine.

        Raises:
            ValueError: The state and the entries do not fit, also in a way that no check foresees: a site that cannot
                be restored must not end each worker that takes it over.
        """
        try:
            return Engine.load(saved, entries.started, entries.runs, self.settings, entries.rows)
        except ValueError:
            raise
        except Exception as error:
            log.exception("The state and the entries do not fit", extra={"site": saved.site})
            raise ValueError(f"they do not fit: {error!r}") from error

    def _salvaged(self, saved: SavedState, entries: HistoryEntries) -> Engine:
        """Restore an engine from the remaining entries; from the state alone if that is impossible."""
        try:
            return salvage(saved, entries.started, entries.runs, entries.rows, self.settings)
        except Exception:
            log.exception("The remaining entries cannot be restored", extra={"site": saved.site})
            return Engine.load(saved, None, None, self.settings)

    async def _clean(self, site: str, stored: StoredState, entries: HistoryEntries, saved: SavedState) -> None:
        kept = included(entries, saved, self.settings.history)
        await self.retries.until_done("redis: clearing", site, self.store.clean, site, entries, kept, stored.generation)

    async def _restore_entries(
        self, site: str, stored: StoredState, saved: SavedState, entries: HistoryEntries, error: ValueError
    ) -> SiteHandle:
        """Recover from lost Redis entries: from the events if possible, else with the remaining entries."""
        if again := await self._go_back(site, stored, saved, entries):
            log.warning("Redis lost entries (%s): recovered from the events", error, extra=_where(site, stored))
            return again
        generation = await self.retries.until_done("redis: looking", site, self.store.begin, site, stored.generation)
        if entries.started or entries.runs:
            log.error("Redis lost entries (%s): kept the rest, degraded", error, extra=_where(site, stored))
            engine = await asyncio.to_thread(self._salvaged, saved, entries)
        else:
            log.error("Redis lost all entries: histories restart empty, degraded", extra=_where(site, stored))
            engine = await asyncio.to_thread(Engine.load, saved, None, None, self.settings)
        handle = _handle(engine, stored)
        handle.generation = generation
        return handle

    async def _restore_jobs(
        self, site: str, stored: StoredState, saved: SavedState, fault: str, entries: HistoryEntries
    ) -> SiteHandle:
        """Recover from lost live jobs: from the events if possible, else with the remaining jobs."""
        if again := await self._go_back(site, stored, saved, entries):
            log.warning("Lost live jobs (%s): recovered from the events", fault, extra=_where(site, stored))
            return again
        log.error("Lost live jobs (%s): kept the rest, degraded", fault, extra=_where(site, stored))
        try:
            handle = _handle(await asyncio.to_thread(self._engine, saved, entries), stored)
        except ValueError as error:  # entries in Redis are lost too
            handle = await self._restore_entries(site, stored, saved, entries, error)
        handle.engine.miss_events()
        return handle

    async def _go_back(
        self, site: str, stored: StoredState, saved: SavedState, entries: HistoryEntries
    ) -> SiteHandle | None:
        """Restore an earlier state whose entries all exist, and replay the events since then.

        The result is byte-identical. A Redis that lost its last seconds still has all entries of the earlier state, and
        the changelog has that state, because compaction is delayed. Returns None if that is not the case.
        """
        counted = saved.histories
        if (counted.started or counted.runs_kept) and not (entries.started or entries.runs):
            return None
        for most in STATES_AT_A_TIME:
            which = (stored.partition, site.encode(), most)
            found = await self.retries.until_done("kafka: reading states", site, self.events.earlier_states, *which)
            heads = [decode_stored(value) for key, value in found if site_of(key) == key]
            segments = dict(reversed(found))  # each key is written once
            for earlier in heads:
                before = await asyncio.to_thread(self._as_it_was, site, earlier, stored, entries, segments)
                if before is None:
                    continue
                handle, before_saved = before
                if not await self._catch_up(handle, stored, saved):
                    return None
                await self._clean(site, earlier, entries, before_saved)
                return handle
        return None

    def _as_it_was(
        self,
        site: str,
        earlier: StoredState,
        stored: StoredState,
        entries: HistoryEntries,
        segments: Mapping[bytes, bytes],
    ) -> tuple[SiteHandle, SavedState] | None:
        """Restore a site from an earlier state; None if parts of it are missing or its offsets are of another epoch.

        Args:
            segments: Segments from the changelog, for those that the table no longer has.
        """
        same = (earlier.epoch, earlier.own, earlier.generation) == (stored.epoch, stored.own, stored.generation)
        if not same or earlier.position >= stored.position:
            return None
        try:
            saved, jobs = read_state(site, earlier, lambda key: self.segment(key) or segments.get(key))
            return None if jobs.fault else (_handle(self._engine(saved, entries), earlier), saved)
        except ValueError:
            return None

    async def _catch_up(self, handle: SiteHandle, stored: StoredState, saved: SavedState) -> bool:
        """Apply a site's events up to a stored state; return whether the result has the same counts.

        Workers may have crashed on one of them, which was then rejected. So this is tracked as a whole.
        """
        async with self.doing((f"recovery {handle.engine.site}", stored.offset, 0)) as may:
            return may and await self._apply_up_to(handle, stored, saved)

    async def _apply_up_to(self, handle: SiteHandle, stored: StoredState, saved: SavedState) -> bool:
        log_of, site = handle.log, handle.engine.site
        ranges = await self.retries.until_done("kafka: the ends of partitions", None, self.events.ranges, [log_of])
        first = handle.offset + (handle.applied_parts == 0)
        if ranges[log_of].first > first:
            return False
        place = (log_of, first, stored.offset, site.encode())
        messages = await self.retries.until_done("kafka: reading events", site, self.events.read, *place)
        try:
            await self._replay(handle, messages, last=(stored.offset, stored.applied_parts))
        except EngineFailed:  # an event with the dead letter `engine_failed`, partly applied here
            return False
        for name in ("offset", "applied_parts", "stamp", "operations"):
            setattr(handle, name, getattr(stored, name))
        context, counted = handle.engine.context, saved.histories
        found = handle.engine.events, context.history.count, context.runs.count
        return found == (saved.events, counted.started, counted.runs)

    async def _replay(
        self, handle: SiteHandle, messages: Iterable[Any], paced: bool = False, last: tuple[int, int] = (-1, 0)
    ) -> None:
        """Apply messages of a site again, and let other tasks run in between.

        Args:
            paced: Use only a share of the event loop.
            last: The offset of the last message and the number of its events to apply; 0 for all.

        Raises:
            EngineFailed: The engine failed at one of these events.
        """
        site, count, pacer = handle.engine.site, 0, Pacer(self.is_busy)
        for message in messages:
            try:
                for _ in self.replay(handle, message, last[1] or None if message.offset == last[0] else None):
                    count += 1
                    if count % EVENTS_PER_TURN == 0:
                        await asyncio.sleep(0)
                    if paced:
                        await pacer.pause()
                    if handle.engine.pending() is not None:
                        await until_ready(handle.engine)
                        pacer.begin_turn()
            except Exception as error:
                log.exception("the engine failed", extra={"site": site, "offset": message.offset})
                raise EngineFailed(site, f"at the event of offset {message.offset}: {error!r}") from None


async def until_ready(engine: Engine) -> None:
    """Wait until the engine can apply its next event; other tasks run meanwhile."""
    while (future := engine.pending()) is not None:
        await asyncio.wait([asyncio.wrap_future(future)])


def _handle(engine: Engine, stored: StoredState) -> SiteHandle:
    return SiteHandle(engine, **{name: getattr(stored, name) for name in IN_BOTH})


def _where(site: str, stored: StoredState) -> dict[str, Any]:
    return {"site": site, "partition": stored.partition, "offset": stored.offset}
