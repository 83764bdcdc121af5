"""Fencing of Redis writes per site, and detection of lost writes.

A worker claims a site before it reads the site's entries. From then on other workers cannot write them. A worker that
was suspended while its partition moved is fenced at its next write, however short the time before the suspension.

The claim also counts the writes. A Redis that came back without the last writes (a failover, a crash with `appendfsync
everysec`) is detected in the same way.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from redis.exceptions import ResponseError, WatchError

from streams.worker.checkpoint.redis_client import Client, transaction


class Fenced(RuntimeError):
    """Another worker has claimed the site; this worker must not write its entries any more."""


class WritesLost(Exception):
    """Redis has lost acknowledged writes; entries that a state counts may be missing."""


class Claim(msgspec.Struct):
    """A claim by this process: its number among the site's claims, and its number of writes."""

    number: int
    writes: int = 0


class Lease(NamedTuple):
    """A claim as it is in Redis, with its owner."""

    owner: bytes
    number: int
    writes: int

    def is_same(self, claims: bytes | None, owner: bytes | None, writes: bytes | None) -> bool:
        """Compare with the fields of a site's hash in Redis."""
        return owner == self.owner and (int(claims or 0), int(writes or 0)) == (self.number, self.writes)


class FencingLeases:
    """Sites claimed by this process. In Redis each has the hash `key(site)` with `claims`, `owner` and `writes`.

    Args:
        key: Returns the key of this hash.
        check: Raises if this process may no longer write.
    """

    def __init__(self, client: Client, key: Callable[[str], str], check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._client = client
        self._key = key
        self._owner = uuid4().hex.encode()  # unique for each assignment of a partition
        self._held: dict[str, Claim] = {}
        self._inherited: dict[str, Lease] = {}  # of an earlier assignment, until the first claim
        self._continued: set[str] = set()

    def inherit(self, leases: Mapping[str, Lease]) -> None:
        """Set the leases of this process in an earlier assignment of the partition (`is_continued`)."""
        self._inherited.update(leases)

    def is_continued(self, site: str) -> bool:
        """Return whether the inherited lease was unchanged in Redis when this process first claimed the site again.

        Then no other process has written the site's entries in between. False in case of doubt: if the first attempt
        to claim failed, or if Redis has lost writes.
        """
        return site in self._continued

    def lease(self, site: str) -> Lease | None:
        """Return the lease of a site; None if this process has not claimed it."""
        held = self._held.get(site)
        return None if held is None else Lease(self._owner, held.number, held.writes)

    async def claim(self, site: str, after: int = 0) -> int:
        """Become the only writer of a site's entries; also for a site without earlier claims.

        A delayed claim never overrides a later one. A process that has claimed the site before renews its claim only if
        no other process has claimed the site since: otherwise a fenced worker that restores a site late would fence its
        successor.

        Args:
            after: Number of an earlier claim, in case Redis has lost it.

        Returns:
            The number of the claim, greater than those of all earlier ones.

        Raises:
            Fenced: Another process has claimed the site since this one did.
            redis.WatchError: Another process claims the site at the same time.
        """
        key, held, inherited = self._key(site), self._held.get(site), self._inherited.pop(site, None)
        async with transaction(self._client, key) as pipe:
            await pipe.watch(key)
            claims, claimed_by, writes = await pipe.hmget(key, ["claims", "owner", "writes"])
            if held is not None:
                self._check_fencing(site, held, claims, claimed_by)
            number = max(int(claims or 0), after) + 1
            self._check()
            pipe.multi()
            pipe.hset(key, mapping={"claims": number, "owner": self._owner, "writes": 0})
            await pipe.execute()
        self._held[site] = Claim(number)
        self._continued.discard(site)
        if inherited is not None and inherited.is_same(claims, claimed_by, writes):
            self._continued.add(site)
        with suppress(ResponseError):  # a Redis user without this permission cannot set an expiry either
            await self._client.persist(key)
        return number

    async def execute(self, site: str, fill: Callable[[Any], None]) -> list[Any]:
        """Run the commands that `fill` adds in a transaction if this process still holds the claim; return the results.

        The check costs two additional requests to Redis.

        Raises:
            Fenced: Another process has claimed the site.
            WritesLost: Redis has lost writes of this process, or its claim.
            redis.WatchError: The claim has just changed; a retry returns the cause.
        """
        claim, key = self._held[site], self._key(site)
        async with transaction(self._client, key) as pipe:
            await pipe.watch(key)
            found: Any = await pipe.hmget(key, ["claims", "owner", "writes"])
            self._check()
            self._compare(site, claim, *found)
            pipe.multi()
            fill(pipe)
            pipe.hset(key, "writes", str(claim.writes + 1))
            self._check()  # the partition may have been revoked during the requests above
            results: list[Any] = await pipe.execute()
        claim.writes += 1
        return results[:-1]

    def _compare(
        self, site: str, claim: Claim, claims: bytes | None, owner: bytes | None, writes: bytes | None
    ) -> None:
        """Compare a claim with the one in Redis."""
        self._check_fencing(site, claim, claims, owner)
        if owner != self._owner:
            raise WritesLost("it does not know of this worker")
        if int(claims or 0) > claim.number:
            raise WatchError("this process is renewing its claim")
        # Redis may have one write more: an attempt whose answer did not arrive.
        if int(writes or 0) < claim.writes:
            raise WritesLost(f"it has {int(writes or 0)} of {claim.writes} writes")

    def _check_fencing(self, site: str, claim: Claim, claims: bytes | None, owner: bytes | None) -> None:
        """Raise `Fenced` if another process has claimed the site since this one did."""
        if owner != self._owner and int(claims or 0) >= claim.number:
            raise Fenced(f"another worker has taken the site {site!r}; this one writes nothing of it any more")
