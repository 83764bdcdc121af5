"""Fenced writes to the table by the owner of a partition, with retries."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_chain, wait_fixed

from streams.worker.checkpoint.job_log import site_of
from streams.worker.checkpoint.redis_client import AWAY
from streams.worker.checkpoint.stored_site import StoredState, Table, decode_segment, decode_stored

log = logging.getLogger(__name__)


class Revoked(Exception):
    """The partition belongs to another worker now, which receives the uncommitted messages. This is not a fault."""


class OwnershipToken:
    """The right to write data of one partition: created when it is assigned, void once it is revoked.

    Code that writes (to the table, to Redis, an offset) checks the token directly before each write, and again after
    each `await` in between.

    Args:
        alive: Raises if this process may no longer write at all (`Watchdog.check`).
    """

    def __init__(self, partition: int, alive: Callable[[], None] = lambda: None) -> None:
        self.partition = partition
        self.void = False
        self._alive = alive

    def check(self) -> None:
        """Check that this worker owns the partition.

        Raises:
            Revoked: It does not any more.
        """
        if self.void:
            raise Revoked(f"partition {self.partition} has been revoked")
        self._alive()

    def revoke(self) -> None:
        """Forbid all further writes."""
        self.void = True


class StoredSites(NamedTuple):
    """Table contents of one partition: the heads of sites, and the keys of all segments by site."""

    heads: dict[str, StoredState]
    segments: dict[str, list[bytes]]


class OwnedTable:
    """The table with writes that check the token of the partition."""

    def __init__(self, table: Table, token: OwnershipToken) -> None:
        self.get = table.get
        self._table = table
        self._token = token

    def take(self, found: Iterable[tuple[bytes, bytes | None]]) -> StoredSites:
        """Apply changelog records to the table, and return the table contents of the partition."""
        for key, value in found:
            self._table.take(key, value, self._token.partition)
        return stored_sites(self._table, [self._token.partition])[self._token.partition]

    async def put(self, values: Mapping[bytes, bytes | None]) -> None:
        """Set values (None deletes a key); return when the changelog has all of them.

        A record that was passed to the producer cannot be taken back. So a cancelled call returns only after delivery:
        the next owner must not read the changelog before.

        Raises:
            Revoked: Another worker owns the partition; nothing was written.
        """
        self._token.check()
        puts = asyncio.gather(*(self._table.put(key, value, self._token.partition) for key, value in values.items()))
        try:
            await asyncio.shield(puts)
        except asyncio.CancelledError:
            with suppress(Exception):
                await puts
            raise


def stored_sites(table: Table, partitions: Iterable[int]) -> dict[int, StoredSites]:
    """Return the table contents of each of these partitions; O(all keys)."""
    found = {partition: StoredSites({}, {}) for partition in partitions}
    for key in list(table.keys()):
        value, site = table.get(key) or b"", site_of(key)
        if site == key:
            stored = decode_stored(value)
            if stored.partition in found:
                found[stored.partition].heads[key.decode()] = stored
        elif (partition := decode_segment(value).partition) in found:
            found[partition].segments.setdefault(site.decode(), []).append(key)
    return found


def keys_of_other_partitions(table: Table, partitions: Container[int]) -> list[bytes]:
    """Return the keys of all other partitions; O(all keys)."""

    def partition(key: bytes) -> int:
        value = table.get(key) or b""
        return decode_stored(value).partition if site_of(key) == key else decode_segment(value).partition

    return [key for key in list(table.keys()) if partition(key) not in partitions]


T = TypeVar("T")

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)  # retry intervals for an unreachable server, seconds; the last one is repeated


class Retries:
    """Retry a server request until it succeeds, because no step may be skipped.

    Args:
        before: Called before each attempt; an error that it raises ends the retries.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self.obstacle: str | None = None  # the server that is being retried, and its error; None if there is none
        self._before = before

    async def until_done(self, what: str, site: str | None, work: Callable[..., Awaitable[T]], *given: Any) -> T:
        """Retry `work` with these arguments until it succeeds, and return its result."""

        async def attempt() -> T:
            return await work(*given)  # tenacity would not await the result of a plain function

        def failed(state: RetryCallState) -> None:
            error = state.outcome and state.outcome.exception()
            self.obstacle = f"{what} failed: {error}" if site is None else f"{what} {site} failed: {error}"
            log.warning("%s failed (%s); retrying in %.1f s", what, error, state.upcoming_sleep, extra={"site": site})

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(AWAY),
            wait=wait_chain(*map(wait_fixed, RETRY_S)),
            before=lambda _: self._before(),
            before_sleep=failed,
        )
        done: T = await attempts(attempt)
        self.obstacle = None
        return done
