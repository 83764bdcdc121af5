"""Whether the servers that a worker needs answer just now."""

import asyncio
import ssl
import struct
import time
from collections.abc import Callable

from redis.exceptions import RedisError

from streams.settings import Settings
from streams.worker.store import connect

PATIENCE_S = 1.0
"""Within which a server must answer to be there."""

FRESH_S = 1.0
"""For so long what was found is told again, however often it is asked for."""


API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""Kafka's request ApiVersions: its length, key, version, a number to know the answer by, and no client id."""


class Health:
    """Looks after the broker and the store over connections of its own, which wait for nothing else."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.broker: str | None = None
        """What hindered the broker when it was last looked at; None where nothing did."""
        self.store: str | None = None
        """The same of Redis."""
        self._bootstrap = settings.kafka.bootstrap
        self._tls = settings.kafka.tls_context()
        self._redis = connect(settings.redis, PATIENCE_S)
        self._clock = clock
        self._looked: float | None = None
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Look at both, unless that was just done; takes `PATIENCE_S` at most."""
        async with self._looking:
            if self._looked is None or self._clock() - self._looked > FRESH_S:
                self.broker, self.store = await asyncio.gather(self._broker(), self._store())
                self._looked = self._clock()

    async def _store(self) -> str | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._redis.ping()
        except TimeoutError:
            return f"redis: no answer within {PATIENCE_S:g} s"
        except (RedisError, OSError) as error:
            return f"redis: {error}"
        return None

    async def _broker(self) -> str | None:
        """That none of the brokers answers, or None."""
        found = await asyncio.gather(*(_answers(address, self._tls) for address in self._bootstrap.split(",")))
        return None if any(found) else f"no broker answers at {self._bootstrap}"


async def _answers(address: str, tls: ssl.SSLContext | None) -> bool:
    """Whether a broker answers the one question that each may ask before it has said who it is.

    A connection alone says little: that of a broker that hangs is still taken, by its machine.
    """
    host, _, port = address.strip().rpartition(":")
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=tls)
            try:
                writer.write(API_VERSIONS)
                return bool(await reader.read(4))
            finally:
                writer.close()
    except OSError:  # TimeoutError among them
        return False
