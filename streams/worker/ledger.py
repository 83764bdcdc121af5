"""The ledger: which events are in which site's state, and which of them are durable."""

import asyncio
import logging
import time
import zlib
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from redis.exceptions import RedisError
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_chain, wait_fixed

from models.engine.checkpoint import Changes, read_saved
from models.engine.engine import Engine
from models.engine.settings import Settings
from streams.settings import WorkerSettings
from streams.worker.store import SiteStore

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts at a server that is away; the last one is repeated."""


class StoredState(msgspec.Struct, array_like=True):
    """A site's state with the offset of the last event in it, as one value in the table.

    `v` is the version of this record, `state` is compressed with zlib, and `epoch` counts how often the partition's
    offsets have begun again.
    """

    v: int
    partition: int
    offset: int
    state: bytes
    epoch: int = 0


_encode_stored = msgspec.msgpack.Encoder().encode
_decode_stored = msgspec.msgpack.Decoder(StoredState).decode


def offset_of(value: bytes) -> tuple[int, int]:
    """The epoch and offset of the last event in a stored state; of two states of a site the greater is the later."""
    stored = _decode_stored(value)
    return stored.epoch, stored.offset


class Table(Protocol):
    """What the ledger needs of the table of sites: Faust's, or a test's."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a site."""

    def keys(self) -> Iterable[bytes]:
        """The sites that have a value."""

    def put(self, key: bytes, value: bytes, partition: int) -> Awaitable[Any]:
        """Set the value of a site; done when the changelog has it."""


class Events(Protocol):
    """What the ledger needs of the events topic."""

    async def ends(self, partitions: Iterable[int]) -> Mapping[int, int]:
        """Each partition's end; raises OSError while the broker does not answer."""

    def renewed(self, partition: int) -> None:
        """A partition has been made anew since its states were stored."""


class Delivered(Protocol):
    """A message that was taken from Kafka and is to be acknowledged."""

    def ack(self) -> bool:
        """Let its offset be committed."""


@dataclass
class SiteHandle:
    """One site at this worker: its engine, its partition, and the last event in the engine (offset -1: none)."""

    engine: Engine
    partition: int
    offset: int = -1
    epoch: int = 0


@dataclass
class PendingBatch:
    """Events of one partition that were processed and are not durable yet, and what followed from them.

    `since` is when the first of them came, on the ledger's clock. `dropped` is set once the partition is another's.
    """

    since: float
    events: list[Delivered] = field(default_factory=list)
    sends: list[Awaitable[Any]] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)
    dropped: bool = False


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
    3. Write state and offset to the table, as one value, so that neither can be there without the other.
    4. Delete from Redis what the new state no longer needs. Not earlier: until step 3 a reader may need it.
    5. Acknowledge the events, so that Faust may commit their offsets.

    When a partition is taken away during a checkpoint, the rest is left out: the next owner continues from the state
    before. This worker then writes no more states of it, because it could replace a newer state by an older one.

    After a crash at any step Kafka delivers again what was not committed. Events that the stored state already
    includes are skipped by their offset. The others go through the engine again and give the same bytes again.
    """

    def __init__(
        self,
        table: Table,
        store: SiteStore,
        engine_settings: Settings,
        settings: WorkerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.handles: dict[str, SiteHandle] = {}
        self.trouble: str | None = None  # the server that is being waited for, and its error
        self.events: Events | None = None
        self.before_write: Callable[[], None] = lambda: None  # raises when nothing may be written any more
        self._pending: dict[int, PendingBatch] = {}
        self._running: dict[int, tuple[PendingBatch, asyncio.Task[None]]] = {}  # checkpoints
        self._table = table
        self._store = store
        self._engine_settings = engine_settings
        self._settings = settings
        self._clock = clock

    def __iter__(self) -> Iterator[SiteHandle]:
        return iter(self.handles.values())

    async def handle(self, site: str, partition: int) -> SiteHandle:
        """The site's handle: the one in memory, else one made from the stored state, else a new one."""
        handle = self.handles.get(site)
        if handle is None:
            handle = self.handles[site] = await self._load(site, partition)
        return handle

    def admits(self, site: str, partition: int) -> bool:
        """Whether a site is known here, or its partition has room for another site.

        The answer follows from the partition's events alone, so it is the same when they are seen again.
        """
        if site in self.handles or self._table.get(site.encode()) is not None:
            return True
        return sum(handle.partition == partition for handle in self) < self._settings.partition_sites

    async def take_over(self, partitions: Container[int]) -> None:
        """Load every stored site of these partitions, so that they are served before their next event."""
        found = {key: self._stored(key) for key in list(self._table.keys())}
        found = {key: stored for key, stored in found.items() if stored.partition in partitions}
        if self.events is not None and found:
            await self._begin_epochs(self.events, found)
        for key, stored in found.items():
            await self.handle(key.decode(), stored.partition)

    def _stored(self, key: bytes) -> StoredState:
        return _decode_stored(self._table.get(key) or b"")

    async def _begin_epochs(self, events: Events, found: Mapping[bytes, StoredState]) -> None:
        """Begin a new epoch in partitions whose states include offsets that the topic does not have.

        Their offsets have begun again. This is written at once: later the new offsets may have grown beyond the old.
        """
        last: dict[int, int] = {}
        for stored in found.values():
            last[stored.partition] = max(stored.offset, last.get(stored.partition, -1))
        ends = await self._until_done("kafka: the ends of partitions", partial(events.ends, last))
        for partition in (partition for partition in last if last[partition] >= ends[partition]):
            log.error(
                "the events topic was made anew or cut short: it ends at %d here, the states go up to %d; "
                "they go on with what it holds now",
                ends[partition],
                last[partition],
                extra={"partition": partition},
            )
            events.renewed(partition)
            self.before_write()
            keys = [key for key, stored in found.items() if stored.partition == partition]
            await asyncio.gather(*(self._begin_epoch(key) for key in keys))

    async def _begin_epoch(self, key: bytes) -> None:
        stored = self._stored(key)
        stored.epoch, stored.offset = stored.epoch + 1, -1
        await self._table.put(key, _encode_stored(stored), stored.partition)

    async def _load(self, site: str, partition: int) -> SiteHandle:
        value = self._table.get(site.encode())
        if value is None:
            await self._until_done("redis: clearing", partial(self._store.forget, site), site)
            return SiteHandle(Engine(site, self._engine_settings), partition)
        stored = _decode_stored(value)
        engine = await self._load_engine(site, stored)
        where = {"site": site, "partition": partition, "offset": stored.offset}
        log.info("the site goes on, %d live jobs", len(engine.context.state), extra=where)
        return SiteHandle(engine, partition, stored.offset, stored.epoch)

    async def _load_engine(self, site: str, stored: StoredState) -> Engine:
        """The engine of a stored state; without histories, and degraded, where Redis has lost entries of theirs."""
        saved, settings = read_saved(zlib.decompress(stored.state)), self._engine_settings
        load = partial(self._store.load, site, saved, settings.history)
        entries = await self._until_done("redis: reading", load, site)
        try:
            return Engine.load(saved, entries.started, entries.runs, settings, entries.rows)
        except ValueError as error:
            where = {"site": site, "partition": stored.partition}
            log.error("Redis has lost entries (%s); the histories begin anew, degraded", error, extra=where)
            await self._until_done("redis: clearing", partial(self._store.forget, site), site)
            return Engine.load(saved, None, None, settings)

    def record(self, partition: int, event: Delivered, site: str | None, sends: Iterable[Awaitable[Any]]) -> None:
        """Note that an event was processed: `site` is the one it changed, `sends` are its outputs on their way."""
        batch = self._pending.get(partition)
        if batch is None:
            batch = self._pending[partition] = PendingBatch(self._clock())
        batch.events.append(event)
        batch.sends.extend(sends)
        if site is not None:
            batch.sites.add(site)

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
            states = [(site, *self._state_of(site)) for site in sorted(batch.sites) if site in self.handles]
            oldest = {site: self.handles[site].engine.context.history.oldest for site, *_ in states}
            task = asyncio.create_task(self._make_durable(batch, partition, states, oldest))
            self._running[partition] = batch, task

    async def _end_of_checkpoint(self, partition: int) -> None:
        if partition in self._running:
            try:
                await self._running[partition][1]
            finally:
                self._running.pop(partition, None)

    async def _make_durable(
        self, batch: PendingBatch, partition: int, states: list[tuple[str, bytes, Changes]], oldest: dict[str, int]
    ) -> None:
        """The steps of a checkpoint, in the order that the invariant needs."""
        await asyncio.gather(*batch.sends)
        for site, _, changes in states:
            await self._until_done("redis: writing", partial(self._store.write, site, changes), site)
        if batch.dropped:
            return
        self.before_write()
        await asyncio.gather(*(self._table.put(site.encode(), value, partition) for site, value, _ in states))
        for site, _, changes in states:
            await self._until_done("redis: trimming", partial(self._store.trim, site, oldest[site], changes), site)
        if not batch.dropped:
            for event in batch.events:
                event.ack()

    def _state_of(self, site: str) -> tuple[bytes, Changes]:
        """A site's value for the table, and its changes since its last checkpoint."""
        handle = self.handles[site]
        state, changes = handle.engine.checkpoint()
        stored = StoredState(1, handle.partition, handle.offset, zlib.compress(state, 1), handle.epoch)
        return _encode_stored(stored), changes

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the sites of partitions that are another worker's now; it will see their pending events again."""
        for partition in partitions:
            if (batch := self._pending.pop(partition, None)) is not None:
                batch.dropped = True
            if partition in self._running:
                self._running[partition][0].dropped = True
            for site in [site for site, handle in self.handles.items() if handle.partition == partition]:
                del self.handles[site]

    async def _until_done(self, what: str, attempt: Callable[[], Awaitable[T]], site: str | None = None) -> T:
        """Try until a server has done it: nothing may be left out, and nothing else can be done meanwhile."""

        def failed(state: RetryCallState) -> None:
            error = state.outcome and state.outcome.exception()
            self.trouble = f"{what} failed: {error}" if site is None else f"{what} {site} failed: {error}"
            log.warning("%s failed (%s); again in %.1f s", what, error, state.upcoming_sleep, extra={"site": site})

        attempts = AsyncRetrying(
            retry=retry_if_exception_type((RedisError, OSError)),
            wait=wait_chain(*map(wait_fixed, RETRY_S)),
            before=lambda _: self.before_write(),
            before_sleep=failed,
        )
        done: T = await attempts(attempt)
        self.trouble = None
        return done
