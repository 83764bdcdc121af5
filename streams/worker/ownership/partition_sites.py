"""Sites of one partition: those in memory, and stored ones that are still to be restored."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from streams.broker.fetched import Fetched
from streams.worker.checkpoint.checkpoint import EngineInput, EvictedSite, PendingEvents
from streams.worker.checkpoint.event_logs import LogGaps, log_of
from streams.worker.checkpoint.loader import SiteLoader, until_ready
from streams.worker.checkpoint.owned_table import OwnedTable, StoredSites
from streams.worker.checkpoint.stored_site import PartitionLog, SiteHandle, decode_stored
from streams.worker.intake.messages import Unreadable
from streams.worker.ownership.kept_sites import KeptSites

log = logging.getLogger(__name__)


class EvictionPending(Exception):
    """A new site evicts another one, whose earlier messages must be processed first."""

    def __init__(self, site: str) -> None:
        super().__init__(site)
        self.site = site


@dataclass(eq=False)
class PartitionSites:
    """Manage the sites of a partition, which can be served before all of them are in memory.

    A site is restored at most once. `handles` are the sites in memory.

    Args:
        restorer: Like `loader`, with crash detection, for the stored sites of a new partition: no event, operation or
            checkpoint in progress waits for these.
        pending: Records the sites to store or delete.
        begin: Starts a task in the scope of the partition.
        waiting: Returns the broker timestamp of the last waiting message before an offset, by site.
        most: Maximum number of sites without a dedicated topic.
        forget_s: Seconds without events after which a site may be evicted.
    """

    partition: int
    table: OwnedTable
    loader: SiteLoader
    restorer: SiteLoader
    gaps: LogGaps
    pending: PendingEvents
    begin: Callable[[Callable[[], Awaitable[None]]], "asyncio.Task[None]"]
    waiting: Callable[[int], Mapping[str, float]]
    most: int
    forget_s: float
    handles: dict[str, SiteHandle] = field(default_factory=dict, init=False)
    # Sites that are stored or being recreated, with the task that restores them; and the keys in the table that each
    # site had when the partition was assigned.
    _unread: dict[str, asyncio.Task[None] | None] = field(default_factory=dict, init=False)
    _segments: dict[str, list[bytes]] = field(default_factory=dict, init=False)
    _last: dict[str, float] = field(
        default_factory=dict, init=False
    )  # last timestamps of these sites, without those with dedicated topics

    async def take_over(self, stored: StoredSites, claiming: asyncio.Semaphore) -> None:
        """Claim every stored site, so that no other worker can write its restored data.

        Records that an earlier owner wrote before the claim are read as well.

        Args:
            claiming: Limits the concurrent claims of this worker.
        """
        stored = await self._claim_all(stored, claiming)
        heads = stored.heads
        behind = await self.gaps.look(self.partition, heads)
        latest_first = sorted(heads, key=lambda site: -heads[site].stamp)
        self._unread = dict.fromkeys(latest_first)
        # Segments of a site without a state: their writer crashed before it wrote the first head.
        await self.table.put({key: None for site, keys in stored.segments.items() if site not in heads for key in keys})
        self._segments = stored.segments
        self._last = {site: head.stamp for site, head in heads.items() if not head.own}
        for site, head in heads.items():
            if log_of(site, head) in behind:
                self._miss_events(await self.get(site, head.own))

    def resume(self, kept: KeptSites) -> None:
        """Continue with kept sites whose stored data no other process has changed; the others are restored."""
        before = len(self.handles)
        for site, (handle, head, _) in kept.items():
            lease = self.loader.store.claims.lease(site)
            is_stored = site in self._unread and self._unread[site] is None and self.table.get(site.encode()) == head
            if is_stored and lease is not None and self.loader.store.claims.is_continued(site):
                handle.claim = lease.number
                handle.jobs.free_others(self._segments.pop(site, ()))
                self.handles[site] = handle
                del self._unread[site]
                self._last.pop(site, None)
        if kept:
            where = {"partition": self.partition}
            log.info("Resumed %d of %d sites kept in memory", len(self.handles) - before, len(kept), extra=where)

    async def _claim_all(self, stored: StoredSites, claiming: asyncio.Semaphore) -> StoredSites:
        """Claim all sites, including those that are written meanwhile; return their stored data."""
        claimed, last = set[str](), None
        while True:
            new = [site for site in stored.heads if site not in claimed]
            for site in sorted(new, key=lambda site: -stored.heads[site].stamp):
                async with claiming:
                    await self.loader.claim(site, stored.heads[site].claim)
            claimed.update(new)
            await self.loader.confirm_membership()
            late = await self.loader.late_states(self.partition, last)
            if not late.records:
                return stored
            last, stored = late.last, self.table.take(late.records)

    async def read_back(self, reading: asyncio.Semaphore, seconds: float = math.inf) -> None:
        """Restore all sites, those with the latest events first; start none after `seconds`.

        Args:
            reading: Limits the concurrent restores of this worker.
        """
        end = time.monotonic() + seconds
        for site in list(self._unread):
            if time.monotonic() >= end:
                return
            async with reading:
                await self._read(site)

    def reading(self, site: str) -> "asyncio.Task[None] | None":
        """Return the task that brings a site into memory, and start it if necessary; None if there is nothing to wait
        for.
        """
        if site in self._unread and self._unread[site] is None:
            self._unread[site] = self.begin(partial(self._read_back, site))
        return self._unread.get(site)

    async def _read(self, site: str) -> None:
        if (task := self.reading(site)) is not None:
            await task

    async def _read_back(self, site: str) -> None:
        stored = decode_stored(self.table.get(site.encode()) or b"")
        self.handles[site] = await self._load(site, stored.own, self.restorer)
        del self._unread[site]
        self._last.pop(site, None)

    def knows(self, site: str) -> bool:
        """Return whether a site is here, in memory or stored."""
        return site in self.handles or site in self._unread or self.table.get(site.encode()) is not None

    async def get(self, site: str, own: bool) -> SiteHandle:
        """Return the site's handle: from memory, else from the stored state, else a new one.

        `own` is whether its events come on its dedicated topic. If that has changed, its offsets restart.
        """
        await self._read(site)
        handle = self.handles.get(site)
        if handle is None:
            handle = self.handles[site] = await self._load(site, own, self.loader)
        if handle.own != own:
            handle.start_epoch(own)
        return handle

    @property
    def is_full(self) -> bool:
        """True if a new site needs the place of another. O(sites) near the limit."""
        at_most = len(self._last) + len(self.handles)
        return at_most >= self.most and len(self._places()) >= self.most

    def _places(self) -> dict[str, float]:
        """Return the last broker timestamp of each site that counts towards the limit."""
        return self._last | {name: one.stamp for name, one in self.handles.items() if not one.own}

    async def admit(self, site: str, own: bool, raw: Fetched) -> SiteHandle:
        """Return the handle of the site of a new message.

        Sites with a dedicated topic do not count towards the limit. If the limit is reached, the site that has been
        idle longest is evicted, provided that it has been idle long enough. The choice depends only on the partition's
        events, so a replay gives the same result.

        Raises:
            Unreadable: The partition has no room for another site.
            EvictionPending: There is room after the earlier messages of the site to evict.
        """
        if not own and not self.knows(site):
            await self._make_room(raw)
        return await self.get(site, own)

    async def _make_room(self, raw: Fetched) -> None:
        """Evict the most idle site if the limit is reached.

        Waiting earlier messages count as processed, so the order of the sites' turns makes no difference.
        """
        last = self._places()
        if len(last) < self.most:
            return
        earlier = self.waiting(raw.offset)
        for name, waiting in earlier.items():
            if name in last:
                last[name] = max(last[name], waiting)
        silent = min(last, key=lambda name: (last[name], name))
        if last[silent] >= raw.timestamp - self.forget_s:
            raise Unreadable("too_many_sites", "its partition has `worker.max_sites_per_partition` others already")
        if silent in earlier:
            raise EvictionPending(silent)
        await self._read(silent)
        where = {"site": silent, "partition": self.partition}
        log.warning("Evicted idle site to make room for a new one", extra=where)
        evicted = self.handles.pop(silent)
        self.pending.batch.sites.discard(silent)
        self.pending.batch.evicted[silent] = EvictedSite(evicted.generation, evicted.jobs.all_keys)

    async def _load(self, site: str, own: bool, loader: SiteLoader) -> SiteHandle:
        value = self.table.get(site.encode())
        if value is None:
            return await loader.begin(site, self.partition, own)
        handle, is_repaired = await loader.load(site, decode_stored(value))
        handle.jobs.free_others(self._segments.pop(site, ()))
        if is_repaired:  # store it immediately, because the data used for the repair may expire
            self.pending.batch.sites.add(site)
        return handle

    def replace_handle(self, site: str, work: Callable[[SiteHandle], Awaitable[SiteHandle]]) -> "asyncio.Task[None]":
        """Start work that replaces a site's handle; until its end the site counts as being restored."""
        failed = self.handles.pop(site)
        if not failed.own:
            self._last[site] = failed.stamp

        async def swap() -> None:
            self.handles[site] = await work(failed)
            del self._unread[site]
            self._last.pop(site, None)

        task = self._unread[site] = self.begin(swap)
        return task

    async def rebuild(self, failed: SiteHandle, applied: Iterable[EngineInput]) -> SiteHandle:
        """Restore a site's engine to its state before the event during which it failed.

        It uses the stored state and the engine's inputs since then, without earlier failed events. All other fields of
        the handle count rejected events too, and stay. No checkpoint may run.

        Args:
            applied: Inputs of the partition's engines since the last checkpoint.
        """
        site = failed.engine.site
        fresh = await self._load(site, failed.own, self.loader)
        for one in applied:
            if one.site != site:
                continue
            await until_ready(fresh.engine)
            if one.event is None:
                fresh.engine.miss_events()
            else:
                await self.loader.in_turns(fresh.engine.prepare(one.event) or iter(()))
                fresh.engine.apply(one.event, one.arrived)
        handle = replace(failed, engine=fresh.engine, generation=fresh.generation)
        handle.jobs = fresh.jobs
        return handle

    async def has_gap(self, place: PartitionLog, expected: int, found: int) -> bool:
        """Return whether events were deleted between the expected offset and the one that arrived.

        Sites without waiting messages are notified immediately; the others when they reach a message behind the gap.
        """
        if not await self.gaps.is_one(place, expected, found):
            return False
        for site in list(self._unread):
            await self._read(site)
        waiting = self.waiting(found)
        for handle in self.handles.values():
            if handle.log == place and handle.engine.site not in waiting:
                self._miss_events(handle)
        return True

    def note_activity(self, message: Fetched) -> None:
        """Record that a site is not idle, whatever the result of its message; a waiting message counts as well."""
        handle = self.handles.get((message.key or b"").decode(errors="replace"))
        if handle is not None and message.timestamp > handle.stamp:
            handle.stamp = message.timestamp
            self.pending.batch.sites.add(handle.engine.site)

    def pass_over(self, site: str) -> None:
        """Skip an event of a site; its predictions are marked as missing events for a while."""
        if (handle := self.handles.get(site)) is not None:
            self._miss_events(handle)

    def _miss_events(self, handle: SiteHandle) -> None:
        handle.engine.miss_events()
        self.pending.batch.sites.add(handle.engine.site)
        self.pending.batch.applied.append(EngineInput(handle.engine.site))
