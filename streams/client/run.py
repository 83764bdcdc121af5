"""A command's use of the client: connect, ask, close."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from streams.client.client import QuestionClient
from streams.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")


def with_client(settings: Settings, use: Callable[[QuestionClient], Awaitable[T]]) -> T:
    """What `use` makes of a connected client. Outcomes are not read.

    Raises:
        UserError: Kafka cannot be reached or refuses, topics are missing, or `use` raised it.
    """
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(on_loop_error)
        return runner.run(_with_client(settings, use))


async def _with_client(settings: Settings, use: Callable[[QuestionClient], Awaitable[T]]) -> T:
    client = QuestionClient(settings, outcomes=False)
    try:
        await client.start()
        return await use(client)
    finally:
        await client.stop()


def on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say what went wrong where nobody waited for it; but not that a TLS connection was closed in mid-answer.

    aiokafka does not wait for its connections to close. asyncio would report an answer that comes after that as an
    error that nobody retrieved.
    """
    error = context.get("exception")
    if isinstance(error, ssl.SSLError) and error.reason == "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":
        log.debug("a connection was closed before the broker's last answer: %s", error)
    else:
        loop.default_exception_handler(context)
