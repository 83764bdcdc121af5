"""Whether the servers that a worker needs answer now."""

import asyncio
import time
from collections.abc import Callable

from streams.broker.reachable import broker_answers
from streams.settings import Settings
from streams.worker.checkpoint.client import AWAY, connect

PATIENCE_S = 1.0
"""Seconds within which a server has to answer."""

FRESH_S = 1.0
"""Seconds for which a result is used again, however often it is asked for."""


class Health:
    """Checks the broker and Redis over connections of its own, which no other work can block."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self.broker: str | None = None
        """What was wrong with the broker at the last check; None when nothing was."""
        self.store: str | None = None
        """The same for Redis."""
        self._kafka = settings.kafka
        self._tls = settings.kafka.tls_context()
        self._redis = connect(settings.redis, PATIENCE_S)
        self._key = f"{settings.redis.prefix}:health"
        self._clock = clock
        self._checked: float | None = None
        self._checking = asyncio.Lock()

    async def look(self) -> None:
        """Check both, unless that was just done; takes `PATIENCE_S` at most."""
        async with self._checking:
            if self._checked is None or self._clock() - self._checked > FRESH_S:
                asked = broker_answers(self._kafka.bootstrap, self._tls, PATIENCE_S)
                answers, self.store = await asyncio.gather(asked, self._store())
                self.broker = None if answers else f"no broker answers at {self._kafka.bootstrap}"
                self._checked = self._clock()

    async def _store(self) -> str | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._redis.hset(self._key, "last", b"1")  # one out of memory, or a replica, answers a ping
        except TimeoutError:
            return f"redis: no answer within {PATIENCE_S:g} s"
        except AWAY as error:
            return f"redis: {error}"
        return None
