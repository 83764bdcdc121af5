"""What a program is given that follows topics."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from queuecast import WithdrawnEstimate
from streams.client import client
from streams.client.grid import AsyncClient
from streams.settings import Settings


class Message(NamedTuple):
    topic: str
    key: bytes
    value: bytes | None


class OneMessage:
    """Stands for a consumer of a topic with this message."""

    def __init__(self, message: Message) -> None:
        self._message = message

    async def getmany(self, **_: object) -> dict[str, list[Message]]:
        return {"partition": [self._message]}


def test_a_shape_that_is_withdrawn_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Message("queuecast.estimates", b'["birch",4,3600,"batch"]', None)

    @asynccontextmanager
    async def started(*_: object) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(client, "Consumer", lambda *_, **__: OneMessage(gone))
    monkeypatch.setattr(client, "started", started)

    async def first(found: AsyncGenerator[Any]) -> Any:
        async for record in found:
            return record

    told = asyncio.run(first(AsyncClient(Settings()).estimate_changes(site="birch")))
    assert told == WithdrawnEstimate("birch", 4, 3600.0, "batch")
