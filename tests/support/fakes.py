"""A worker on servers in memory."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from unittest.mock import AsyncMock

from streams.settings import Settings
from streams.worker.answers.answer_scores import AnswerScores
from streams.worker.answers.estimate_grid import EstimateGrids
from streams.worker.answers.freshness import Freshness
from streams.worker.checkpoint.watchdog import Watchdog
from streams.worker.intake.intake import EventPlaces, Intake
from streams.worker.metrics.process_metrics import Metrics
from streams.worker.ownership.outbox import Outbox
from streams.worker.ownership.owner import Owner
from streams.worker.ownership.partition import OwnedPartition, SharedContext
from tests.support.memory_servers import TOPIC, MemoryEvents, MemoryStore, MemoryTable, World


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
    """A worker over a world, as long as it lives; `clock` reports whether it was asleep.

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
