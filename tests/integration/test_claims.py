"""Only the last worker that claimed a site writes its entries; lost Redis writes are detected."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from deploy.local.stack import LocalStack
from models.engine.histories import Changes
from models.site.runs import Run
from streams.settings import RedisSettings
from streams.worker.checkpoint.claims import Fenced, WritesLost
from streams.worker.checkpoint.owned_table import OwnershipToken, Revoked
from streams.worker.checkpoint.redis_client import connect
from streams.worker.checkpoint.store import HistoryEntries, SiteStore

SITE = "alder"
EARLY = Changes(runs=[Run(1, ("user", "ada"), 60.0, None, 1)])
LATE = Changes(runs=[Run(2, ("user", "ada"), 70.0, None, 1)], forgotten_runs=EARLY.runs)

WRITES: dict[str, Callable[[SiteStore], Awaitable[Any]]] = {
    "write": lambda store: store.write(SITE, LATE),
    "trim": lambda store: store.trim(SITE, 0, LATE),
    "clean": lambda store: store.clean(SITE, HistoryEntries([], EARLY.runs), HistoryEntries([], [])),
    "retire": lambda store: store.retire(SITE, 0),
    "forget": lambda store: store.forget(SITE),
}
"""All operations that change a site's entries."""


class Workers:
    """Stores of several processes with one prefix."""

    def __init__(self, url: str) -> None:
        self.settings = RedisSettings(url=url, prefix=f"t{uuid.uuid4().hex[:8]}")
        self.redis: Any = redis.Redis.from_url(url)

    @asynccontextmanager
    async def store(self) -> AsyncIterator[SiteStore]:
        client = connect(self.settings)
        try:
            yield SiteStore(client, self.settings.prefix)
        finally:
            await client.aclose()

    def dump(self) -> dict[bytes, tuple[bytes, int]]:
        """Return the value and the expiry of each key."""
        keys = self.redis.scan_iter(f"{self.settings.prefix}:*", count=1000)
        return {key: (self.redis.dump(key), self.redis.ttl(key)) for key in keys}

    @property
    def info(self) -> str:
        return f"{self.settings.prefix}:{{{SITE}}}:info"


class Taken:
    """Pass the first check; at the second, another process claims the site."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._looks = 0

    def __call__(self) -> None:
        self._looks += 1
        if self._looks == 2:
            self._workers.redis.hset(self._workers.info, "owner", "another")


@pytest.fixture
def workers(local_stack: LocalStack) -> Iterator[Workers]:
    found = Workers(local_stack.redis.url)
    yield found
    found.redis.close()


@pytest.mark.parametrize("what", WRITES)
def test_store_suspended_during_takeover_is_fenced(workers: Workers, what: str) -> None:
    async def story() -> None:
        async with workers.store() as sleeper, workers.store() as other:
            await sleeper.claim(SITE)
            await sleeper.write(SITE, EARLY)
            await other.claim(SITE)
            before = workers.dump()
            with pytest.raises(Fenced):
                await WRITES[what](sleeper)
            assert workers.dump() == before
            await WRITES[what](other)
            assert workers.dump() != before

    asyncio.run(story())


def test_store_suspended_before_its_write_is_fenced(workers: Workers) -> None:
    async def story() -> None:
        async with workers.store() as sleeper:
            await sleeper.claim(SITE)
            await sleeper.write(SITE, EARLY)
            taken = {"claims": "2", "owner": "another"}
            sleeper.claims._check = lambda: workers.redis.hset(workers.info, mapping=taken)
            with pytest.raises(redis.WatchError):
                await sleeper.claim(SITE)
            workers.redis.hset(workers.info, mapping={"claims": "1", "owner": sleeper.claims._owner})
            sleeper.claims._check = Taken(workers)
            with pytest.raises(redis.WatchError):
                await sleeper.write(SITE, LATE)
            sleeper.claims._check = lambda: None
            assert workers.redis.hlen(f"{workers.settings.prefix}:{{{SITE}}}:runs:user:ada") == 1
            with pytest.raises(Fenced):  # at the next attempt
                await sleeper.write(SITE, LATE)

    asyncio.run(story())


def test_claim_is_not_renewed_over_a_successor(workers: Workers) -> None:
    async def story() -> None:
        async with workers.store() as fenced, workers.store() as successor:
            assert await fenced.claim(SITE) == 1
            assert await fenced.claim(SITE) == 2, "its own claim it renews"
            assert await successor.claim(SITE) == 3
            with pytest.raises(Fenced):
                await fenced.claim(SITE)
            await successor.write(SITE, LATE)

    asyncio.run(story())


def test_store_of_revoked_partition_raises_revoked(workers: Workers) -> None:
    async def story() -> None:
        client, token = connect(workers.settings), OwnershipToken(0)
        store = SiteStore(client, workers.settings.prefix, token.check)
        await store.claim(SITE)
        await store.write(SITE, EARLY)
        before = workers.dump()
        token.revoke()
        with pytest.raises(Revoked):
            await store.claim(SITE)
        for write in WRITES.values():
            with pytest.raises(Revoked):
                await write(store)
        assert workers.dump() == before
        await client.aclose()

    asyncio.run(story())


def test_forgotten_site_that_returns_is_kept(workers: Workers) -> None:
    async def story() -> None:
        async with workers.store() as store, workers.store() as other:
            await store.claim(SITE)
            await store.forget(SITE)
            assert workers.redis.ttl(workers.info) > 0
            await other.claim(SITE)
            with pytest.raises(Fenced):
                await store.forget(SITE)
            assert workers.redis.ttl(workers.info) == -1

    asyncio.run(story())


def test_store_write_with_lost_reply_is_repeated(workers: Workers) -> None:
    async def story() -> None:
        async with workers.store() as store:
            await store.claim(SITE)
            await store.write(SITE, EARLY)
            store.claims._held[SITE].writes -= 1
            await store.write(SITE, EARLY)
            await store.write(SITE, LATE)

    asyncio.run(story())


@pytest.mark.parametrize("lost", ["a write", "the claim", "everything"])
def test_store_detects_lost_acknowledged_writes(workers: Workers, lost: str) -> None:
    async def story() -> None:
        async with workers.store() as store:
            await store.claim(SITE)
            before = {key: workers.redis.dump(key) for key in workers.redis.scan_iter(f"{workers.settings.prefix}:*")}
            if lost == "the claim":
                await store.claim(SITE)
            await store.write(SITE, EARLY)
            for key in list(workers.redis.scan_iter(f"{workers.settings.prefix}:*")):
                workers.redis.delete(key)
            for key, value in before.items() if lost != "everything" else ():
                workers.redis.restore(key, 0, value)
            after = workers.dump()
            for _ in range(2):
                with pytest.raises(WritesLost):
                    await store.write(SITE, LATE)
            assert workers.dump() == after
            await store.claim(SITE)
            await store.write(SITE, LATE)

    asyncio.run(story())
