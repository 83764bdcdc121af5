"""The clients of Redis."""

import asyncio
from typing import Any

import pytest
from redis.asyncio.cluster import RedisCluster

from streams.settings import RedisSettings
from streams.worker.checkpoint.client import AWAY, connect


def test_a_connection_that_a_cluster_closed_meanwhile_is_lost_as_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def closed(*_: Any, **__: Any) -> None:
        writer: Any = None
        writer.writelines([])

    async def ask() -> None:
        client = connect(RedisSettings(url="redis+cluster://127.0.0.1:1"))
        try:
            await client.hget("key", "field")
        finally:
            await client.aclose()

    monkeypatch.setattr(RedisCluster, "execute_command", closed)
    with pytest.raises(AWAY, match="closed while it was opened"):
        asyncio.run(ask())
