"""Make the results of events durable, in an order that is safe at any crash."""

import asyncio
import logging
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec

from models.engine.histories import Changes
from models.records import AnyEvent
from streams.broker.fetched import Fetched
from streams.worker.checkpoint.claims import WritesLost
from streams.worker.checkpoint.job_log import JobLogWrites
from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.owned_table import OwnedTable, OwnershipToken, Retries
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored_site import (
    IN_BOTH,
    SiteHandle,
    StoredSegment,
    StoredState,
    decode_stored,
    encode_stored,
)

log = logging.getLogger(__name__)
HEAD_VERSION = 2  # version of a stored head


class EngineInput(NamedTuple):
    """An input of a site's engine: an event, or None if events were lost.

    `arrived` is the event's broker timestamp (Unix seconds; None: unknown).
    """

    site: str
    event: AnyEvent | None = None
    arrived: float | None = None


class EvictedSite(NamedTuple):
    """Data of an evicted site to delete: its generation in Redis, and its keys in the table."""

    generation: int
    keys: list[bytes]


@dataclass
class PendingBatch:
    """Processed events of one partition that are not durable yet, with their results.

    Attributes:
        since: Time of the first event, on the worker's clock.
        events: Number of events.
        messages: Messages that are completely processed.
        sends: Records on their way to the broker.
        sites: Sites whose state has changed, if only in its offset.
        evicted: Evicted sites.
        applied: Inputs of the engines, in order.
    """

    since: float
    events: int = 0
    messages: list[Fetched] = field(default_factory=list)
    sends: list[Awaitable[Any]] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)
    evicted: dict[str, EvictedSite] = field(default_factory=dict)
    applied: list[EngineInput] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Size of the batch: the events, or the messages if more, as redelivered messages have no new events."""
        return max(self.events, len(self.messages))


class PendingEvents:
    """The pending batch of a partition: the events since the last checkpoint began.

    Args:
        most: Number of events at which a checkpoint is due.
        seconds: Age at which a checkpoint is due.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._batch: PendingBatch | None = None

    @property
    def batch(self) -> PendingBatch:
        """The current batch; a new one if nothing is pending."""
        if self._batch is None:
            self._batch = PendingBatch(self._clock())
        return self._batch

    @property
    def evicted(self) -> Container[str]:
        """Evicted sites whose eviction is not durable yet."""
        return () if self._batch is None else self._batch.evicted

    @property
    def since(self) -> float | None:
        """Time of the first pending event; None if nothing is pending."""
        return None if self._batch is None else self._batch.since

    @property
    def due(self) -> bool:
        """True if the batch is large or old enough for a checkpoint."""
        batch = self._batch
        return batch is not None and (batch.size >= self._most or batch.since <= self._clock() - self._seconds)

    def take(self) -> PendingBatch | None:
        """Remove and return the batch for a checkpoint; later events go to the next one. None if nothing is pending."""
        batch, self._batch = self._batch, None
        return batch


class Acknowledgements:
    """Messages of a partition that are not durable yet, by topic, and the offset to commit for each topic.

    Messages of a blocked site are skipped, so the durable messages have gaps; of `parked` messages only the range is
    stored. The group commits up to the first message that is not durable. Later messages are delivered again after a
    crash and skipped by their site's offset. O(log open) per message.

    Args:
        acknowledge: Commits an offset of a topic, which is that of the next message to read.
        parked: Returns the first parked offset of a topic; None if there is none.
    """

    def __init__(self, acknowledge: Callable[[str, int], None], parked: Callable[[str], int | None]) -> None:
        self._acknowledge, self._parked = acknowledge, parked
        self._open: defaultdict[str, set[int]] = defaultdict(set)
        self._order: defaultdict[str, list[int]] = defaultdict(list)
        self._end: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def arrived(self, message: Fetched) -> None:
        """Record that a message has arrived, in memory or parked."""
        self._end[message.topic] = max(self._end.get(message.topic, 0), message.offset + 1)

    def take(self, message: Fetched) -> None:
        """Record that a message stays in memory until it is durable."""
        self._open[message.topic].add(message.offset)
        heappush(self._order[message.topic], message.offset)

    def durable(self, messages: Iterable[Fetched]) -> None:
        """Mark messages as durable, and commit as far as possible."""
        topics = set()
        for message in messages:
            self._open[message.topic].discard(message.offset)
            topics.add(message.topic)
        for topic in sorted(topics):
            upto = self._first_open(topic)
            if upto > self._done.get(topic, 0):
                self._done[topic] = upto
                self._acknowledge(topic, upto)

    def _first_open(self, topic: str) -> int:
        """Return the offset of the first message that is not durable, or of the next one to come."""
        order, still_open, parked = self._order[topic], self._open[topic], self._parked(topic)
        while order and order[0] not in still_open:
            heappop(order)
        return min(order[0] if order else self._end[topic], self._end[topic] if parked is None else parked)


class Histories:
    """Store the histories of sites in Redis, and retry while Redis is unreachable.

    If Redis has lost acknowledged writes (a failover), they are recovered from an earlier state and the events since
    then. This works because nothing is deleted in between, so all entries of that state still exist.

    Args:
        stored: Returns a site's stored state from the table; None if there is none.
    """

    def __init__(
        self, store: SiteStore, loader: SiteLoader, retries: Retries, stored: Callable[[str], bytes | None]
    ) -> None:
        self._store = store
        self._loader = loader
        self._until_done = retries.until_done
        self._stored = stored

    async def write(self, site: str, changes: Changes, generation: int) -> None:
        """Add a site's new entries."""
        await self._do("redis: writing", self._store.write, site, changes, generation)

    async def trim(self, site: str, changes: Changes, generation: int, oldest: int) -> None:
        """Delete entries that the site's stored state no longer needs; `oldest` is the first started job to keep."""
        await self._do("redis: trimming", self._store.trim, site, oldest, changes, generation)

    async def retire(self, site: str, generation: int) -> None:
        """Set an expiry for entries that no state will count, so that a crash does not leave them forever."""
        await self._do("redis: clearing", self._store.retire, site, generation)

    async def forget(self, site: str, generation: int) -> None:
        """Delete all entries of a site's generation."""
        await self._do("redis: clearing", self._store.forget, site, generation)

    async def _do(self, what: str, work: Callable[..., Awaitable[None]], site: str, *more: Any) -> None:
        while True:
            try:
                return await self._until_done(what, site, work, site, *more)
            except WritesLost as error:
                log.error("Redis lost acknowledged writes: %s", error, extra={"site": site})
                await self._recover_entries(site)

    async def _recover_entries(self, site: str) -> None:
        """Claim a site again, and restore in Redis all entries that the site's stored state counts.

        Raises:
            RuntimeError: The entries cannot be recovered. A restarted worker uses the remaining ones and logs it.
        """
        value = self._stored(site)
        if value is None:
            await self._loader.claim(site)
            return
        stored = decode_stored(value)
        handle, is_repaired = await self._loader.load(site, stored)
        if handle.generation != stored.generation:
            raise RuntimeError(f"Redis has lost entries of the site {site!r} that cannot be rebuilt from its events")
        if is_repaired:
            changes, oldest = handle.engine.take_changes(), handle.engine.context.history.oldest
            await self.write(site, changes, stored.generation)
            await self.trim(site, changes, stored.generation, oldest)


class SiteSnapshot(NamedTuple):
    """Snapshot of a site between two events.

    Attributes:
        site: Name of the site.
        head: Its state, uncompressed.
        jobs: Its job segments.
        changes: Changes of its histories, to store in Redis.
        oldest: The first started job to keep there.
    """

    site: str
    head: StoredState
    jobs: JobLogWrites
    changes: Changes
    oldest: int

    @classmethod
    def of(cls, handle: SiteHandle) -> "SiteSnapshot":
        """Take a snapshot of a site; O(changes since the last snapshot)."""
        cut, jobs = handle.jobs.cut(handle.engine)
        kept = {name: getattr(handle, name) for name in IN_BOTH} | {
            "arrivals": msgspec.structs.replace(handle.arrivals)
        }
        head = StoredState(v=HEAD_VERSION, state=cut.state, runs=jobs.runs, tail=jobs.tail, **kept)
        return cls(handle.engine.site, head, jobs, cut.changes, handle.engine.context.history.oldest)


def compressed(states: Iterable[SiteSnapshot], partition: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """Compress and encode heads and segments for the table. zlib releases the GIL."""
    heads, segments = {}, {}
    for one in states:
        state, tail = zlib.compress(one.head.state, 1), zlib.compress(one.head.tail, 1)
        heads[one.site.encode()] = encode_stored(msgspec.structs.replace(one.head, state=state, tail=tail))
        for key, jobs in one.jobs.segments:
            segments[key] = encode_stored(StoredSegment(1, partition, zlib.compress(jobs, 1)))
    return heads, segments


class Checkpoint:
    """One checkpoint of a partition: a snapshot of its sites between two events.

    The invariant has two halves:

    - *An event's offset is committed only after all its results are durable:* its outputs in Kafka, its entries in
      Redis, and a state that includes it in the table.
    - *A restored state is exactly the state at the offset that is stored with it.*

    It holds because `run` does these steps in this order, and a partition has one checkpoint at a time:

    1. Wait until the outputs of the pending events are delivered.
    2. Write the new history entries to Redis. After a crash here Redis is ahead of the state. This is safe: the
       site's events determine the entry numbers, and the state contains their count, so a reader ignores the rest.
       The redelivered events write the same entries to the same keys.
    3. Write state and offset to the table as one value, so that neither exists without the other. The value contains
       the recently changed live jobs and names the segments with the others (`JobLog`). New segments are durable
       before it is written. After a crash in between, no state names them, and they are deleted later.
    4. Delete the data in Redis and the segments that the new state no longer needs. Before step 3 a reader may still
       need them.
    5. Acknowledge the events, so that Faust may commit their offsets, in order and without gaps.

    Each write checks the partition's token. If the partition is revoked at any step, the remaining steps are skipped.
    The next owner continues from the stored state. The next owner has claimed the sites in Redis, so this worker can no
    longer write there either (`claims`).

    After a crash at any step Kafka redelivers the events that were not committed. Events that the stored state includes
    are skipped by their offset. The others are applied again and give byte-identical results.

    The cost depends on the changes since the last checkpoint, not on the number of live jobs. Data is compressed
    in another thread.
    """

    def __init__(self, batch: PendingBatch, sites: Mapping[str, SiteHandle], token: OwnershipToken) -> None:
        self.batch = batch
        self._token = token
        self._states = [SiteSnapshot.of(sites[site]) for site in sorted(batch.sites) if site in sites]

    async def run(
        self, table: OwnedTable, histories: Histories, compressing: Executor, acknowledgements: Acknowledgements
    ) -> None:
        """Do the steps in order.

        Raises:
            Revoked: Another worker owns the partition now.
        """
        batch, states, token = self.batch, self._states, self._token
        packed = asyncio.get_running_loop().run_in_executor(compressing, compressed, states, token.partition)
        await asyncio.gather(*batch.sends)
        for one in states:
            await histories.write(one.site, one.changes, one.head.generation)
        heads, segments = await packed
        for site, evicted in batch.evicted.items():  # also detects a claim by another worker
            await histories.retire(site, evicted.generation)
        await table.put(
            {key: None for site, evicted in batch.evicted.items() for key in (site.encode(), *evicted.keys)}
        )
        await table.put(segments)
        await table.put(heads)
        for one in states:
            await histories.trim(one.site, one.changes, one.head.generation, one.oldest)
        await table.put({key: None for one in states for key in one.jobs.freed})
        for site, evicted in batch.evicted.items():
            await histories.forget(site, evicted.generation)
        token.check()
        acknowledgements.durable(batch.messages)
