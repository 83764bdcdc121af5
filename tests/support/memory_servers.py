"""Kafka, Redis and the table of sites in memory, and a crash at any step of what becomes durable there."""

import asyncio
from collections.abc import Awaitable, Iterable
from types import SimpleNamespace

import msgspec
from faust.types import TP

from models.engine.histories import Changes
from models.records import AnyEvent
from models.site.history import StartedJob
from models.site.rows import Row
from models.site.runs import Run
from streams.broker.fetched import Fetched
from streams.worker.checkpoint.claims import Fenced, FencingLeases
from streams.worker.checkpoint.event_logs import ChangelogRecords, EventLogs, MessageBatch
from streams.worker.checkpoint.owned_table import OwnershipToken
from streams.worker.checkpoint.store import HistoryEntries, SiteStore
from streams.worker.checkpoint.stored_site import LogOffsets, PartitionLog, SiteHandle

TOPIC = "queuecast.events"


class Crash(Exception):
    """The process dies here."""


class World:
    """What outlives a worker's process, and the steps by which that changed, in order.

    After `steps` further ones it crashes: the next step does not happen, nor any after it. An `eager` Kafka has what is
    sent at once, else when that is waited for. `pause` is called wherever a server would take its time.
    """

    def __init__(self, eager: bool = False) -> None:
        self.log: list[str] = []
        self.steps: int | None = None
        self.eager = eager
        self.claims: dict[str, object] = {}  # who may write a site's entries
        self.claimed: dict[str, int] = {}  # how often each was claimed
        self.messages: dict[int, list[SimpleNamespace]] = {}
        self.committed: dict[int, int] = {}
        self.outputs: list[tuple[str, bytes | None, bytes]] = []
        self.headers: list[list[tuple[str, bytes]]] = []  # of each of them
        self.arrived = 0.0  # when the next message comes to Kafka
        self.table: dict[bytes, bytes] = {}
        self.started: dict[str, dict[int, StartedJob]] = {}
        self.runs: dict[str, dict[int, Run]] = {}
        self.rows: dict[str, dict[str, dict[int, Row]]] = {}
        self.marks: dict[int, bytes] = {}
        self.mark_owners: dict[int, str] = {}

    def step(self, what: str) -> None:
        """Something is about to become durable."""
        if self.steps == 0:
            raise Crash
        if self.steps is not None:
            self.steps -= 1
        self.log.append(what)

    def claim(self, site: str, owner: object) -> None:
        """From now on the owner alone may write the site's entries."""
        self.claims[site] = owner

    async def pause(self) -> None:
        """A server takes its time: others get their turn, and much may happen."""
        await asyncio.sleep(0)

    @staticmethod
    def place(site: str, generation: int) -> str:
        """Where the entries of a site's generation are."""
        return f"{site} {generation}" if generation else site

    def publish(self, key: bytes | None, value: bytes | None, partition: int = 0) -> None:
        """Put a message on the events topic."""
        log = self.messages.setdefault(partition, [])
        place = {"topic": TOPIC, "partition": partition, "offset": len(log), "timestamp": self.arrived}
        log.append(SimpleNamespace(key=key, value=value, **place))

    def publish_events(self, events: Iterable[AnyEvent], partition: int = 0) -> None:
        """Put events there."""
        for event in events:
            self.publish(event.site.encode(), msgspec.json.encode(event), partition)

    def delivered(self, partition: int = 0) -> "list[Message]":
        """What Kafka gives a worker that comes: all that is not committed."""
        begin = self.committed.get(partition, 0)
        return [Message(raw) for raw in self.messages[partition][begin:]]

    def commit(self, place: TP, offset: int) -> None:
        """The group commits an offset."""
        self.step(f"commit {offset}")
        self.committed[place.partition] = offset

    def records(self, *topics: str) -> list[bytes]:
        """The values on some topics, by the ends of their names."""
        return [value for topic, _, value in self.outputs if topic.endswith(topics)]


class Message:
    """A message as Faust hands it to the agent."""

    def __init__(self, raw: SimpleNamespace) -> None:
        self.message = raw


class MemoryTable:
    """The table of sites. A message that the broker has received arrives, even if its sender has stopped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._on_their_way: set[asyncio.Task[None]] = set()

    def get(self, key: bytes) -> bytes | None:
        return self._world.table.get(key)

    def keys(self) -> Iterable[bytes]:
        return self._world.table.keys()

    def put(self, key: bytes, value: bytes | None, partition: int) -> Awaitable[None]:
        sent = asyncio.ensure_future(self._arrive(key, value, partition))
        self._on_their_way.add(sent)
        sent.add_done_callback(self._on_their_way.discard)
        return asyncio.shield(sent)

    async def _arrive(self, key: bytes, value: bytes | None, partition: int) -> None:
        await self._world.pause()
        self._world.step(f"table {key.decode(errors='replace')}")
        self.arrived(key, value, partition)
        await self._world.pause()

    def drop(self, keys: Iterable[bytes]) -> None:
        """What it has is the changelog."""

    def take(self, key: bytes, value: bytes | None, partition: int) -> None:
        """It has all that is in the changelog."""

    def arrived(self, key: bytes, value: bytes | None, partition: int) -> None:
        """The changelog has it."""
        if value is None:
            self._world.table.pop(key, None)
        else:
            self._world.table[key] = value


class MemoryStore(SiteStore):
    """The store of histories, as one owner of a partition has it."""

    def __init__(self, world: World, token: OwnershipToken) -> None:
        self._world = world
        self._token = token
        self.claims = FencingLeases(None, str)  # type: ignore[arg-type]  # it holds none

    async def claim(self, site: str, after: int = 0) -> int:
        await self._world.pause()
        self._token.check()
        self._world.claim(site, self)
        number = self._world.claimed[site] = max(self._world.claimed.get(site, 0), after) + 1
        await self._world.pause()
        return number

    async def retire(self, site: str, generation: int) -> None:
        await self._begin("retire", site, generation)

    async def mark(self, partition: int) -> bytes | None:
        await self._world.pause()
        return self._world.marks.get(partition)

    async def take_mark(self, partition: int, owner: str, mark: bytes) -> None:
        await self._world.pause()
        self._token.check()
        self._world.marks[partition], self._world.mark_owners[partition] = mark, owner

    async def set_mark(self, partition: int, owner: str, mark: bytes | None, released: bool = False) -> None:
        await self._world.pause()
        self._token.check()
        if self._world.mark_owners.get(partition, owner) != owner:
            return
        self._world.mark_owners[partition] = "" if released else owner
        if mark is None:
            self._world.marks.pop(partition, None)
        else:
            self._world.marks[partition] = mark

    async def _begin(self, what: str, site: str, generation: int = 0, writes: bool = True) -> str:
        """Where the entries are, once the server has the request."""
        await self._world.pause()
        if writes:
            self._token.check()
            if self._world.claims.get(site) is not self:
                raise Fenced(f"{what} {site}")
        self._world.step(f"{what} {site}")
        return self._world.place(site, generation)

    async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
        place = await self._begin("write", site, generation)
        self._world.started.setdefault(place, {}).update((row.number, row) for row in changes.started)
        self._world.runs.setdefault(place, {}).update((run.number, run) for run in changes.runs)
        for method, rows in changes.rows.items():
            own = self._world.rows.setdefault(place, {}).setdefault(method, {})
            own.update((row.number, row) for row in rows)
        await self._world.pause()

    async def trim(self, site: str, oldest: int, changes: Changes, generation: int = 0) -> None:
        place = await self._begin("trim", site, generation)
        started, runs = self._world.started.get(place, {}), self._world.runs.get(place, {})
        self._world.started[place] = {number: row for number, row in started.items() if number >= oldest}
        for run in changes.forgotten_runs:
            runs.pop(run.number, None)
        for method, oldest_row in changes.oldest.items():
            own = self._world.rows[place][method]
            self._world.rows[place][method] = {number: row for number, row in own.items() if number >= oldest_row}
        await self._world.pause()

    async def read(self, site: str, generation: int = 0) -> HistoryEntries:
        place = await self._begin("read", site, generation, writes=False)
        rows = {method: list(own.values()) for method, own in self._world.rows.get(place, {}).items()}
        started, runs = self._world.started.get(place, {}), self._world.runs.get(place, {})
        found = HistoryEntries(list(started.values()), list(runs.values()), rows)
        await self._world.pause()
        return found

    async def clean(self, site: str, stored: HistoryEntries, kept: HistoryEntries, generation: int = 0) -> None:
        place = await self._begin("clean", site, generation)
        self._world.started[place] = {row.number: row for row in kept.started}
        self._world.runs[place] = {run.number: run for run in kept.runs}
        self._world.rows[place] = {name: {row.number: row for row in rows} for name, rows in kept.rows.items()}
        await self._world.pause()

    async def begin(self, site: str, after: int = -1) -> int:
        await self._begin("begin", site, writes=False)
        generation = after + 1
        while (place := self._world.place(site, generation)) in self._world.started or place in self._world.runs:
            generation += 1
        await self._world.pause()
        return generation

    async def take_back(self, site: str, generation: int) -> None:
        await self._world.pause()

    async def forget(self, site: str, generation: int = 0) -> None:
        place = await self._begin("forget", site, generation)
        for kept in (self._world.started, self._world.runs, self._world.rows):
            kept.pop(place, None)
        await self._world.pause()


class MemoryEvents(EventLogs):
    """The topic of events as it is read once more. Nothing of it was deleted, and no earlier states are there."""

    def __init__(self, world: World) -> None:
        self._world = world

    def place(self, handle: SiteHandle) -> TP:
        return TP(TOPIC, handle.partition)

    async def ranges(self, logs: Iterable[PartitionLog]) -> dict[PartitionLog, LogOffsets]:
        await self._world.pause()
        return {log: LogOffsets(0, 1 << 62) for log in logs}

    def renewed(self, partition: int) -> None:
        raise AssertionError(partition)

    def lost(self, partition: int, events: int) -> None:
        assert not events

    async def read(self, log: PartitionLog, first: int, last: int, key: bytes) -> list[Fetched]:
        await self._world.pause()
        found = self._world.messages[log.partition][first : last + 1]
        return [Fetched.of(one) for one in found if one.key == key]

    async def read_some(self, place: TP, key: bytes, first: int, last: int, most: int) -> MessageBatch:
        found = (await self.read(PartitionLog(None, place.partition), first, last, key))[:most]
        return MessageBatch(found, found[-1].offset + 1 if len(found) == most else last + 1, False)

    async def late_states(self, partition: int, after: int | None = None) -> ChangelogRecords:
        return ChangelogRecords([], -1)

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        return []
