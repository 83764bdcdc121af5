"""The half of a checkpoint that is in Redis: a site's entries are written and trimmed, whatever Redis has lost."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from models.engine.histories import Changes
from streams.worker.checkpoint.claims import WritesLost
from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.retries import Retries
from streams.worker.checkpoint.store import SiteStore
from streams.worker.checkpoint.stored import decode_stored

log = logging.getLogger(__name__)


class SiteChanges(NamedTuple):
    """What is to be stored in Redis of a site: its changes since its last checkpoint."""

    site: str
    changes: Changes
    oldest: int
    generation: int


class Histories:
    """Stores what sites have learnt, and waits for Redis while it is away.

    Where Redis turns out to have lost its last writes, which it had acknowledged (a failover), they are made good from
    an earlier state and the events since then: nothing was deleted since, so that state's entries are all there.

    Parameters:
        stored: gives a site's stored state as the table has it; None where there is none.
    """

    def __init__(
        self, store: SiteStore, loader: SiteLoader, retries: Retries, stored: Callable[[str], bytes | None]
    ) -> None:
        self._store = store
        self._loader = loader
        self._until_done = retries.until_done
        self._stored = stored

    async def write(self, one: SiteChanges) -> None:
        """Add a site's new entries."""
        work = partial(self._store.write, one.site, one.changes, one.generation)
        await self._do("redis: writing", one.site, work)

    async def trim(self, one: SiteChanges) -> None:
        """Delete what the site's stored state does without."""
        work = partial(self._store.trim, one.site, one.oldest, one.changes, one.generation)
        await self._do("redis: trimming", one.site, work)

    async def forget(self, site: str, generation: int) -> None:
        """Delete all of a site."""
        await self._do("redis: clearing", site, partial(self._store.forget, site, generation))

    async def _do(self, what: str, site: str, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                return await self._until_done(what, work, site)
            except WritesLost as error:
                log.error("Redis has lost what was written last: %s", error, extra={"site": site})
                await self._make_good(site)

    async def _make_good(self, site: str) -> None:
        """Claim a site again, and have Redis hold again all that the site's stored state counts.

        Raises:
            RuntimeError: that cannot be. Who starts afresh goes on with what is left, and says so.
        """
        value = self._stored(site)
        if value is None:
            return await self._until_done("redis: claiming", partial(self._store.claim, site), site)
        stored = decode_stored(value)
        handle, mended = await self._loader.load(site, stored)
        if handle.generation != stored.generation:
            raise RuntimeError(f"Redis has lost entries of the site {site!r} that cannot be made again from its events")
        if mended:
            changes, oldest = handle.engine.take_changes(), handle.engine.context.history.oldest
            again = SiteChanges(site, changes, oldest, stored.generation)
            await self.write(again)
            await self.trim(again)
