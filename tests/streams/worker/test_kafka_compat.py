"""Lost connections to a broker, and messages of the consumer."""

import asyncio
import inspect
import struct
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.admin import ApiVersionRequest
from mode import Service

from streams.worker.kafka_compat import Consumer
from tests.support.loops import LOOPS


async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the first request (ApiVersions) with no versions; close the connection at the second."""
    size = struct.unpack(">i", await reader.readexactly(4))[0]
    _, _, number = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
    answer = struct.pack(">ihi", number, 0, 0)
    writer.write(struct.pack(">i", len(answer)) + answer)
    await reader.readexactly(4)
    writer.close()


@pytest.mark.parametrize("new_loop", LOOPS)
def test_send_to_lost_broker_raises_kafka_connection_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """aiokafka's sender and fetcher retry after this error and stop at others."""

    async def lose() -> None:
        async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
            connection = await create_conn(*server.sockets[0].getsockname())
            sent = [connection.send(ApiVersionRequest())]
            with pytest.raises(KafkaConnectionError):
                while True:
                    sent.append(connection.send(ApiVersionRequest()))
                    await asyncio.sleep(0)
            for answer in sent:
                with pytest.raises(KafkaConnectionError):
                    await answer
            assert not connection.connected()
            connection.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(asyncio.wait_for(lose(), 30.0))


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError()])
@pytest.mark.parametrize("at_once", [True, False])
def test_undeliverable_message_is_reported_and_unblocks_senders(error: BaseException, at_once: bool) -> None:
    async def live() -> None:
        consumer: Any = Consumer.__new__(Consumer)
        Service.__init__(consumer)
        consumer._stopped, consumer._crashed = asyncio.Event(), asyncio.Event()
        stop = asyncio.Event()

        async def hand_over() -> None:
            if not at_once:
                await asyncio.sleep(0)
            raise error

        waits = stop.wait()
        with pytest.raises(type(error)):
            await consumer.wait_first(hand_over(), waits)
        await asyncio.sleep(0)
        assert inspect.getcoroutinestate(waits) == inspect.CORO_CLOSED

    asyncio.run(live())


def test_message_with_room_is_sent_without_a_task() -> None:
    """A message without room waits until there is room or the flow stops."""

    async def live() -> None:
        consumer: Any = Consumer.__new__(Consumer)
        Service.__init__(consumer)
        consumer._stopped, consumer._crashed = asyncio.Event(), asyncio.Event()
        room, stop, handed = asyncio.Event(), asyncio.Event(), list[asyncio.Task[Any] | None]()

        async def hand_over() -> str:
            try:
                await room.wait()
                await asyncio.sleep(0)
                return "done"
            finally:
                handed.append(asyncio.current_task())

        async def hand_over_at_once() -> str:
            handed.append(asyncio.current_task())
            return "done"

        found = await consumer.wait_first(hand_over_at_once(), stop.wait())
        assert (found.results, found.stopped, handed.pop()) == (["done"], False, asyncio.current_task())
        waits = asyncio.create_task(consumer.wait_first(hand_over(), stop.wait()))
        await asyncio.sleep(0)
        assert not waits.done()
        room.set()
        assert (await waits).results == ["done"]
        room.clear()
        waits = asyncio.create_task(consumer.wait_first(hand_over(), stop.wait()))
        await asyncio.sleep(0)
        stop.set()
        assert (await waits).results == [True]
        await asyncio.sleep(0)
        assert len(handed) == 2

    asyncio.run(live())
