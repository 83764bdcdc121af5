"""Records that join an open batch of the producer."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from aiokafka.producer.message_accumulator import MessageAccumulator
from faust.types import TP

from streams.worker.kafka_compat import Producer

PLACE = TP("events", 0)


class Open:
    """A producer whose broker is a test."""

    def __init__(self) -> None:
        self.accumulator = MessageAccumulator(None, 1000, 0, 60.0, loop=asyncio.get_running_loop())
        self.producer: Any = Producer.__new__(Producer)
        self.producer._deliveries = {}
        self.producer._ensure_producer = lambda: SimpleNamespace(_message_accumulator=self.accumulator)
        self.producer.send = AsyncMock(side_effect=self._send)

    async def _send(self, topic: str, key: bytes, value: bytes, partition: int, stamp: Any, headers: Any) -> Any:
        return await self.accumulator.add_message(TP(topic, partition), key, value, 0.1, headers=headers)

    async def deliver(self, value: bytes) -> "asyncio.Future[Any]":
        sent: asyncio.Future[Any] = await self.producer.deliver(*PLACE[:1], b"k", value, PLACE.partition, [])
        return sent

    def batch(self) -> Any:
        """The batch to send next, as the sender takes it."""
        return self.accumulator._pop_batch(PLACE)


def test_records_of_open_batch_share_its_future() -> None:
    async def scenario() -> None:
        broker = Open()
        first, second, third = [await broker.deliver(b"%d" % number) for number in range(3)]
        assert second is third is not first and broker.producer.send.await_count == 1
        batch = broker.batch()
        assert batch.record_count == 3 and not second.done()
        batch.done(0, timestamp=0)
        await asyncio.gather(first, second, third)

    asyncio.run(scenario())


def test_record_after_drain_opens_another_batch() -> None:
    async def scenario() -> None:
        broker = Open()
        before = [await broker.deliver(b"a"), await broker.deliver(b"b")]
        broker.batch().done(0, timestamp=0)
        after = [await broker.deliver(b"c"), await broker.deliver(b"d")]
        await asyncio.gather(*before)
        assert not after[1].done() and broker.batch().record_count == 2

    asyncio.run(scenario())


def test_full_batch_record_waits_for_its_turn() -> None:
    async def scenario() -> None:
        broker = Open()
        await broker.deliver(b"a" * 500)
        waiting = asyncio.ensure_future(broker.deliver(b"b" * 900))
        await asyncio.sleep(0)
        assert not waiting.done()
        broker.batch().done(0, timestamp=0)
        await waiting
        assert broker.batch().record_count == 1

    asyncio.run(scenario())


def test_failed_batch_fails_each_record() -> None:
    async def scenario() -> None:
        broker = Open()
        sent = [await broker.deliver(b"%d" % number) for number in range(3)]
        broker.batch().failure(OSError("away"))
        for one in sent:
            with pytest.raises(OSError, match="away"):
                await one

    asyncio.run(scenario())


def test_cancelled_delivery_leaves_batch_and_later_records() -> None:
    async def scenario() -> None:
        broker = Open()
        await broker.deliver(b"a")
        (await broker.deliver(b"b")).cancel()
        later = await broker.deliver(b"c")
        batch = broker.batch()
        assert not batch.future.cancelled() and not later.done()
        batch.done(0, timestamp=0)
        await later

    asyncio.run(scenario())
