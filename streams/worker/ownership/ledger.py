"""The ledger: which events are in which site's state, and which of them are durable."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from models.durations import DAY_S
from models.engine.settings import EngineSettings
from streams.errors import UserError
from streams.settings import SitesSettings, WorkerSettings
from streams.worker.checkpoint.claims import Superseded
from streams.worker.checkpoint.histories import Histories
from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.loader import SiteLoader, until_ready
from streams.worker.checkpoint.log_gaps import LogGaps, log_of
from streams.worker.checkpoint.retries import Retries
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored import (
    AppliedEvent,
    Delivered,
    Gone,
    Log,
    PendingBatch,
    SiteHandle,
    StoredState,
    Table,
    decode_segment,
    decode_stored,
)
from streams.worker.checkpoint.writing import SiteCut, compressed
from streams.worker.ownership.late import LateSites

log = logging.getLogger(__name__)

FIRST_S = 1.0
"""Seconds within which a worker that takes partitions over begins to read their sites back before it serves any."""

CLAIMS_AT_A_TIME = 8
"""Sites that are claimed in Redis at a time."""


class Ledger:
    """Owns what was processed, what was written and what was committed.

    The invariant has two halves:

    - *An event's offset is committed only after everything that followed from it is durable:* its outputs in Kafka,
      its entries in Redis, and a state that includes it in the table.
    - *A state that is read back is exactly the state at the offset that is stored with it.*

    It holds because a checkpoint of a partition does these steps in this order. A checkpoint takes the partition
    between two events. Only one runs at a time; events that come meanwhile belong to the next one:

    1. Wait until the outputs of the pending events are delivered.
    2. Write the new entries of the histories to Redis. After a crash here Redis is ahead of the state. That does no
       harm: entries are numbered by the fold and the state says how many it counts, so a reader ignores the rest. The
       same events, seen again, write the same entries to the same places.
    3. Write state and offset to the table, as one value, so that neither can be there without the other. Of the live
       jobs it holds those that have changed lately and names the segments that hold the others (`JobLog`). New ones are
       durable before it is written. After a crash in between nothing names them: they are deleted later.
    4. Delete from Redis, and of the segments, what the new state no longer needs. Not earlier: until step 3 a reader
       may need it.
    5. Acknowledge the events, so that Faust may commit their offsets.

    A checkpoint costs what has changed since the one before, whatever is live. Taking what is to be stored is done
    between two events; compressing it is done in another thread.

    When a partition is taken away during a checkpoint, the rest is left out: the next owner continues from the state
    before. This worker then writes no more states of it, because it could replace a newer state by an older one. The
    next owner has claimed the sites in Redis, so nothing more can be written there either (`claims`).

    After a crash at any step Kafka delivers again what was not committed. Events that the stored state already
    includes are skipped by their offset. The others go through the engine again and give the same bytes again.
    """

    def __init__(
        self,
        table: Table,
        store: SiteStore,
        engine_settings: EngineSettings,
        settings: WorkerSettings,
        clock: Callable[[], float] = time.monotonic,
        forget_days: float = SitesSettings().forget_days,
    ) -> None:
        self.handles: dict[str, SiteHandle] = {}
        self.checkpointed: float | None = None
        """When the last checkpoint ended, Unix seconds; None before the first."""
        self.before_write: Callable[[], None] = lambda: None  # raises when nothing may be written any more
        self.is_home: Callable[[str, int], bool] = lambda *_: True  # whether a site belongs to a partition
        self._pending: dict[int, PendingBatch] = {}
        self._compressing = ThreadPoolExecutor(1, "checkpoint")
        self._segments: dict[str, list[bytes]] = {}  # keys of the table that a site had when it was taken over
        self._running: dict[int, tuple[PendingBatch, asyncio.Task[None]]] = {}  # checkpoints
        self._forgotten: set[str] = set()  # sites that have lost their places, which the table has still
        self._table = table
        self._settings = settings
        self._clock = clock
        self._forget_s = forget_days * DAY_S
        self._retries = Retries(lambda: self.before_write())
        self.loader = SiteLoader(store, engine_settings, self._retries, table.get)
        self.late = LateSites(self._take_back, self.handles)
        self._histories = Histories(store, self.loader, self._retries, self._value)
        self._gaps = LogGaps(self.loader, self._retries, self._put_if_allowed)

    def __iter__(self) -> Iterator[SiteHandle]:
        return iter(self.handles.values())

    @property
    def trouble(self) -> str | None:
        """The server that is being waited for, and its error; None while there is none."""
        return self._retries.trouble

    @property
    def age_s(self) -> float:
        """For how long the oldest event that is not durable yet has been waiting for that, seconds; 0 without one."""
        batches = [*self._pending.values(), *(batch for batch, _ in self._running.values())]
        return max((self._clock() - batch.since for batch in batches), default=0.0)

    async def handle(self, site: str, partition: int, own: bool = False) -> SiteHandle:
        """The site's handle: the one in memory, else one made from the stored state, else a new one.

        `own` says whether its events come on its own topic. Where that has changed, its offsets begin again.
        """
        await self.late.get(site)
        handle = self.handles.get(site)
        if handle is None:
            handle = self.handles[site] = await self._load(site, partition, own)
        if handle.own != own:
            handle.own, handle.epoch, handle.offset = own, handle.epoch + 1, -1
        return handle

    def admits(self, site: str, partition: int, own: bool = False, stamp: float = 0.0) -> bool:
        """Whether a site is known here, or its partition has room for another site.

        A site with its own topic needs no room. Where there is none, the site that has been silent for longest loses
        its place, if that is long enough. The answer follows from the partition's events alone (`stamp` is the broker's
        time of this one), so it is the same when they are seen again.
        """
        if own or site in self.handles or self._value(site) is not None:
            return True
        others = {name: one for name, one in self.handles.items() if one.partition == partition and not one.own}
        if len(others) < self._settings.partition_sites:
            return True
        for name, one in others.items():
            if not one.stamp and stamp:  # stored by an earlier version: its silence counts from now on
                one.stamp = stamp
                self._batch(partition).sites.add(name)
        silent = min(others, key=lambda name: (others[name].stamp, name))
        if others[silent].stamp >= stamp - self._forget_s:
            return False
        self._forget(silent)
        return True

    def _forget(self, site: str) -> None:
        handle = self.handles.pop(site)
        where = {"site": site, "partition": handle.partition}
        log.warning("the site has been silent for long and gives its place to another", extra=where)
        self._forgotten.add(site)
        batch = self._batch(handle.partition)
        batch.sites.discard(site)
        batch.gone[site] = Gone(handle.generation, handle.jobs.all_keys)

    def _value(self, site: str) -> bytes | None:
        return None if site in self._forgotten else self._table.get(site.encode())

    async def take_over(self, partitions: Collection[int]) -> None:
        """Claim every stored site of these partitions, and read back those that `FIRST_S` is enough for.

        The others are `late`: they are read back when they are needed, at the latest by their next event.

        Raises:
            UserError: a site's state is not in the partition to which its key belongs.
        """
        keys = list(self._table.keys())
        found = {key: decode_stored(self._table.get(key) or b"") for key in keys if site_of(key) == key}
        found = {key: stored for key, stored in found.items() if stored.partition in partitions}
        self._check_homes(found)
        behind = await self._gaps.look(partitions, found)
        latest_first = sorted(found.items(), key=lambda one: -one[1].stamp)
        self.late.add({key.decode(): stored.partition for key, stored in latest_first})
        await self._claim_all()
        for key, stored in found.items():
            if log_of(key, stored) in behind:
                self._miss_events(await self.handle(key.decode(), stored.partition, stored.own))
        await self._find_segments(key for key in keys if site_of(key) != key)
        await self.late.get_all(seconds=FIRST_S)

    async def _find_segments(self, keys: Iterable[bytes]) -> None:
        """Know which segments there are of each site, to delete those that its state does not name.

        Where there is no state they are deleted at once: their writer died before it had written the first.
        """
        self._segments.clear()
        for key in keys:
            site = site_of(key).decode()
            if self._value(site) is not None:
                self._segments.setdefault(site, []).append(key)
            elif (value := self._table.get(key)) is not None:
                await self._put_if_allowed({key: None}, decode_segment(value).partition)

    async def _claim_all(self) -> None:
        """Claim all sites that are late: nobody else may write any more what this worker will read back."""
        names = iter(list(self.late))

        async def claim_some() -> None:
            for site in names:
                if site in self.late:  # else its partition was taken away meanwhile, and another claims it
                    await self.loader.claim(site)

        await asyncio.gather(*(claim_some() for _ in range(CLAIMS_AT_A_TIME)))

    async def _take_back(self, site: str) -> SiteHandle:
        stored = decode_stored(self._value(site) or b"")
        return await self._load(site, stored.partition, stored.own)

    def _miss_events(self, handle: SiteHandle) -> None:
        handle.engine.miss_events()
        self._batch(handle.partition).sites.add(handle.engine.site)

    def _check_homes(self, found: Mapping[bytes, StoredState]) -> None:
        for key, stored in found.items():
            if not self.is_home(key.decode(), stored.partition):
                raise UserError(
                    f"the state of {key.decode()!r} is in partition {stored.partition}, to which its key does not "
                    "belong: partitions were added, or its events were partitioned by another hash than murmur2; "
                    "stop all workers and sources, then `queuecast topics --rehash` moves the sites"
                )

    async def notice_gap(self, place: Log, expected: int, found: int) -> None:
        """An event came whose offset is not the expected one: where those between were deleted, its sites say so."""
        if await self._gaps.is_one(place, expected, found):
            await self.late.get_all(place.partition)
            for handle in self.handles.values():
                if handle.log == place:
                    self._miss_events(handle)

    async def _load(self, site: str, partition: int, own: bool) -> SiteHandle:
        value = self._value(site)
        if value is None:
            return await self.loader.begin(site, partition, own)
        handle, mended = await self.loader.load(site, decode_stored(value))
        handle.jobs.free_others(self._segments.pop(site, ()))
        if mended:  # to be stored at once: what it took to mend it may not be there for long
            self._batch(partition).sites.add(site)
        return handle

    def _batch(self, partition: int) -> PendingBatch:
        return self._pending.setdefault(partition, PendingBatch(self._clock()))

    def knows(self, site: str) -> bool:
        """Whether a site is here, in memory or stored."""
        return site in self.handles or self._value(site) is not None

    async def begin_anew(self, handle: SiteHandle, offset: int) -> tuple[SiteHandle, int]:
        """Replace a site's handle by one made from the events before `offset`; gives it, and how many there were."""
        await self._end_of_checkpoint(handle.partition)
        fresh, count = await self.loader.begin_anew(handle, offset)
        fresh.operations = handle.operations
        self.handles[handle.engine.site] = fresh
        return fresh, count

    async def rebuild(self, site: str, partition: int) -> None:
        """Make a site's engine anew after it failed in the middle of an event: as it was before that event.

        That is the stored state and the pending events, without those that failed before.
        """
        await self._end_of_checkpoint(partition)
        own = self.handles.pop(site).own
        handle = await self.handle(site, partition, own)
        for one in self._batch(partition).applied:
            if one.event.site == site:
                await until_ready(handle.engine)
                handle.engine.apply(one.event, one.arrived)
                handle.offset, handle.stamp = one.offset, max(one.arrived or 0.0, handle.stamp)
                handle.arrivals.add(one.arrived or 0.0)

    def record(
        self,
        partition: int,
        event: Delivered,
        site: str | None,
        sends: Iterable[Awaitable[Any]],
        applied: AppliedEvent | None = None,
    ) -> None:
        """Note that an event was processed.

        Parameters:
            site: the one whose state has changed, if only by the offset.
            sends: the event's outputs, on their way.
            applied: the event, where it is in the site's engine.
        """
        batch = self._batch(partition)
        batch.events.append(event)
        batch.sends.extend(sends)
        if site is not None:
            batch.sites.add(site)
        if applied is not None:
            batch.applied.append(applied)

    def due(self) -> list[int]:
        """The partitions whose pending events are many enough, or old enough, for a checkpoint."""
        old = self._clock() - self._settings.checkpoint_seconds
        return [part for part, batch in self._pending.items() if self.full(part) or batch.since <= old]

    def full(self, partition: int) -> bool:
        """Whether the partition has as many pending events as it may have."""
        batch = self._pending.get(partition)
        return batch is not None and len(batch.events) >= self._settings.checkpoint_events

    def running_checkpoints(self) -> list[int]:
        """The partitions of which a checkpoint is running.

        Raises:
            Exception: whatever made one fail.
        """
        done = [partition for partition, (_, task) in self._running.items() if task.done()]
        for partition in done:
            self._running.pop(partition)[1].result()
        return list(self._running)

    async def checkpoint(self, partition: int) -> None:
        """Make everything durable that followed from the partition's pending events, then acknowledge them."""
        await self.begin_checkpoint(partition)
        await self._end_of_checkpoint(partition)

    async def begin_checkpoint(self, partition: int) -> None:
        """Begin a checkpoint of the partition as it is now; events may come while it runs.

        A partition has one checkpoint at a time: this waits until an earlier one has ended.

        Raises:
            Exception: whatever made the earlier one fail.
        """
        await self._end_of_checkpoint(partition)
        batch = self._pending.pop(partition, None)
        if batch is not None:
            states = [SiteCut.of(self.handles[site]) for site in sorted(batch.sites) if site in self.handles]
            task = asyncio.create_task(self._run_checkpoint(batch, partition, states))
            self._running[partition] = batch, task

    async def _end_of_checkpoint(self, partition: int) -> None:
        if partition in self._running:
            try:
                await self._running[partition][1]
            finally:
                self._running.pop(partition, None)

    async def _run_checkpoint(self, batch: PendingBatch, partition: int, states: list[SiteCut]) -> None:
        try:
            await self._make_durable(batch, partition, states)
        except Superseded:
            if not batch.dropped:  # else another worker has the partition now, as it should
                raise

    async def _make_durable(self, batch: PendingBatch, partition: int, states: list[SiteCut]) -> None:
        """The steps of a checkpoint, in the order that the invariant needs."""
        packed = asyncio.get_running_loop().run_in_executor(self._compressing, compressed, states, partition)
        await asyncio.gather(*batch.sends)
        for one in states:
            await self._histories.write(one.changes)
        heads, segments = await packed
        if batch.dropped:
            return
        self.before_write()
        for site, gone in batch.gone.items():
            for key in (site.encode(), *gone.keys):
                await self._table.put(key, None, partition)
            self._forgotten.discard(site)
        await self._put(segments, partition)
        await self._put_if_allowed(heads, partition)
        for one in states:
            await self._histories.trim(one.changes)
        await self._put(dict.fromkeys(key for one in states for key in one.jobs.freed), partition)
        for site, gone in batch.gone.items():
            await self._histories.forget(site, gone.generation)
        if not batch.dropped:
            for event in batch.events:
                event.ack()
            self.checkpointed = time.time()

    async def _put_if_allowed(self, values: Mapping[bytes, bytes | None], partition: int) -> None:
        """As `_put`, where anything may still be written."""
        self.before_write()
        await self._put(values, partition)

    async def _put(self, values: Mapping[bytes, bytes | None], partition: int) -> None:
        await asyncio.gather(*(self._table.put(key, value, partition) for key, value in values.items()))

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the sites of partitions that are another worker's now; it will see their pending events again."""
        self.late.drop(partitions)
        for partition in partitions:
            batches = [self._pending.pop(partition, None), self._running.get(partition, (None,))[0]]
            for batch in filter(None, batches):
                batch.dropped = True
                self._forgotten.difference_update(batch.gone)
            for site in [site for site, handle in self.handles.items() if handle.partition == partition]:
                del self.handles[site]
