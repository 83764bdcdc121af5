"""The Redis server: whether it answers, and what it remembers of the topics."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis.exceptions import AuthenticationError, ResponseError

from streams.errors import UNTRUSTED, Unreachable, UserError
from streams.settings import RedisSettings
from streams.worker.checkpoint.client import AWAY, address_of, connect


async def check_redis(settings: RedisSettings) -> None:
    """Make sure that Redis answers.

    Raises:
        Unreachable: it does not; the message says where it was looked for, without the password.
        UserError: it refuses, or is not trusted.
    """
    client = connect(settings)
    try:
        await client.ping()
    except AWAY as error:
        kind = UserError if _refused(error) else Unreachable
        raise kind(f"redis at {address_of(settings)}: {_explained(error)}") from None
    finally:
        await client.aclose()


async def remembered_partitions(settings: RedisSettings, topic: str, partitions: int | None) -> int | None:
    """How many partitions a topic of events had when sites were first stored; None where nobody knows.

    Parameters:
        partitions: what to remember from now on, if nothing is remembered yet.

    Raises:
        Unreachable: Redis does not answer.
    """
    async with _open(settings) as client:
        if partitions is not None:
            await client.hsetnx(_partitions_key(settings), topic, str(partitions))
        found = await client.hget(_partitions_key(settings), topic)
        return None if found is None else int(found)


async def remember_partitions(settings: RedisSettings, topic: str, partitions: int) -> None:
    """Have workers expect so many partitions from now on, to which the sites were moved.

    Raises:
        Unreachable: Redis does not answer.
    """
    async with _open(settings) as client:
        await client.hset(_partitions_key(settings), topic, str(partitions))


def _partitions_key(settings: RedisSettings) -> str:
    return f"{settings.prefix}:partitions"


@asynccontextmanager
async def _open(settings: RedisSettings) -> AsyncIterator[Any]:
    """A client, closed afterwards; an error of Redis becomes `Unreachable`."""
    client = connect(settings)
    try:
        yield client
    except AWAY as error:
        raise Unreachable(f"redis at {address_of(settings)}: {_explained(error)}") from None
    finally:
        await client.aclose()


def _refused(error: Exception) -> bool:
    return isinstance(error, AuthenticationError | ResponseError) or UNTRUSTED.search(str(error)) is not None


def _explained(error: Exception) -> str:
    if isinstance(error, AuthenticationError):
        return "refused; is it this username and this password?"
    if found := UNTRUSTED.search(str(error)):
        return f"its certificate is not trusted: {found[1]}; is ca_file the authority that signed it?"
    return str(error)
