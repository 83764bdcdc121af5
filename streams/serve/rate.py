"""How often a client may ask."""

import asyncio

from litestar import Litestar
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.stores.memory import MemoryStore

from streams.serve.access import Access

STORE = "rate_limit"
"""The name under which the app keeps the counts."""

CLEAN_S = 60.0
"""Seconds between two times that the counts of clients who have gone are dropped."""


def rate_limit(access: Access, per_minute: int) -> RateLimitConfig:
    """So many requests a minute for each token, and for each address without one; further ones have status 429."""
    return RateLimitConfig(rate_limit=("minute", per_minute), identifier_for_request=access.identify, store=STORE)


async def forget_counts(app: Litestar) -> None:
    """Drop the counts that have expired, for ever: by itself Litestar's store keeps each client that ever asked."""
    while True:
        await asyncio.sleep(CLEAN_S)
        store = app.stores.get(STORE)
        assert isinstance(store, MemoryStore)
        await store.delete_expired()
