"""What is stored in Redis: each site's history of started jobs, and of run times by category.

Keys (`site` and the category's parts percent-encoded, so that no name can reach outside its own key):

    PREFIX:{site}:history              hash  number of the job in the history → models.site.history.Started
    PREFIX:{site}:runs:CATEGORY        hash  number of the run → models.site.runs.Run; CATEGORY is TEMPLATE:VALUE:VALUE…
    PREFIX:{site}:categories           set   the CATEGORYs that have runs
    PREFIX:{site}:rows:METHOD          hash  number of the row → what a method wrote into it (models.site.rows.Rows)
    PREFIX:{site}:methods              set   the METHODs that have rows

Values are msgpack arrays. A site's keys share a hash tag, so that they may be written as one transaction in a cluster.
An entry's number is given by the fold over the site's events: an event that is seen again writes the same entry to the
same place, and none twice. The history holds the last `engine.history` jobs, the runs what `RunHistory` keeps, a
method's rows as many as it remembers.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import redis.asyncio
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from models.engine.checkpoint import Changes, SavedState, decode_array, encode_array, kept_runs
from models.site.history import Started
from models.site.rows import Row
from models.site.runs import Category, Run
from streams.errors import UNTRUSTED, Unreachable, UserError
from streams.settings import RedisSettings

_encode = msgspec.msgpack.Encoder(enc_hook=encode_array).encode
_decode_started = msgspec.msgpack.Decoder(Started, dec_hook=decode_array).decode
_decode_run = msgspec.msgpack.Decoder(Run).decode


class Stored(msgspec.Struct):
    """What the store holds of a site beside its state: jobs that started, run times, and methods' own rows."""

    started: list[Started]
    runs: list[Run]
    rows: dict[str, list[Row]] = {}


def connect(settings: RedisSettings, timeout: float = 30.0) -> "redis.asyncio.Redis":
    """A client for the Redis that the settings name; it connects when it is first used.

    Parameters:
        timeout: seconds within which it must answer.

    Raises:
        UserError: the URL is not one of Redis.
    """
    options: dict[str, Any] = {"username": settings.username, "password": settings.password}
    if settings.url.startswith("rediss:") and settings.ca_file:
        options["ssl_ca_certs"] = settings.ca_file
    given = {name: value for name, value in options.items() if value is not None}
    try:
        return redis.asyncio.Redis.from_url(
            settings.url, socket_connect_timeout=min(timeout, 5.0), socket_timeout=timeout, **given
        )
    except ValueError as error:
        raise UserError(f"redis: url: {error}") from None


async def check_redis(settings: RedisSettings) -> None:
    """Make sure that Redis answers.

    Raises:
        Unreachable: it does not; the message says where it was looked for, without the password.
        UserError: it refuses, or is not trusted.
    """
    client = connect(settings)
    try:
        await client.ping()
    except (RedisError, OSError) as error:
        kind = UserError if _refused(error) else Unreachable
        raise kind(f"redis at {_address(settings.url)}: {_explained(error)}") from None
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


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}"


class SiteStore:
    """Reads and writes the histories of sites."""

    def __init__(self, client: "redis.asyncio.Redis", prefix: str) -> None:
        self._client = client
        self._prefix = prefix

    def key(self, site: str, *parts: str) -> str:
        """The Redis key of a part of a site; `parts` are encoded already."""
        return ":".join((self._prefix, f"{{{_quoted(site)}}}", *parts))

    async def write(self, site: str, changes: Changes) -> None:
        """Add what was learnt, in one transaction; writing it twice changes nothing. About 15 µs a job."""
        by_category = _by_category(changes.runs)
        async with self._client.pipeline(transaction=True) as pipe:
            if changes.started:
                rows = {row.number: _encode(row) for row in changes.started}
                pipe.hset(self.key(site, "history"), mapping=rows)  # type: ignore[arg-type]
            for category, runs in by_category.items():
                entries = {run.number: _encode(run) for run in runs}
                pipe.hset(self.key(site, "runs", category), mapping=entries)  # type: ignore[arg-type]
            if by_category:
                pipe.sadd(self.key(site, "categories"), *by_category)
            for method, own in changes.rows.items():
                if own:
                    values = {row.number: row.value for row in own}
                    pipe.hset(self.key(site, "rows", _quoted(method)), mapping=values)  # type: ignore[arg-type]
                    pipe.sadd(self.key(site, "methods"), _quoted(method))
            await pipe.execute()

    async def trim(self, site: str, oldest: int, changes: Changes) -> None:
        """Delete what fell out: started jobs before number `oldest`, and forgotten runs.

        To be called only once a state that does without them is durable.
        """
        async with self._client.pipeline(transaction=True) as pipe:
            gone = range(max(oldest - len(changes.started), 0), max(oldest, 0))
            if gone:
                pipe.hdel(self.key(site, "history"), *map(str, gone))
            for category, runs in _by_category(changes.forgotten_runs).items():
                pipe.hdel(self.key(site, "runs", category), *(str(run.number) for run in runs))
            for method, own in changes.rows.items():
                oldest_row = changes.oldest[method]
                gone = range(max(oldest_row - len(own), 0), oldest_row)
                if gone:
                    pipe.hdel(self.key(site, "rows", _quoted(method)), *map(str, gone))
            if len(pipe):
                await pipe.execute()

    async def load(self, site: str, saved: SavedState, history: int) -> Stored:
        """The entries that a saved state counts. Others, from beyond it or forgotten before it, are deleted."""
        rows: list[Any] = await self._client.hvals(self.key(site, "history"))
        started = [_decode_started(row) for row in rows]
        runs = await self._runs(site)
        kept_started = [row for row in started if saved.started - history <= row.number < saved.started]
        kept = kept_runs(saved, runs)
        await self._delete(site, started, kept_started, runs, kept)
        return Stored(kept_started, kept, {name: await self._rows(site, name, saved) for name in saved.rows})

    async def _rows(self, site: str, method: str, saved: SavedState) -> list[Row]:
        key = self.key(site, "rows", _quoted(method))
        found: dict[Any, Any] = await self._client.hgetall(key)
        rows = [Row(int(number), value) for number, value in found.items()]
        kept = [row for row in rows if saved.rows[method].oldest <= row.number < saved.rows[method].count]
        if len(kept) < len(rows):
            numbers = {row.number for row in kept}
            await self._client.hdel(key, *(str(row.number) for row in rows if row.number not in numbers))
        return kept

    async def _runs(self, site: str) -> list[Run]:
        categories = await self._names(site, "categories")
        async with self._client.pipeline(transaction=False) as pipe:
            for category in categories:
                pipe.hvals(self.key(site, "runs", category))
            found = await pipe.execute()
        empty = [category for category, values in zip(categories, found, strict=True) if not values]
        if empty:
            await self._client.srem(self.key(site, "categories"), *empty)
        return [_decode_run(value) for values in found for value in values]

    async def _names(self, site: str, kind: str) -> list[str]:
        members: set[Any] = await self._client.smembers(self.key(site, kind))
        return sorted(member.decode() for member in members)

    async def _delete(
        self, site: str, started: list[Started], kept_started: list[Started], runs: list[Run], kept: list[Run]
    ) -> None:
        rows = {row.number for row in started} - {row.number for row in kept_started}
        numbers = {run.number for run in kept}
        async with self._client.pipeline(transaction=True) as pipe:
            if rows:
                pipe.hdel(self.key(site, "history"), *map(str, sorted(rows)))
            for category, gone in _by_category(run for run in runs if run.number not in numbers).items():
                pipe.hdel(self.key(site, "runs", category), *(str(run.number) for run in gone))
            if len(pipe):
                await pipe.execute()

    async def forget(self, site: str) -> None:
        """Delete everything of a site."""
        keys = [self.key(site, "runs", category) for category in await self._names(site, "categories")]
        keys += [self.key(site, "rows", method) for method in await self._names(site, "methods")]
        lists = [self.key(site, name) for name in ("history", "categories", "methods")]
        await self._client.delete(*lists, *keys)


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _category(category: Category) -> str:
    return ":".join(map(_quoted, category))


def _by_category(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[_category(run.category)].append(run)
    return found
