"""The clients of Redis."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis

from streams.settings import RedisSettings
from streams.worker.checkpoint.client import Cluster, connect


def of_uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = pytest.importorskip("uvloop").new_event_loop()
    return loop


LOOPS = [asyncio.new_event_loop, of_uvloop]

CLOSED_BY: list[Callable[[Any], None]] = [
    lambda connection: connection._writer.transport.abort(),
    lambda connection: connection._close(),
]
"""What closes a connection behind the back of who uses it: the other end, or another task, in the middle of a step."""


@pytest.mark.parametrize("new_loop", LOOPS)
@pytest.mark.parametrize("close", CLOSED_BY)
@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1", "rediss://127.0.0.1", "redis+sentinel://127.0.0.1/main", "redis+cluster://127.0.0.1"]
)
def test_a_connection_that_was_closed_meanwhile_is_lost_as_others_are(
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
