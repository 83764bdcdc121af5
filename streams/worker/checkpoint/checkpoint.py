"""Makes what followed from events durable, in the order in which no crash does harm."""

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
from streams.worker.checkpoint.job_log import Written
from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored import (
    IN_BOTH,
    SiteHandle,
    StoredSegment,
    StoredState,
    decode_stored,
    encode_stored,
)
from streams.worker.checkpoint.table import OwnedTable, Retries, Token

log = logging.getLogger(__name__)
HEAD_VERSION = 2  # version of a stored head


class AppliedEvent(NamedTuple):
    """An event in an engine, and when it arrived at the broker (Unix seconds; None: unknown)."""

    event: AnyEvent
    arrived: float | None

    @property
    def site(self) -> str:
        """Whose event it is."""
        return self.event.site


class Missed(NamedTuple):
    """A site's engine was told that events of it were lost."""

    site: str


class Gone(NamedTuple):
    """What is to be deleted of a site that has lost its place: a generation, and keys of the table."""

    generation: int
    keys: list[bytes]


@dataclass
class PendingBatch:
    """Events of one partition that were processed and are not durable yet, and what followed from them.

    `since` is when the first of them came, on the worker's clock. `events` is how many they are, `messages` are those
    of which all is processed. `sites` are those whose state has changed, if only by the offset. `gone` are sites that
    have lost their places. `applied` is what the engines were told, in its order.
    """

    since: float
    events: int = 0
    messages: list[Fetched] = field(default_factory=list)
    sends: list[Awaitable[Any]] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)
    gone: dict[str, Gone] = field(default_factory=dict)
    applied: list[AppliedEvent | Missed] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How much there is for a checkpoint: events, or messages that were seen before, whose events are durable."""
        return max(self.events, len(self.messages))


class Pending:
    """The pending batch of a partition: the events since the last checkpoint began.

    Parameters:
        most: events with which a checkpoint is due.
        seconds: after which it is due in any case.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._batch: PendingBatch | None = None

    @property
    def batch(self) -> PendingBatch:
        """The batch; a new one where nothing is pending."""
        if self._batch is None:
            self._batch = PendingBatch(self._clock())
        return self._batch

    @property
    def gone(self) -> Container[str]:
        """The sites that have lost their places, which is still to be made durable."""
        return () if self._batch is None else self._batch.gone

    @property
    def since(self) -> float | None:
        """When its first event came; None where nothing is pending."""
        return None if self._batch is None else self._batch.since

    @property
    def due(self) -> bool:
        """Whether its events are many enough, or old enough, for a checkpoint."""
        batch = self._batch
        return batch is not None and (batch.size >= self._most or batch.since <= self._clock() - self._seconds)

    def take(self) -> PendingBatch | None:
        """The batch, for a checkpoint; what follows belongs to the next one. None where nothing is pending."""
        batch, self._batch = self._batch, None
        return batch


class Acknowledgements:
    """The messages of a partition that are not durable yet, by topic, and how far a topic may be committed.

    A site that waits is passed over by others' messages, so what is durable has gaps; and of some messages only the
    range is known (`parked`). The group commits up to the first message that is not durable. What lies beyond it is
    delivered again after a crash, and skipped by its site's offset. O(log open) a message, 100 bytes each.

    Args:
        acknowledge: has the group commit an offset of a topic: that of the next message to be read.
        parked: returns the first offset of a topic that is parked; None where none is.
    """

    def __init__(self, acknowledge: Callable[[str, int], None], parked: Callable[[str], int | None]) -> None:
        self._acknowledge, self._parked = acknowledge, parked
        self._open: defaultdict[str, set[int]] = defaultdict(set)
        self._order: defaultdict[str, list[int]] = defaultdict(list)
        self._end: dict[str, int] = {}
        self._done: dict[str, int] = {}

    def arrived(self, message: Fetched) -> None:
        """Note that a message has come, whether or not it is held in memory."""
        self._end[message.topic] = max(self._end.get(message.topic, 0), message.offset + 1)

    def take(self, message: Fetched) -> None:
        """Note that a message is held in memory until it is durable."""
        self._open[message.topic].add(message.offset)
        heappush(self._order[message.topic], message.offset)

    def durable(self, messages: Iterable[Fetched]) -> None:
        """Commit as far as possible: all that followed from these messages is durable."""
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


class SiteChanges(NamedTuple):
    """What is to be stored in Redis of a site: its changes since its last checkpoint."""

    site: str
    changes: Changes
    oldest: int
    generation: int


class Histories:
    """Stores what sites have learnt, and waits for Redis while it is away.

    Where Redis turns out to have lost its last writes, which it had acknowledged (a failover), they are made good from
    an earlier state and the events since then: nothing was deleted since, so that state's entries are all there.

    Parameters:
        stored: gives a site's stored state as the table has it; None where there is none.
    """

    def __init__(
        self, store: SiteStore, loader: SiteLoader, retries: Retries, stored: Callable[[str], bytes | None]
    ) -> None:
        self._store = store
        self._loader = loader
        self._until_done = retries.until_done
        self._stored = stored

    async def write(self, one: SiteChanges) -> None:
        """Add a site's new entries."""
        await self._do("redis: writing", self._store.write, one.site, one.changes, one.generation)

    async def trim(self, one: SiteChanges) -> None:
        """Delete what the site's stored state does without."""
        await self._do("redis: trimming", self._store.trim, one.site, one.oldest, one.changes, one.generation)

    async def retire(self, site: str, generation: int) -> None:
        """Have entries expire that no state will count, lest a crash leaves them for good."""
        await self._do("redis: clearing", self._store.retire, site, generation)

    async def forget(self, site: str, generation: int) -> None:
        """Delete all of a site."""
        await self._do("redis: clearing", self._store.forget, site, generation)

    async def _do(self, what: str, work: Callable[..., Awaitable[None]], site: str, *more: Any) -> None:
        while True:
            try:
                return await self._until_done(what, site, work, site, *more)
            except WritesLost as error:
                log.error("Redis has lost what was written last: %s", error, extra={"site": site})
                await self._make_good(site)

    async def _make_good(self, site: str) -> None:
        """Claim a site again, and have Redis hold again all that the site's stored state counts. Raises RuntimeError:
        that cannot be. Who starts afresh goes on with what is left, and says so.
        """
        value = self._stored(site)
        if value is None:
            await self._loader.claim(site)
            return
        stored = decode_stored(value)
        handle, mended = await self._loader.load(site, stored)
        if handle.generation != stored.generation:
            raise RuntimeError(f"Redis has lost entries of the site {site!r} that cannot be made again from its events")
        if mended:
            changes, oldest = handle.engine.take_changes(), handle.engine.context.history.oldest
            again = SiteChanges(site, changes, oldest, stored.generation)
            await self.write(again)
            await self.trim(again)


class SiteCut(NamedTuple):
    """What is to be stored of a site as it was between two events: its head, not compressed yet, what is to be written
    of its jobs beside, and its changes for Redis."""

    head: StoredState
    jobs: Written
    changes: SiteChanges

    @classmethod
    def of(cls, handle: SiteHandle) -> "SiteCut":
        """A site as it is now; O(what has changed since this was last called)."""
        cut, jobs = handle.jobs.cut(handle.engine)
        kept = {name: getattr(handle, name) for name in IN_BOTH} | {
            "arrivals": msgspec.structs.replace(handle.arrivals)
        }
        head = StoredState(v=HEAD_VERSION, state=cut.state, runs=jobs.runs, tail=jobs.tail, **kept)
        oldest = handle.engine.context.history.oldest
        return cls(head, jobs, SiteChanges(handle.engine.site, cut.changes, oldest, handle.generation))


def compressed(states: Iterable[SiteCut], partition: int) -> tuple[dict[bytes, bytes], dict[bytes, bytes]]:
    """The heads and the segments as they are put into the table. zlib lets other threads run."""
    heads, segments = {}, {}
    for one in states:
        state, tail = zlib.compress(one.head.state, 1), zlib.compress(one.head.tail, 1)
        heads[one.changes.site.encode()] = encode_stored(msgspec.structs.replace(one.head, state=state, tail=tail))
        for key, jobs in one.jobs.segments:
            segments[key] = encode_stored(StoredSegment(1, partition, zlib.compress(jobs, 1)))
    return heads, segments


class Checkpoint:
    """One checkpoint of a partition: its sites as they are when this is made, which is between two events.

    The invariant has two halves:

    - *An event's offset is committed only after everything that followed from it is durable:* its outputs in Kafka,
      its entries in Redis, and a state that includes it in the table.
    - *A state that is read back is exactly the state at the offset that is stored with it.*

    It holds because `run` does these steps in this order, and a partition has one checkpoint at a time:

    1. Wait until the outputs of the pending events are delivered.
    2. Write the new entries of the histories to Redis. After a crash here Redis is ahead of the state. That does no
       harm: entries are numbered by the fold and the state says how many it counts, so a reader ignores the rest. The
       same events, seen again, write the same entries to the same places.
    3. Write state and offset to the table, as one value, so that neither can be there without the other. Of the live
       jobs it holds those that have changed lately and names the segments that hold the others (`JobLog`). New ones are
       durable before it is written. After a crash in between nothing names them: they are deleted later.
    4. Delete from Redis, and of the segments, what the new state no longer needs. Not earlier: until step 3 a reader
       may need it.
    5. Acknowledge the events, so that Faust may commit their offsets: in their order, with none left out before them.

    Each write asks the partition's token. So when the partition is revoked, at any step, the rest is left out: the next
    owner continues from the state that is there. It has claimed the sites in Redis, so nothing more can be written
    there either (`claims`).

    After a crash at any step Kafka delivers again what was not committed. Events that the stored state already includes
    are skipped by their offset. The others go through the engine again and give the same bytes again.

    It costs what has changed since the one before, whatever is live. Compressing is done in another thread.
    """

    def __init__(self, batch: PendingBatch, sites: Mapping[str, SiteHandle], token: Token) -> None:
        self.batch = batch
        self._token = token
        self._states = [SiteCut.of(sites[site]) for site in sorted(batch.sites) if site in sites]

    async def run(
        self, table: OwnedTable, histories: Histories, compressing: Executor, acknowledgements: Acknowledgements
    ) -> None:
        """Do the steps. Raises Revoked: the partition is another worker's."""
        batch, states, token = self.batch, self._states, self._token
        packed = asyncio.get_running_loop().run_in_executor(compressing, compressed, states, token.partition)
        await asyncio.gather(*batch.sends)
        for one in states:
            await histories.write(one.changes)
        heads, segments = await packed
        for site, gone in batch.gone.items():  # which also tells whether another worker has claimed it
            await histories.retire(site, gone.generation)
        await table.put({key: None for site, gone in batch.gone.items() for key in (site.encode(), *gone.keys)})
        await table.put(segments)
        await table.put(heads)
        for one in states:
            await histories.trim(one.changes)
        await table.put({key: None for one in states for key in one.jobs.freed})
        for site, gone in batch.gone.items():
            await histories.forget(site, gone.generation)
        token.check()
        acknowledgements.durable(batch.messages)
