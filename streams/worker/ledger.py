"""The ledger: which events are in which state, and what of that is durable."""

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

from models.engine.engine import Changes, Engine, Settings, read_saved
from streams.settings import WorkerSettings
from streams.worker.store import SiteStore

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Pauses between attempts at a store that is away; the last one is repeated."""


class Kept(msgspec.Struct, array_like=True):
    """A site's state and the offset of the last event in it, as one value; `state` is compressed.

    `epoch` counts how often the partition's offsets have begun again.
    """

    v: int
    partition: int
    offset: int
    state: bytes
    epoch: int = 0


_encode_kept = msgspec.msgpack.Encoder().encode
_decode_kept = msgspec.msgpack.Decoder(Kept).decode


def offset_of(value: bytes) -> tuple[int, int]:
    """The epoch and offset of the last event in a state as the table holds it: of two the greater is the later."""
    kept = _decode_kept(value)
    return kept.epoch, kept.offset


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
class Slot:
    """One site at this worker: its engine, and the offset of the last event that is in it (-1: none), in its epoch."""

    engine: Engine
    partition: int
    offset: int = -1
    epoch: int = 0


@dataclass
class Open:
    """What a partition's events have led to and is not durable yet; `dropped` once the partition is another's."""

    since: float
    events: list[Delivered] = field(default_factory=list)
    sends: list[Awaitable[Any]] = field(default_factory=list)
    sites: set[str] = field(default_factory=set)
    dropped: bool = False


class Ledger:
    """Owns what was processed, what was written and what was committed.

    The invariant: *an event's offset is committed only when its outputs, its entries in the store and a state that
    includes it are durable; and a state that is read back is exactly that of the offset stored with it.*

    It holds because of the order in which a settlement works. Each takes a partition as it stands between two events,
    and one follows the other; further events may come meanwhile, and belong to the next one:

    1. the outputs of the open events are delivered;
    2. the entries they added to the histories are in Redis. A crash after this leaves Redis ahead of the state; entries
       are numbered by the fold and the state says how many it counts, so a reader ignores those beyond it, and the same
       events, seen again, write the same entries to the same places;
    3. the state and its offset go to the table, as one value, so neither can be without the other;
    4. what the state no longer needs is deleted from Redis: not before, since until 3 the state before may be read;
    5. the events are acknowledged, and Faust may commit.

    A partition that is taken away in the middle of this is left where it is: its next owner goes on from the state
    before, and this one writes no state after that, lest it should put an older one over a newer.

    After a crash at any point Kafka gives again what was not committed. Events that the state includes already are
    passed over, by their offset; the others go through the engine again and give the same bytes again.
    """

    def __init__(
        self,
        table: Table,
        store: SiteStore,
        engine_settings: Settings,
        settings: WorkerSettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.slots: dict[str, Slot] = {}
        self.trouble: str | None = None  # what is being waited for
        self.events: Events | None = None
        self.before_write: Callable[[], None] = lambda: None  # raises where nothing must be written any longer
        self._open: dict[int, Open] = {}
        self._settling: dict[int, tuple[Open, asyncio.Task[None]]] = {}
        self._table = table
        self._store = store
        self._engine_settings = engine_settings
        self._settings = settings
        self._clock = clock

    def __iter__(self) -> Iterator[Slot]:
        return iter(self.slots.values())

    async def slot(self, site: str, partition: int) -> Slot:
        """The site's place here: in memory, else as it was stored, else new."""
        slot = self.slots.get(site)
        if slot is None:
            slot = self.slots[site] = await self._load(site, partition)
        return slot

    def admits(self, site: str, partition: int) -> bool:
        """Whether a site is known here, or there is room for it in its partition.

        Who is admitted follows from the partition's events alone, so it is the same when they are seen again.
        """
        if site in self.slots or self._table.get(site.encode()) is not None:
            return True
        return sum(slot.partition == partition for slot in self) < self._settings.partition_sites

    async def take_over(self, partitions: Container[int]) -> None:
        """Load every stored site of these partitions, so that they are served before their next event."""
        places = {key: self._place(key) for key in list(self._table.keys())}
        places = {key: place for key, place in places.items() if place[0] in partitions}
        if self.events is not None and places:
            await self._begin_epochs(self.events, places)
        for key, (partition, _) in places.items():
            await self.slot(key.decode(), partition)

    def _place(self, key: bytes) -> tuple[int, int]:
        """The partition and offset of the last event in a stored state."""
        kept = _decode_kept(self._table.get(key) or b"")
        return kept.partition, kept.offset

    async def _begin_epochs(self, events: Events, places: Mapping[bytes, tuple[int, int]]) -> None:
        """Where states count events that the topic does not have, its offsets have begun again: so do the states'.

        That is written at once, since later the new offsets may have grown beyond the old ones.
        """
        last: dict[int, int] = {}
        for partition, offset in places.values():
            last[partition] = max(offset, last.get(partition, -1))
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
            await asyncio.gather(*(self._begin_epoch(key) for key, place in places.items() if place[0] == partition))

    async def _begin_epoch(self, key: bytes) -> None:
        kept = _decode_kept(self._table.get(key) or b"")
        kept.epoch, kept.offset = kept.epoch + 1, -1
        await self._table.put(key, _encode_kept(kept), kept.partition)

    async def _load(self, site: str, partition: int) -> Slot:
        value = self._table.get(site.encode())
        if value is None:
            await self._until_done("redis: clearing", partial(self._store.forget, site), site)
            return Slot(Engine(site, self._engine_settings), partition)
        kept = _decode_kept(value)
        saved = read_saved(zlib.decompress(kept.state))
        history = self._engine_settings.history
        stored = await self._until_done("redis: reading", partial(self._store.load, site, saved, history), site)
        try:
            engine = Engine.load(saved, stored.started, stored.runs, self._engine_settings, stored.rows)
        except ValueError as error:
            where = {"site": site, "partition": partition}
            log.error("Redis has lost entries (%s); the histories begin anew, degraded", error, extra=where)
            await self._until_done("redis: clearing", partial(self._store.forget, site), site)
            engine = Engine.load(saved, None, None, self._engine_settings)
        where = {"site": site, "partition": partition, "offset": kept.offset}
        log.info("the site goes on, %d live jobs", len(engine.context.state), extra=where)
        return Slot(engine, partition, kept.offset, kept.epoch)

    def record(self, partition: int, event: Delivered, site: str | None, sends: Iterable[Awaitable[Any]]) -> None:
        """An event has been processed: `site` is the one it changed, `sends` its outputs on their way."""
        work = self._open.get(partition)
        if work is None:
            work = self._open[partition] = Open(self._clock())
        work.events.append(event)
        work.sends.extend(sends)
        if site is not None:
            work.sites.add(site)

    def due(self) -> list[int]:
        """The partitions whose open events are many or old enough to be settled."""
        old = self._clock() - self._settings.checkpoint_seconds
        most = self._settings.checkpoint_events
        return [partition for partition, work in self._open.items() if len(work.events) >= most or work.since <= old]

    def settling(self) -> list[int]:
        """The partitions of which a settlement is under way.

        Raises:
            Exception: whatever made one fail.
        """
        done = [partition for partition, (_, task) in self._settling.items() if task.done()]
        for partition in done:
            self._settling.pop(partition)[1].result()
        return list(self._settling)

    def full(self, partition: int) -> bool:
        """Whether the partition's open events are as many as may be."""
        work = self._open.get(partition)
        return work is not None and len(work.events) >= self._settings.checkpoint_events

    async def settle(self, partition: int) -> None:
        """Make everything durable that the partition's open events led to, then acknowledge them."""
        await self.begin(partition)
        await self._settled(partition)

    async def begin(self, partition: int) -> None:
        """Begin to settle a partition as it stands, and let further events come meanwhile.

        One settlement of a partition follows the other: where one is still under way, it is waited for.

        Raises:
            Exception: whatever made that one fail.
        """
        await self._settled(partition)
        work = self._open.pop(partition, None)
        if work is not None:
            states = [(site, *self._checkpoint(site)) for site in sorted(work.sites) if site in self.slots]
            oldest = {site: self.slots[site].engine.context.history.oldest for site, *_ in states}
            self._settling[partition] = work, asyncio.create_task(self._settle(work, partition, states, oldest))

    async def _settled(self, partition: int) -> None:
        if partition in self._settling:
            try:
                await self._settling[partition][1]
            finally:
                self._settling.pop(partition, None)

    async def _settle(
        self, work: Open, partition: int, states: list[tuple[str, bytes, Changes]], oldest: dict[str, int]
    ) -> None:
        await asyncio.gather(*work.sends)
        for site, _, changes in states:
            await self._until_done("redis: writing", partial(self._store.write, site, changes), site)
        if work.dropped:
            return
        self.before_write()
        await asyncio.gather(*(self._table.put(site.encode(), value, partition) for site, value, _ in states))
        for site, _, changes in states:
            await self._until_done("redis: trimming", partial(self._store.trim, site, oldest[site], changes), site)
        if not work.dropped:
            for event in work.events:
                event.ack()

    def _checkpoint(self, site: str) -> tuple[bytes, Changes]:
        slot = self.slots[site]
        state, changes = slot.engine.checkpoint()
        return _encode_kept(Kept(1, slot.partition, slot.offset, zlib.compress(state, 1), slot.epoch)), changes

    def drop(self, partitions: Iterable[int]) -> None:
        """Forget the sites of partitions that are another worker's now; what was open, it will see again."""
        for partition in partitions:
            if (work := self._open.pop(partition, None)) is not None:
                work.dropped = True
            if partition in self._settling:
                self._settling[partition][0].dropped = True
            for site in [site for site, slot in self.slots.items() if slot.partition == partition]:
                del self.slots[site]

    async def _until_done(self, what: str, attempt: Callable[[], Awaitable[T]], site: str | None = None) -> T:
        """Try until a server does it: nothing may be left out, and nothing else can be done meanwhile."""
        failures = 0
        while True:
            self.before_write()
            try:
                done = await attempt()
                self.trouble = None
                return done
            except (RedisError, OSError) as error:
                self.trouble = f"{what} failed: {error}" if site is None else f"{what} {site} failed: {error}"
                pause = RETRY_S[min(failures, len(RETRY_S) - 1)]
                failures += 1
                log.warning("%s failed (%s); again in %.1f s", what, error, pause, extra={"site": site})
                await asyncio.sleep(pause)
