"""Keys in Redis that another program has given the wrong type: they are renamed and count as lost."""

import logging
from collections.abc import Iterable

from redis.exceptions import ResponseError

from streams.worker.checkpoint.redis_client import Client

log = logging.getLogger(__name__)
SETS = ("categories", "methods")  # last parts of the keys of sets; all other keys are hashes
ASIDE_S = 30 * 86_400  # retention of a renamed key, seconds


def is_wrong_type(error: ResponseError) -> bool:
    """Return whether Redis refuses a command because of the key's type."""
    return "WRONGTYPE" in str(error)


async def set_aside(client: Client, keys: Iterable[str]) -> None:
    """Rename the keys that have the wrong type."""
    for key in keys:
        expected = "set" if key.rsplit(":", 1)[-1] in SETS else "hash"
        answer = await client.type(key)
        found = answer.decode() if isinstance(answer, bytes) else answer
        if found not in (expected, "none"):
            log.error(
                "Renamed Redis key %s: its type is %s, expected %s; its data counts as lost", key, found, expected
            )
            await client.rename(key, f"{key}:aside")
            await client.expire(f"{key}:aside", ASIDE_S)
