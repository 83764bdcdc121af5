"""Who may write a site's entries in Redis, and whether Redis still has what was written last.

A worker claims a site before it reads the site's entries. From then on no other may write them: one that stood still
while its partition became another's finds that out at its next write, however short before it fell asleep. The claim
also counts the writes. A Redis that came back without the last of them (a failover, a crash with
`appendfsync everysec`) is found out in the same way.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
from redis.exceptions import ResponseError

from streams.worker.checkpoint.client import Client, transaction


class Superseded(RuntimeError):
    """Another worker has claimed the site since; this one must not write its entries any more."""


class WritesLost(Exception):
    """Redis has lost what it had acknowledged: entries that a state counts may be missing."""


class Claim(msgspec.Struct):
    """A claim of this process: its number among the site's claims, a name that no other has, and its writes so far."""

    number: int
    owner: str
    writes: int = 0


class Claims:
    """The sites that this process has claimed. In Redis each is in the hash `key(site)`: `claims`, `owner`, `writes`.

    Parameters:
        key: gives that hash's key.
        check: raises when nothing may be written any more.
    """

    def __init__(self, client: Client, key: Callable[[str], str], check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._client = client
        self._key = key
        self._held: dict[str, Claim] = {}

    async def claim(self, site: str, after: int = 0) -> int:
        """Be the one who writes a site's entries, from now on; a site that nobody has claimed before too.

        A claim that was on its way for long never counts more than one that came later.

        Args:
            after: the number of an earlier claim that is known, lest Redis has lost it.

        Returns:
            The number of the claim, greater than those of all earlier ones.

        Raises:
            redis.WatchError: another has claimed it just now.
        """
        key, owner = self._key(site), uuid4().hex
        async with transaction(self._client, key) as pipe:
            await pipe.watch(key)
            found: Any = await pipe.hget(key, "claims")
            number = max(int(found or 0), after) + 1
            self._check()
            pipe.multi()
            pipe.hset(key, mapping={"claims": number, "owner": owner, "writes": 0})
            await pipe.execute()
        self._held[site] = Claim(number, owner)
        with suppress(ResponseError):  # a user of Redis who may not do this could not have it expire either
            await self._client.persist(key)
        return number

    async def execute(self, site: str, fill: Callable[[Any], None]) -> list[Any]:
        """Do what `fill` puts into a transaction, if the site is still this process' own; returns the results.

        Two short questions more than without the check, 0.2 ms together.

        Raises:
            Superseded: another process has claimed the site.
            WritesLost: Redis has lost what this process wrote, or its claim.
            redis.WatchError: the claim has changed just now; trying again tells how.
        """
        claim, key = self._held[site], self._key(site)
        async with transaction(self._client, key) as pipe:
            await pipe.watch(key)
            found: Any = await pipe.hmget(key, ["claims", "owner", "writes"])
            self._check()
            _compare(site, claim, *found)
            pipe.multi()
            fill(pipe)
            pipe.hset(key, "writes", str(claim.writes + 1))
            self._check()  # that took a while: if the partition was revoked then, these are another's by now
            results: list[Any] = await pipe.execute()
        claim.writes += 1
        return results[:-1]


def _compare(site: str, claim: Claim, claims: bytes | None, owner: bytes | None, writes: bytes | None) -> None:
    if owner == claim.owner.encode():
        # One more than is known here was done by an attempt of which the answer did not arrive.
        if int(writes or 0) < claim.writes:
            raise WritesLost(f"it has {int(writes or 0)} of {claim.writes} writes")
    elif int(claims or 0) >= claim.number:
        raise Superseded(f"another worker has taken the site {site!r}; this one writes nothing of it any more")
    else:
        raise WritesLost("it does not know of this worker")
