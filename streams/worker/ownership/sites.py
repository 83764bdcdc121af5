"""The sites of one partition: those in memory, and those that are stored and still to be read back."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from models.engine.engine import Engine
from streams.worker.checkpoint.checkpoint import AppliedEvent, Gone, Missed, Pending
from streams.worker.checkpoint.event_logs import LogGaps, log_of
from streams.worker.checkpoint.loader import SiteLoader, until_ready
from streams.worker.checkpoint.stored import Log, SiteHandle, decode_stored
from streams.worker.checkpoint.table import OwnedTable, StoredSites
from streams.worker.intake.messages import Unreadable

log = logging.getLogger(__name__)


@dataclass(eq=False)
class PartitionSites:
    """Knows each site of a partition, and lets it be served before all of them are in memory.

    A site is read back at most once, whoever asks for it. `handles` are the sites in memory.

    Parameters:
        pending: is told which sites are to be stored, and which to be deleted.
        begin: begins a task in the scope of the partition.
        most: sites without a topic of their own that the partition has room for.
        forget_s: seconds after which a silent site gives its place to another.
    """

    partition: int
    table: OwnedTable
    loader: SiteLoader
    gaps: LogGaps
    pending: Pending
    begin: Callable[[Callable[[], Awaitable[None]]], "asyncio.Task[None]"]
    most: int
    forget_s: float
    handles: dict[str, SiteHandle] = field(default_factory=dict, init=False)
    # Sites that are stored, or being made again, with what brings them into memory; and the keys of the table that a
    # site had when the partition came.
    _unread: dict[str, asyncio.Task[None] | None] = field(default_factory=dict, init=False)
    _segments: dict[str, list[bytes]] = field(default_factory=dict, init=False)

    async def take_over(self, stored: StoredSites, claiming: asyncio.Semaphore) -> None:
        """Claim every stored site: nobody else may write any more what is read back here.

        Parameters:
            claiming: lets so many sites of this worker be claimed at a time.
        """
        heads = stored.heads
        behind = await self.gaps.look(self.partition, heads)
        latest_first = sorted(heads, key=lambda site: -heads[site].stamp)
        self._unread = dict.fromkeys(latest_first)
        # Segments of a site without a state: their writer died before it had written the first.
        await self.table.put({key: None for site, keys in stored.segments.items() if site not in heads for key in keys})
        self._segments = stored.segments
        for site in latest_first:
            async with claiming:
                await self.loader.claim(site)
        for site, head in heads.items():
            if log_of(site, head) in behind:
                self._miss_events(await self.get(site, head.own))

    async def read_back(self, reading: asyncio.Semaphore, seconds: float = math.inf) -> None:
        """Read back all of them, those with the latest events first; none is begun any more after so many seconds.

        Parameters:
            reading: lets so many sites of this worker be read at a time.
        """
        end = time.monotonic() + seconds
        for site in list(self._unread):
            if time.monotonic() >= end:
                return
            async with reading:
                await self._read(site)

    def reading(self, site: str) -> "asyncio.Task[None] | None":
        """What has to be waited for until a site is in memory (again); it is read back then. None where nothing has."""
        if site in self._unread and self._unread[site] is None:
            self._unread[site] = self.begin(partial(self._read_back, site))
        return self._unread.get(site)

    async def _read(self, site: str) -> None:
        if (task := self.reading(site)) is not None:
            await task

    async def _read_back(self, site: str) -> None:
        stored = decode_stored(self.table.get(site.encode()) or b"")
        self.handles[site] = await self._load(site, stored.own)
        del self._unread[site]

    def knows(self, site: str) -> bool:
        """Whether a site is here, in memory or stored."""
        return site in self.handles or self.table.get(site.encode()) is not None

    async def get(self, site: str, own: bool) -> SiteHandle:
        """The site's handle: the one in memory, else one made from the stored state, else a new one.

        `own` says whether its events come on its own topic. Where that has changed, its offsets begin again.
        """
        await self._read(site)
        handle = self.handles.get(site)
        if handle is None:
            handle = self.handles[site] = await self._load(site, own)
        if handle.own != own:
            handle.begin_epoch(own)
        return handle

    async def admit(self, site: str, own: bool, stamp: float) -> SiteHandle:
        """The handle of a site of which an event came to the broker at `stamp`.

        A site with its own topic needs no room. Where there is none, the site that has been silent for longest loses
        its place, if that is long enough. That follows from the partition's events alone, so it is the same when they
        are seen again.

        Raises:
            Unreadable: its partition has no room for another site.
        """
        if not own and not self.knows(site):
            for other in list(self._unread):  # whether there is room is known with all of them
                await self._read(other)
            self._make_room(stamp)
        return await self.get(site, own)

    def _make_room(self, stamp: float) -> None:
        others = {name: one for name, one in self.handles.items() if not one.own}
        if len(others) < self.most:
            return
        silent = min(others, key=lambda name: (others[name].stamp, name))
        if others[silent].stamp >= stamp - self.forget_s:
            raise Unreadable("too_many_sites", "its partition has `worker.partition_sites` others already")
        where = {"site": silent, "partition": self.partition}
        log.warning("the site has been silent for long and gives its place to another", extra=where)
        gone = self.handles.pop(silent)
        self.pending.batch.sites.discard(silent)
        self.pending.batch.gone[silent] = Gone(gone.generation, gone.jobs.all_keys)

    async def _load(self, site: str, own: bool) -> SiteHandle:
        value = self.table.get(site.encode())
        if value is None:
            return await self.loader.begin(site, self.partition, own)
        handle, mended = await self.loader.load(site, decode_stored(value))
        handle.jobs.free_others(self._segments.pop(site, ()))
        if mended:  # to be stored at once: what it took to mend it may not be there for long
            self.pending.batch.sites.add(site)
        return handle

    def mend(self, site: str, work: Callable[[SiteHandle], Awaitable[SiteHandle]]) -> "asyncio.Task[None]":
        """Begin work that gives a site whose engine has failed a new handle; until then the site is being read back."""
        failed = self.handles.pop(site)

        async def mend() -> None:
            self.handles[site] = await work(failed)
            del self._unread[site]

        task = self._unread[site] = self.begin(mend)
        return task

    async def rebuild(self, failed: SiteHandle, applied: Iterable[AppliedEvent | Missed]) -> SiteHandle:
        """Make a site's engine again after it failed in the middle of an event: as it was before that event.

        That is the stored state and what the engine was told since, without the events at which it failed before. All
        else of the handle counts refused events too, and stays. No checkpoint may run.

        Parameters:
            applied: what the partition's engines were told since the last checkpoint.
        """
        site = failed.engine.site
        fresh = await self._load(site, failed.own)
        for one in applied:
            if one.site != site:
                continue
            await until_ready(fresh.engine)
            if isinstance(one, Missed):
                fresh.engine.miss_events()
            else:
                fresh.engine.apply(one.event, one.arrived)
        handle = replace(failed, engine=fresh.engine, generation=fresh.generation)
        handle.jobs = fresh.jobs
        return handle

    async def begin_again(self, handle: SiteHandle, offset: int) -> tuple[SiteHandle, int]:
        """Replace a site's handle by one made from the events before `offset`; gives it, and how many there were."""
        fresh, count = await self.loader.begin_anew(handle, offset)
        fresh.operations = handle.operations
        self.handles[handle.engine.site] = fresh
        return fresh, count

    async def replace(self, handle: SiteHandle, engine: Engine) -> SiteHandle:
        """Replace a site's engine by one that has learnt nothing of what is stored."""
        fresh = await self.loader.replace(handle, engine)
        fresh.operations = handle.operations
        self.handles[engine.site] = fresh
        return fresh

    async def look_for_gap(self, place: Log, expected: int, found: int) -> None:
        """An event came whose offset is not the expected one: where those between were deleted, its sites say so."""
        if await self.gaps.is_one(place, expected, found):
            for site in list(self._unread):
                await self._read(site)
            for handle in self.handles.values():
                if handle.log == place:
                    self._miss_events(handle)

    def pass_over(self, site: str) -> None:
        """An event of a site is not applied; its predictions say for a while that events are missing."""
        if (handle := self.handles.get(site)) is not None:
            self._miss_events(handle)

    def _miss_events(self, handle: SiteHandle) -> None:
        handle.engine.miss_events()
        self.pending.batch.sites.add(handle.engine.site)
        self.pending.batch.applied.append(Missed(handle.engine.site))
