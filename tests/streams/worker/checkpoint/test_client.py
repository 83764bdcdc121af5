"""Clients of Redis."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from streams.settings import RedisSettings
from streams.worker.checkpoint.redis_client import Cluster, connect
from tests.support.loops import LOOPS

CLOSED_BY: list[Callable[[Any], None]] = [
    lambda connection: connection._writer.transport.abort(),
    lambda connection: connection._close(),
]
"""Ways to close a connection in use: by the server, or by another task in the middle of a step."""


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("close", CLOSED_BY)
@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1", "rediss://127.0.0.1", "redis+sentinel://127.0.0.1/main", "redis+cluster://127.0.0.1"]
)
def test_closed_connection_counts_as_lost(
    new_loop: Callable[[], asyncio.AbstractEventLoop], close: Callable[[Any], None], url: str
) -> None:
    async def ask() -> None:
        client = connect(RedisSettings(url=url))
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        cluster = isinstance(client, Cluster)
        connection = (
            client.startup_nodes[0].acquire_connection() if cluster else client.connection_pool.make_connection()
        )
        connection._reader, connection._writer = await asyncio.open_connection(*server.sockets[0].getsockname())

        async def while_it_is_checked() -> None:
            close(connection)
            await asyncio.sleep(0)

        connection.check_health = while_it_is_checked
        try:
            await connection.send_command("PING")
        finally:
            server.close()
            await client.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(redis.ConnectionError):
        runner.run(ask())


@pytest.mark.parametrize("error", [AttributeError("'Node' object has no attribute 'x'"), RuntimeError("a flaw")])
def test_connection_bug_is_not_reported_as_lost_connection(error: Exception) -> None:
    async def ask() -> None:
        connection: Any = connect(RedisSettings()).connection_pool.make_connection()  # type: ignore[union-attr]

        async def fail(**_: Any) -> None:
            raise error

        connection.connect_check_health = fail
        await connection.send_command("PING")

    with pytest.raises(type(error), match=str(error)):
        asyncio.run(ask())


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("close", CLOSED_BY)
@pytest.mark.parametrize(
    ("come", "last"), [(b"", b""), (b"", b"*2\r\n$3\r\n"), (b"*2\r\n", b"$3"), (b"*2\r\n$3\r\non", b"e\r\n")]
)
def test_read_from_closed_connection_counts_as_lost(
    new_loop: Callable[[], asyncio.AbstractEventLoop], close: Callable[[Any], None], come: bytes, last: bytes
) -> None:
    """`come` arrives before the answer is awaited, `last` when the connection closes."""

    async def ask() -> None:
        client: Any = connect(RedisSettings())
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        connection = client.connection_pool.make_connection()
        connection._reader, connection._writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        connection._parser.on_connect(connection)
        stream = connection._reader
        stream.feed_data(come)
        answer = asyncio.ensure_future(connection.read_response())
        for _ in range(3):
            await asyncio.sleep(0)
        stream.feed_data(last)
        close(connection)
        try:
            await answer
        finally:
            server.close()
            await client.aclose()

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(redis.ConnectionError):
        runner.run(asyncio.wait_for(ask(), 30.0))
