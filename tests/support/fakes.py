"""Kafka, Redis and the table of sites in memory, and a crash at any step of what becomes durable there."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
from faust.types import TP

from models.engine.histories import Changes
from models.records import AnyEvent
from models.site.history import Started
from models.site.rows import Row
from models.site.runs import Run
from streams.broker.fetched import Fetched
from streams.settings import Settings
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.freshness import Freshness
from streams.worker.answers.scores import AnswerScores
from streams.worker.checkpoint.claims import Fenced
from streams.worker.checkpoint.event_logs import EventLogs, LateStates, SomeMessages
from streams.worker.checkpoint.store import SiteStore, StoredHistories
from streams.worker.checkpoint.stored import Log, Range, SiteHandle
from streams.worker.checkpoint.table import OwnershipToken
from streams.worker.checkpoint.watchdog import Watchdog
from streams.worker.intake.intake import EventPlaces, Intake
from streams.worker.metrics.process import Metrics
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.owner import Owner
from streams.worker.ownership.partition import OwnedPartition, SharedContext

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
        self.started: dict[str, dict[int, Started]] = {}
        self.runs: dict[str, dict[int, Run]] = {}
        self.rows: dict[str, dict[str, dict[int, Row]]] = {}
        self.marks: dict[int, bytes] = {}

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

    def said(self, *topics: str) -> list[bytes]:
        """The values on some topics, by the ends of their names."""
        return [value for topic, _, value in self.outputs if topic.endswith(topics)]


class Message:
    """A message as Faust hands it to the agent."""

    def __init__(self, raw: SimpleNamespace) -> None:
        self.message = raw


class MemoryTable:
    """The table of sites. What was handed over to the broker arrives, whoever still waits for it."""

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

    async def set_mark(self, partition: int, mark: bytes | None) -> None:
        await self._world.pause()
        self._token.check()
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

    async def read(self, site: str, generation: int = 0) -> StoredHistories:
        place = await self._begin("read", site, generation, writes=False)
        rows = {method: list(own.values()) for method, own in self._world.rows.get(place, {}).items()}
        started, runs = self._world.started.get(place, {}), self._world.runs.get(place, {})
        found = StoredHistories(list(started.values()), list(runs.values()), rows)
        await self._world.pause()
        return found

    async def clean(self, site: str, stored: StoredHistories, kept: StoredHistories, generation: int = 0) -> None:
        place = await self._begin("clean", site, generation)
        self._world.started[place] = {row.number: row for row in kept.started}
        self._world.runs[place] = {run.number: run for run in kept.runs}
        self._world.rows[place] = {name: {row.number: row for row in rows} for name, rows in kept.rows.items()}
        await self._world.pause()

    async def begin(self, site: str) -> int:
        await self._begin("begin", site, writes=False)
        generation = 0
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

    async def ranges(self, logs: Iterable[Log]) -> dict[Log, Range]:
        await self._world.pause()
        return {log: Range(0, 1 << 62) for log in logs}

    def renewed(self, partition: int) -> None:
        raise AssertionError(partition)

    def lost(self, partition: int, events: int) -> None:
        assert not events

    async def read(self, log: Log, first: int, last: int, key: bytes) -> list[Fetched]:
        await self._world.pause()
        found = self._world.messages[log.partition][first : last + 1]
        return [Fetched.of(one) for one in found if one.key == key]

    async def read_some(self, place: TP, key: bytes, first: int, last: int, most: int) -> SomeMessages:
        found = (await self.read(Log(None, place.partition), first, last, key))[:most]
        return SomeMessages(found, found[-1].offset + 1 if len(found) == most else last + 1, False)

    async def late_states(self, partition: int, after: int | None = None) -> LateStates:
        return LateStates([], -1)

    async def earlier_states(self, partition: int, key: bytes, most: int | None = None) -> list[tuple[bytes, bytes]]:
        return []


class AnyPlace(EventPlaces):
    """Every partition is every site's."""

    def is_home(self, site: str, partition: int) -> bool:
        return True


class Producer:
    """Sends to Kafka: gives what has to be waited for until a message is at the broker."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def send(self, topic: str, key: bytes | None, value: bytes, _: int | None, headers: Any) -> "Delivery":
        def deliver() -> None:
            self._world.step(f"send {topic}")
            self._world.outputs.append((topic, key, value))
            self._world.headers.append(headers)

        await self._world.pause()
        if not self._world.eager:
            return Delivery(deliver)
        deliver()
        return Delivery(lambda: None)


class Delivery:
    """Waits for a delivery, or is let go of by a process that dies."""

    def __init__(self, deliver: Callable[[], None]) -> None:
        self._deliver = deliver

    def __await__(self) -> Iterator[None]:
        self._deliver()
        yield


class Process:
    """A worker over a world, as long as it lives; `clock` tells it whether it was asleep.

    Parameters:
        fakes: `table`, `events` and `places` in the place of the usual ones; `store`, which makes a store from a world
            and a token; `now`, a clock for checkpoints; `send`, `acknowledge` and `confirm` for Kafka.
    """

    def __init__(self, world: World, settings: Settings, **fakes: Any) -> None:
        self.world = world
        self.error: Exception | None = None
        self.metrics = Metrics(settings.worker.max_site_labels)
        self.pulse = Watchdog(settings.worker.session_timeout_seconds / 2, fakes.get("clock", lambda: 0.0))
        self.freshness = Freshness(
            lambda handle: (TOPIC, handle.partition), lambda place: len(world.messages[place[1]])
        )
        places = fakes.get("places", AnyPlace(settings, settings.topics.partitions))
        self.intake = Intake(places, lambda name: self.metrics.unknown_fields.labels(name).inc())
        self.scores = AnswerScores()
        store = fakes.get("store", MemoryStore)
        self.means = SharedContext(
            settings,
            fakes.get("table", MemoryTable(world)),
            lambda token: store(world, token),
            fakes.get("events", MemoryEvents(world)),
            self.intake,
            Outbox(fakes.get("send", Producer(world).send), settings, self.metrics, self.scores, self.freshness),
            self.pulse.check,
            self._supervised,
            acknowledge=fakes.get("acknowledge", world.commit),
            confirm=fakes.get("confirm", AsyncMock()),
        )
        self.means.clock = fakes.get("now", self.means.clock)
        self.owner = Owner(self.means, self.freshness)
        self.metrics.show(
            self.owner.values(),
            EstimateGrids(self.owner, settings.estimates, AsyncMock()),
            self.freshness,
            self.scores,
        )

    async def take_over(self, *partitions: int) -> None:
        """Partitions become its own.

        Raises:
            Exception: whatever stops the worker.
        """
        await self.owner.take_over(set(partitions))
        self.raise_error()

    async def take_on(self, *partitions: int) -> None:
        """The same, with all that is there, until all of it is processed.

        Raises:
            Exception: whatever stops the worker.
        """
        await self.take_over(*partitions)
        for partition in partitions:
            await self.take_all(partition)
        await self.done()

    async def take_all(self, partition: int = 0) -> None:
        """Give it what Kafka delivers of a partition."""
        for message in self.world.delivered(partition):
            await self.owner.take(message)

    async def done(self) -> None:
        """All that it was given is processed.

        Raises:
            Exception: whatever stops the worker.
        """
        while self.owner.behind and self.error is None:
            await asyncio.sleep(0)
        self.raise_error()

    async def hand_over(self, *partitions: int) -> None:
        """Partitions are taken away.

        Raises:
            Exception: whatever stops the worker.
        """
        await self.owner.hand_over(set(partitions))
        self.raise_error()

    async def live(self) -> None:
        """Take over all partitions, process what they hold, and leave in good order.

        Raises:
            Exception: whatever stops the worker.
        """
        owned = sorted(self.world.messages)
        await self.take_on(*owned)
        await self.hand_over(*owned)

    def partition(self, number: int = 0) -> OwnedPartition:
        """One of its own."""
        return self.owner._partitions[number]

    def raise_error(self) -> None:
        """Raise what has stopped the worker, if anything has."""
        if self.error is not None:
            raise self.error

    async def _supervised(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:
            self.error = self.error or error
            raise
