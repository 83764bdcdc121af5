"""Kafka, Redis and the table of sites in memory, and a crash at any step of what becomes durable there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec

from models.engine.checkpoint import Changes
from models.records import AnyEvent
from models.site.history import Started
from models.site.rows import Row
from models.site.runs import Run
from streams.settings import Settings
from streams.worker.answers.freshness import Freshness
from streams.worker.checkpoint.store import SiteStore, Stored
from streams.worker.intake.messages import Places
from streams.worker.metrics.process import Metrics
from streams.worker.ownership.ledger import Ledger
from streams.worker.ownership.processor import Processor

TOPIC = "queuecast.events"


class Crash(Exception):
    """The process dies here."""


class World:
    """What outlives a worker's process, and the steps by which that changed, in order.

    After `steps` further ones it crashes: the next step does not happen, nor any after it. An `eager` Kafka has what is
    sent at once, else when that is waited for.
    """

    def __init__(self, eager: bool = False) -> None:
        self.log: list[str] = []
        self.steps: int | None = None
        self.eager = eager
        self.messages: dict[int, list[SimpleNamespace]] = {}
        self.committed: dict[int, int] = {}
        self.outputs: list[tuple[str, bytes | None, bytes]] = []
        self.headers: list[list[tuple[str, bytes]]] = []  # of each of them
        self.arrived = 0.0  # when the next message comes to Kafka
        self.table: dict[bytes, bytes] = {}
        self.started: dict[str, dict[int, Started]] = {}
        self.runs: dict[str, dict[int, Run]] = {}
        self.rows: dict[str, dict[str, dict[int, Row]]] = {}

    def step(self, what: str) -> None:
        """Something is about to become durable."""
        if self.steps == 0:
            raise Crash
        if self.steps is not None:
            self.steps -= 1
        self.log.append(what)

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
        return [Message(self, raw) for raw in self.messages[partition][begin:]]

    def said(self, *topics: str) -> list[bytes]:
        """The values on some topics, by the ends of their names."""
        return [value for topic, _, value in self.outputs if topic.endswith(topics)]


class Message:
    """A message as Faust hands it to the agent."""

    def __init__(self, world: World, raw: SimpleNamespace) -> None:
        self._world = world
        self.message = raw

    def ack(self) -> bool:
        """Commit the offset."""
        self._world.step(f"ack {self.message.offset}")
        self._world.committed[self.message.partition] = self.message.offset + 1
        return True


class MemoryTable:
    """The table of sites."""

    def __init__(self, world: World) -> None:
        self._world = world

    def get(self, key: bytes) -> bytes | None:
        return self._world.table.get(key)

    def keys(self) -> Iterable[bytes]:
        return self._world.table.keys()

    async def put(self, key: bytes, value: bytes | None, partition: int) -> None:
        self._world.step(f"table {key.decode(errors='replace')}")
        if value is None:
            self._world.table.pop(key, None)
        else:
            self._world.table[key] = value


class MemoryStore(SiteStore):
    """The store of histories."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def claim(self, site: str) -> None:
        pass

    async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
        self._world.step(f"write {site}")
        site = self._world.place(site, generation)
        self._world.started.setdefault(site, {}).update((row.number, row) for row in changes.started)
        self._world.runs.setdefault(site, {}).update((run.number, run) for run in changes.runs)
        for method, rows in changes.rows.items():
            own = self._world.rows.setdefault(site, {}).setdefault(method, {})
            own.update((row.number, row) for row in rows)

    async def trim(self, site: str, oldest: int, changes: Changes, generation: int = 0) -> None:
        self._world.step(f"trim {site}")
        site = self._world.place(site, generation)
        started, runs = self._world.started.get(site, {}), self._world.runs.get(site, {})
        self._world.started[site] = {number: row for number, row in started.items() if number >= oldest}
        for run in changes.forgotten_runs:
            runs.pop(run.number, None)
        for method, oldest_row in changes.oldest.items():
            own = self._world.rows[site][method]
            self._world.rows[site][method] = {number: row for number, row in own.items() if number >= oldest_row}

    async def read(self, site: str, generation: int = 0) -> Stored:
        self._world.step(f"read {site}")
        place = self._world.place(site, generation)
        rows = {method: list(own.values()) for method, own in self._world.rows.get(place, {}).items()}
        started, runs = self._world.started.get(place, {}), self._world.runs.get(place, {})
        return Stored(list(started.values()), list(runs.values()), rows)

    async def clean(self, site: str, stored: Stored, kept: Stored, generation: int = 0) -> None:
        self._world.step(f"clean {site}")
        place = self._world.place(site, generation)
        self._world.started[place] = {row.number: row for row in kept.started}
        self._world.runs[place] = {run.number: run for run in kept.runs}
        self._world.rows[place] = {name: {row.number: row for row in rows} for name, rows in kept.rows.items()}

    async def begin(self, site: str) -> int:
        self._world.step(f"begin {site}")
        generation = 0
        while (place := self._world.place(site, generation)) in self._world.started or place in self._world.runs:
            generation += 1
        return generation

    async def take_back(self, site: str, generation: int) -> None:
        pass

    async def forget(self, site: str, generation: int = 0) -> None:
        self._world.step(f"forget {site}")
        place = self._world.place(site, generation)
        for kept in (self._world.started, self._world.runs, self._world.rows):
            kept.pop(place, None)


class AnyPlace(Places):
    """Every partition is every site's."""

    def is_home(self, site: str, partition: int) -> bool:
        return True


class MemoryProducer:
    """Faust's producer: gives what has to be waited for until a message is at the broker."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def send(
        self, topic: str, key: bytes | None, value: bytes, partition: int | None, __: None, headers: Any
    ) -> "Delivery":
        def deliver() -> None:
            self._world.step(f"send {topic}")
            self._world.outputs.append((topic, key, value))
            self._world.headers.append(headers)

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
    """A worker over a world, as long as it lives; `clock` tells it whether it was asleep."""

    def __init__(self, world: World, settings: Settings, **fakes: Any) -> None:
        self.world = world
        self.error: Exception | None = None
        self.ledger = Ledger(
            fakes.get("table", MemoryTable(world)),
            fakes.get("store", MemoryStore(world)),
            settings.engine,
            settings.worker,
            forget_days=settings.sites.forget_days,
        )
        self.metrics = Metrics(self.ledger, settings.worker.metric_sites)
        app: Any = SimpleNamespace(producer=MemoryProducer(world), stopping_on_error=self._noting_errors)
        places = fakes.get("places", AnyPlace(settings, settings.topics.partitions))
        self.freshness = Freshness(
            lambda handle: (TOPIC, handle.partition), lambda place: len(world.messages[place[1]])
        )
        self.processor = Processor(
            app, settings, self.ledger, self.metrics, fakes.get("clock", lambda: 0.0), places, self.freshness
        )

    async def live(self) -> None:
        """Take over all partitions, process what they hold, and leave in good order.

        Raises:
            Exception: whatever stops the worker.
        """
        owned = set(self.world.messages)
        await self.processor.take_over(owned)
        for partition in sorted(owned):
            for message in self.world.delivered(partition):
                await self.processor.take(message)
        while self.processor.parking and self.error is None:
            await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        await self.processor.hand_over(owned)

    @asynccontextmanager
    async def _noting_errors(self) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:
            self.error = error
            raise
