"""One owned partition: its state, and all its tasks."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from faust.types import TP

from models.durations import DAY_S
from streams.broker.fetched import Fetched
from streams.errors import UserError
from streams.settings import Settings
from streams.worker.checkpoint.checkpoint import Acknowledgements, Histories, PendingEvents
from streams.worker.checkpoint.crashes import CrashTracker, ExclusiveWork
from streams.worker.checkpoint.event_logs import EventLogs, LogGaps, MessageBatch
from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.owned_table import OwnedTable, OwnershipToken, Retries, Revoked, StoredSites
from streams.worker.checkpoint.redis_client import AWAY
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored_site import Table
from streams.worker.intake.intake import Intake
from streams.worker.ownership.checkpoints import Checkpoints, Work
from streams.worker.ownership.kept_sites import KeptSites, kept_sites
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.partition_sites import PartitionSites
from streams.worker.ownership.processing import Processing
from streams.worker.ownership.runs import RunBudget
from streams.worker.ownership.site_queues import MemoryBudget, SiteQueues

log = logging.getLogger(__name__)
FIRST_S = 1.0  # time for restoring sites before the partition is served, seconds
EXCUSE_S = 1.0  # timeout for restoring the crash marker, seconds
HAND_OVER_S = 5.0  # timeout of the final checkpoint of a revoked partition, seconds
CLAIMS_AT_A_TIME = 8  # concurrent claims in Redis

READ_AT_A_TIME = 2
"""Concurrent restores before a partition is served, so that one decodes while the other waits for Redis."""


@dataclass
class SharedContext:
    """Context shared by the partitions of a worker.

    Attributes:
        store: Creates a store that checks a token.
        alive: Raises if this process may no longer write.
        supervised: Runs a task; an error in it stops the worker.
        clock: Monotonic clock, seconds.
        acknowledge: Commits an offset for the group.
        is_busy: Returns whether events wait.
        room: Limits the number of queued messages.
        claiming: Limits concurrent claims of sites.
        reading_first: Limits concurrent restores before a partition is served.
        reading: Limits concurrent restores after that.
        rebuilding: Limits concurrent rebuilds of sites.
        runs: Limits the runs of messages of the partitions.
    """

    settings: Settings
    table: Table
    store: Callable[[OwnershipToken], SiteStore]
    events: EventLogs
    intake: Intake
    outbox: Outbox
    alive: Callable[[], None]
    supervised: Callable[[Work], Awaitable[None]]
    confirm: Callable[[], Awaitable[None]]
    clock: Callable[[], float] = time.monotonic
    compressing: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "checkpoint"))
    acknowledge: Callable[[TP, int], None] = lambda *_: None
    is_busy: Callable[[], bool] = lambda: False
    room: MemoryBudget = field(default_factory=MemoryBudget)
    claiming: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CLAIMS_AT_A_TIME))
    reading_first: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READ_AT_A_TIME))
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    exclusive: ExclusiveWork = field(default_factory=ExclusiveWork)
    rebuilding: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    runs: RunBudget = field(init=False)

    def __post_init__(self) -> None:
        self.runs = RunBudget(lambda: self.clock())


class OwnedPartition:
    """One partition of the events, from its assignment until it is revoked.

    All its tasks run in one task scope, and all its writes check its token. So after `revoke` returns, nothing more
    happens here, and the next owner may begin. An error in the scope stops the worker.

    Messages are processed one by one, in fair turns of the sites (`SiteQueues`), and in runs that share the event loop
    (`RunBudget`). The messages of a blocked site (one that waits for a training, a restore or a rebuild) are skipped,
    so each site's messages keep their order. A waiting message is in no checkpoint, and no later offset is committed,
    so it is redelivered after a crash.

    Args:
        stored: Table contents of the partition.
        kept: Sites in memory of an earlier assignment.
    """

    def __init__(self, number: int, context: SharedContext, stored: StoredSites, kept: KeptSites | None = None) -> None:
        self.number = number
        self._stored: StoredSites | None = stored
        settings, worker, self.token = context.settings, context.settings.worker, OwnershipToken(number, context.alive)
        self._context = context
        self._table = table = OwnedTable(context.table, self.token)
        self._retries = Retries(self.token.check)
        self._store = store = context.store(self.token)
        self.kept: KeptSites = kept or {}
        """Sites of the earlier assignment until they are claimed; after `revoke` those for the next one."""
        store.claims.inherit({site: one.lease for site, one in self.kept.items()})
        self._is_stored = False  # the last checkpoint was made
        self.crashes = CrashTracker(number, store, self._retries, worker.checkpoint_events, context.exclusive)
        loader = SiteLoader(
            store,
            settings.engine,
            self._retries,
            context.events,
            table.get,
            context.intake.replay,
            context.confirm,
            context.is_busy,
        )
        pending = PendingEvents(worker.checkpoint_events, worker.checkpoint_seconds, context.clock)
        self.sites = PartitionSites(
            number,
            table,
            loader,
            replace(loader, doing=self.crashes.doing),
            LogGaps(context.events, self._retries, table),
            pending,
            self._begin,
            lambda offset: self._queues.waiting(offset),
            worker.max_sites_per_partition,
            settings.sites.idle_ttl_days * DAY_S,
        )
        self.checkpoints = Checkpoints(
            pending,
            self.sites,
            Histories(store, loader, self._retries, lambda site: table.get(site.encode())),
            self.crashes,
            self.token,
            table,
            context.compressing,
            self._begin,
            Acknowledgements(self._acknowledge, lambda topic: self._queues.oldest_parked(topic)),
        )
        self._queues = SiteQueues(
            context.room,
            self._is_known,
            self._read_again,
            self._begin,
            self.checkpoints.acknowledgements.take,
            lambda: self.sites.is_full,
            context.clock,
        )
        self._processing = Processing(
            self.token,
            self._queues,
            self.sites,
            self.checkpoints,
            context.intake,
            context.outbox,
            context.rebuilding,
            context.runs,
        )
        self._serving, self._leaving = asyncio.Event(), asyncio.Event()
        self._scope = asyncio.TaskGroup()
        self._life = asyncio.ensure_future(context.supervised(self._live))
        self._life.add_done_callback(_known)

    async def _live(self) -> None:
        """Run from the first claim to the last checkpoint. A void token cancels all tasks here."""
        try:
            async with self._scope:
                stored, self._stored = self._stored, None
                assert stored is not None
                await self.crashes.begin()
                await self.sites.take_over(stored, self._context.claiming)
                self.sites.resume(self.kept)
                self.kept = {}
                await self.sites.read_back(self._context.reading_first, FIRST_S)
                self._serving.set()
                self._begin(partial(self.sites.read_back, self._context.reading))
                self._begin(self._processing.process_all)
                await self._leaving.wait()
                async with self.checkpoints.turn:
                    await self.checkpoints.make()
                await self.crashes.ended()
                self.token.revoke()
                self._is_stored = True
                raise Revoked("the partition is handed over")
        except BaseExceptionGroup as failed:
            for error in failed.exceptions:
                if not isinstance(error, Revoked):
                    raise error from None
        finally:
            self.token.revoke()

    def _begin(self, work: Work) -> "asyncio.Task[None]":
        return self._scope.create_task(self._revoking_on_error(work))

    async def _revoking_on_error(self, work: Work) -> None:
        """Do work, and revoke the token if it fails, so that nothing more is written."""
        try:
            await work()
        except Exception:
            self.token.revoke()
            raise

    async def until_served(self) -> None:
        """Wait until the partition is served, or never will be."""
        until_served = asyncio.ensure_future(self._serving.wait())
        await asyncio.wait([until_served, self._life], return_when=asyncio.FIRST_COMPLETED)
        until_served.cancel()

    async def revoke(self) -> None:
        """Make a last checkpoint, if there is time; after the return, nothing more is done for the partition."""
        self._queues.close()
        if self._serving.is_set():
            self._leaving.set()
            await asyncio.wait([self._life], timeout=HAND_OVER_S)
        if not self._life.done():
            log.warning("Final checkpoint skipped; the next owner will reprocess these events", extra=self._where)
            await self.restore_crash_mark()
        self.token.revoke()
        self._life.cancel()
        await asyncio.wait([self._life])
        is_stored = self._is_stored and self.checkpoints.since is None
        preparing = self._processing.preparing
        self.kept = kept_sites(self.sites.handles, self._table, self._store, preparing) if is_stored else {}
        self._queues.clear()
        self.checkpoints.forget()
        self.sites.handles.clear()  # engines are large, so free them before the next garbage collection

    async def restore_crash_mark(self) -> None:
        """Record in Redis, if it responds, that this worker does not end because of its work."""
        store = self._context.store(OwnershipToken(self.number, self._context.alive))
        with suppress(TimeoutError, UserError, *AWAY):
            async with asyncio.timeout(EXCUSE_S):
                await self.crashes.restore_crash_mark(store)

    @property
    def is_served(self) -> bool:
        """True if its messages are processed, and questions about its sites are answered."""
        return self._serving.is_set() and not self._leaving.is_set() and not self.token.void

    @property
    def obstacle(self) -> str | None:
        """The server that is being retried, and its error; None if there is none."""
        return self._retries.obstacle

    @property
    def _where(self) -> dict[str, int]:
        return {"partition": self.number}

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def is_busy(self) -> bool:
        """True if a message can be processed now."""
        return self._queues.is_busy

    async def put(self, message: Fetched) -> None:
        """Queue a message. Waits while the queue is full."""
        await self._queues.until_nearer()
        if self.is_served:
            self._processing.arrived(message)
            self.checkpoints.acknowledgements.arrived(message)
            self._queues.put(message)

    def _is_known(self, key: bytes) -> bool:
        return self.sites.knows(key.decode(errors="replace"))

    def _acknowledge(self, topic: str, offset: int) -> None:
        self._context.acknowledge(TP(topic, self.number), offset)

    async def _read_again(self, topic: str, key: bytes, first: int, last: int, most: int) -> MessageBatch:
        """Read parked messages again."""
        site = key.decode(errors="replace")
        place = (TP(topic, self.number), key, first, last, most)
        found = await self._retries.until_done("kafka: reading events", site, self._context.events.read_some, *place)
        if found.lost:
            log.error("Events were deleted before they were read", extra={"site": site, "partition": self.number})
            self.sites.pass_over(site)
        return found

    @property
    def is_due(self) -> bool:
        """True if a checkpoint must begin."""
        return self.is_served and self.checkpoints.due


def _known(life: "asyncio.Future[None]") -> None:
    """Mark the task's error as retrieved, because it is already reported and asyncio would log it again."""
    if not life.cancelled():
        life.exception()
