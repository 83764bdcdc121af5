"""Data in Redis: each site's history of started jobs, and of run times by category.

Keys (`site` and the category's parts percent-encoded, so that no name can reach outside its own key):

    PREFIX:{site}:history              hash  number of the job in the history → models.site.history.Started
    PREFIX:{site}:runs:CATEGORY        hash  number of the run → models.site.runs.Run; CATEGORY is TEMPLATE:VALUE:VALUE…
    PREFIX:{site}:categories           set   the CATEGORYs that have runs
    PREFIX:{site}:rows:METHOD          hash  number of the row → data of a method (models.site.rows.Rows)
    PREFIX:{site}:methods              set   the METHODs that have rows
    PREFIX:{site}:gN:…                 the same for generation N ≥ 1; the keys above are of generation 0
    PREFIX:{site}:info                 hash  generation → the latest one; claims, owner, writes → fencing
                                             (streams/worker/checkpoint/claims.py)
    PREFIX:partitions                  hash  events topic → its number of partitions when sites were first stored
    PREFIX:crashes:N                   hash  of partition N: mark → the current work that may crash
                                             (`crashes.CrashMark`), owner → the worker that may change it
    PREFIX:health                      hash  last → 1; written to check that Redis accepts writes

Values are msgpack arrays. A site's keys share a hash tag, so that a cluster can write them in one transaction.

The sequence of the site's events determines the number of an entry. So a redelivered event writes the same entry to the
same key, and none twice. The history holds the last `engine.history` jobs. The runs are those that `RunHistory` keeps,
and the rows those that a method keeps.
"""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec
from redis.exceptions import ResponseError

from models.engine.histories import Changes
from models.engine.saved_state import SavedState, decode_array, encode_array
from models.site.history import StartedJob
from models.site.rows import Row
from models.site.runs import Run
from streams.worker.checkpoint.claims import FencingLeases, WritesLost
from streams.worker.checkpoint.key_types import is_wrong_type, set_aside
from streams.worker.checkpoint.redis_client import Client, transaction

log = logging.getLogger(__name__)
BASE_KEYS = ("history", "categories", "methods")  # the index keys of a site, which name its other keys
TRANSACTION_COMMANDS = 100  # maximum number of commands per transaction
SCAN_MEMBERS = 2000  # members of a set per read
RETIRED_S = 30 * 86_400  # expiry of entries that no state counts, seconds
T = TypeVar("T")
Command = tuple[Any, ...]  # a Redis command and its arguments
_encode = msgspec.msgpack.Encoder(enc_hook=encode_array).encode
_decode_started = msgspec.msgpack.Decoder(StartedJob, dec_hook=decode_array).decode
_decode_run = msgspec.msgpack.Decoder(Run).decode


class HistoryEntries(msgspec.Struct):
    """Entries of a site in Redis, in addition to its state: started jobs, run times, and rows of methods."""

    started: list[StartedJob]
    runs: list[Run]
    rows: dict[str, list[Row]] = {}


class SiteStore:
    """Read and write the histories of sites.

    A site's entries have a `generation`, which its state names. A site that starts again although there are entries
    under its name uses a new generation, so that it never reads the old entries.

    Before a site's entries are read or written, the site must be claimed (`claim`). Writes raise `Fenced` once
    another process has claimed the site, and `WritesLost` if Redis has lost earlier writes; see `claims`.

    Args:
        check: Called directly before each write; raises if this process may no longer write.
    """

    def __init__(self, client: Client, prefix: str, check: Callable[[], None] = lambda: None) -> None:
        self.claims = FencingLeases(client, lambda site: self.key(site, "info"), check)
        self._client = client
        self._check = check
        self._prefix = prefix

    def key(self, site: str, *parts: str, generation: int = 0) -> str:
        """Return the Redis key of a part of a site; `parts` are already encoded."""
        own = (f"g{generation}",) if generation else ()
        return ":".join((self._prefix, f"{{{_quoted(site)}}}", *own, *parts))

    async def claim(self, site: str, after: int = 0) -> int:
        """Become the only writer of a site's entries; return the number of the claim (`FencingLeases.claim`)."""
        return await self._of_types([self.key(site, "info")], lambda: self.claims.claim(site, after))

    async def _of_types(self, keys: Collection[str], work: Callable[[], Awaitable[T]]) -> T:
        """Run work that reads keys; retry once after keys of the wrong type were renamed."""
        try:
            return await work()
        except ResponseError as error:
            if not is_wrong_type(error):
                raise
            await set_aside(self._client, keys)
            return await work()

    async def mark(self, partition: int) -> bytes | None:
        """Return the crash mark of a partition (`CrashTracker`)."""
        key = self._marks(partition)
        found: Any = await self._of_types([key], lambda: self._client.hget(key, "mark"))
        return None if found is None else bytes(found)

    async def take_mark(self, partition: int, owner: str, mark: bytes) -> None:
        """Become the owner of a partition's crash mark, and set it; idempotent."""
        self._check()
        await self._client.hset(self._marks(partition), mapping={"owner": owner, "mark": mark})

    async def set_mark(self, partition: int, owner: str, mark: bytes | None, released: bool = False) -> None:
        """Set the crash mark of a partition unless another worker owns it; None deletes it.

        Args:
            released: Give up the ownership, so that a later write of this worker changes nothing.
        """
        key = self._marks(partition)
        async with transaction(self._client, key) as pipe:
            await pipe.watch(key)
            found: bytes | None = await pipe.hget(key, "owner")
            if found not in (None, owner.encode()):
                return
            self._check()
            pipe.multi()
            pipe.hset(key, "owner", "" if released else owner)
            pipe.hdel(key, "mark") if mark is None else pipe.hset(key, "mark", mark)
            await pipe.execute()

    def _marks(self, partition: int) -> str:
        return f"{self._prefix}:crashes:{partition}"

    async def write(self, site: str, changes: Changes, generation: int = 0) -> None:
        """Add new entries; idempotent. O(changes).

        Index keys are written first, so that entries from a crash between two transactions can be found.
        """
        key, by_category = partial(self.key, site, generation=generation), _by_category(changes.runs)
        rows = {_quoted(method): own for method, own in changes.rows.items() if own}
        named: dict[str, Collection[str]] = {key("categories"): by_category, key("methods"): rows}
        commands: list[Command] = [("SADD", name, *members) for name, members in named.items() if members]
        if changes.started:
            commands.append(_set(key("history"), ((row.number, _encode(row)) for row in changes.started)))
        for category, runs in by_category.items():
            commands.append(_set(key("runs", category), ((run.number, _encode(run)) for run in runs)))
        for method, own in rows.items():
            commands.append(_set(key("rows", method), ((row.number, row.value) for row in own)))
        await self._execute(site, commands)

    async def _execute(self, site: str, commands: Sequence[Command]) -> list[Any]:
        """Run commands in bounded transactions, and return their results; other tasks run in between."""
        found = []
        for begin in range(0, len(commands), TRANSACTION_COMMANDS):
            some = commands[begin : begin + TRANSACTION_COMMANDS]
            try:
                found += await self.claims.execute(site, partial(_fill, some))
            except ResponseError as error:
                if not is_wrong_type(error):
                    raise
                await set_aside(self._client, dict.fromkeys(command[1] for command in some))
                raise WritesLost(f"a key was of another type: {error}") from None
        return found

    async def trim(self, site: str, oldest: int, changes: Changes, generation: int = 0) -> None:
        """Delete started jobs before number `oldest`, forgotten runs, old rows, and empty categories.

        Call this only once a state that does not need them is durable.
        """
        key = partial(self.key, site, generation=generation)
        forgotten = _by_category(changes.forgotten_runs)
        gone: dict[str, Iterable[int]] = {key("history"): range(max(oldest - len(changes.started), 0), max(oldest, 0))}
        for method, own in changes.rows.items():
            first = changes.oldest[method]
            gone[key("rows", _quoted(method))] = range(max(first - len(own), 0), first)
        gone |= {key("runs", category): [run.number for run in runs] for category, runs in forgotten.items()}
        commands = [*_deletions(gone), *(("HLEN", key("runs", category)) for category in forgotten)]
        sizes = (await self._execute(site, commands))[len(commands) - len(forgotten) :]
        empty = [name for name, runs in zip(forgotten, sizes, strict=True) if not runs]
        await self._drop_categories(site, key("categories"), empty)

    async def _drop_categories(self, site: str, key: str, empty: list[str]) -> None:
        """Remove categories without runs from the set, which would otherwise grow forever with unique executables."""
        if empty:
            await self.claims.execute(site, lambda pipe: pipe.srem(key, *empty))

    async def read(self, site: str, generation: int = 0) -> HistoryEntries:
        """Read all entries of a generation, even those that no state counts, in steps of bounded size."""
        base = [self.key(site, name, generation=generation) for name in BASE_KEYS]
        return await self._of_types(base, lambda: self._read(site, generation))

    async def _read(self, site: str, generation: int) -> HistoryEntries:
        key = partial(self.key, site, generation=generation)
        rows: list[Any] = await self._client.hvals(key("history"))
        runs: dict[int, Run] = {}
        async for categories in self._scan(key("categories")):
            named = [key("runs", category) for category in categories]
            found = await self._of_types(named, partial(self._values, named))
            runs.update((run.number, run) for values in found for run in map(_decode_run, values))
            empty = [category for category, values in zip(categories, found, strict=True) if not values]
            await self._drop_categories(site, key("categories"), empty)
        own = {}
        async for methods in self._scan(key("methods")):
            for method in methods:
                place = key("rows", method)
                entries: dict[Any, Any] = await self._of_types([place], partial(self._client.hgetall, place))
                own[unquote(method)] = [Row(int(number), value) for number, value in entries.items()]
        return HistoryEntries([_decode_started(row) for row in rows], list(runs.values()), own)

    async def _values(self, keys: list[str]) -> list[list[Any]]:
        async with self._client.pipeline(transaction=False) as pipe:
            for key in keys:
                pipe.hvals(key)
            return list(await pipe.execute())

    async def _scan(self, key: str) -> AsyncIterator[list[str]]:
        """Yield the members of a set in batches; a member may come twice."""
        cursor: int | None = None
        while cursor != 0:
            found: Any = await self._client.sscan(key, cursor or 0, count=SCAN_MEMBERS)
            cursor, members = found
            if members:
                yield sorted(member.decode() for member in members)

    async def clean(self, site: str, stored: HistoryEntries, kept: HistoryEntries, generation: int = 0) -> None:
        """Delete entries that were read but are not kept."""
        key = partial(self.key, site, generation=generation)
        rows = {row.number for row in stored.started} - {row.number for row in kept.started}
        numbers = {run.number for run in kept.runs}
        gone = {key("history"): rows}
        for category, runs in _by_category(run for run in stored.runs if run.number not in numbers).items():
            gone[key("runs", category)] = {run.number for run in runs}
        for method, own in stored.rows.items():
            more = {row.number for row in own} - {row.number for row in kept.rows.get(method, ())}
            gone[key("rows", _quoted(method))] = more

        await self._execute(site, _deletions(gone))

    async def begin(self, site: str, after: int = -1) -> int:
        """Return an unused generation for a site that starts again. Existing entries are set to expire.

        Args:
            after: Generation that a stored state counts. It is not used again even if Redis has lost its entries: both
                number them from 0.
        """
        found = generation = int(await self._client.hget(self.key(site, "info"), "generation") or 0)
        while (has_entries := await self._has_entries(site, generation)) or generation <= after:
            if has_entries:
                await self.retire(site, generation)
            generation += 1
        if generation != found:
            self._check()
            await self._client.hset(self.key(site, "info"), "generation", str(generation))
        return generation

    async def _has_entries(self, site: str, generation: int) -> bool:
        key = partial(self.key, site, generation=generation)

        async def count() -> bool:
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.hlen(key("history"))
                pipe.scard(key("categories"))
                pipe.scard(key("methods"))
                return any(await pipe.execute())

        return await self._of_types([key(name) for name in BASE_KEYS], count)

    async def retire(self, site: str, generation: int) -> None:
        """Let the keys of a generation that no state counts expire after a month, as a backup may count them."""
        try:
            async for keys in self._keys(site, generation):
                await self.claims.execute(site, partial(_expire, keys))
        except ResponseError as error:  # a Redis user without this permission; nothing depends on it
            log.warning("Cannot set expiry of old entries in Redis: %s", error, extra={"site": site})

    async def take_back(self, site: str, generation: int) -> None:
        """Remove the expiry of a retired generation, because a state counts it after all."""
        try:
            self._check()
            base = [self.key(site, name, generation=generation) for name in BASE_KEYS]
            if any([await self._client.persist(key) for key in base]):
                async for keys in self._keys(site, generation):
                    async with self._client.pipeline(transaction=False) as pipe:
                        for key in keys:
                            pipe.persist(key)
                        await pipe.execute()
        except ResponseError:  # a user without this permission could not set an expiry either
            return

    async def forget(self, site: str, generation: int = 0) -> None:
        """Delete all entries of a site's generation; its claims expire after a month."""
        async for keys in self._keys(site, generation):
            await self.claims.execute(site, partial(_delete, keys))
        with suppress(ResponseError):  # a Redis user without this permission
            await self.claims.execute(site, partial(_expire, [self.key(site, "info")]))

    async def _keys(self, site: str, generation: int) -> AsyncIterator[list[str]]:
        """Yield all keys of a generation in batches, the index keys last."""
        key = partial(self.key, site, generation=generation)
        async for categories in self._scan(key("categories")):
            yield [key("runs", category) for category in categories]
        async for methods in self._scan(key("methods")):
            yield [key("rows", method) for method in methods]
        yield [key(name) for name in BASE_KEYS]


def included(stored: HistoryEntries, saved: SavedState, history: int) -> HistoryEntries:
    """Return the entries that a saved state counts. Others are newer than the state, or were dropped before it."""
    counted = saved.histories
    return HistoryEntries(
        [row for row in stored.started if counted.started - history <= row.number < counted.started],
        counted.kept_runs(stored.runs),
        {
            name: [row for row in stored.rows.get(name, ()) if kept.oldest <= row.number < kept.count]
            for name, kept in counted.rows.items()
        },
    )


def _set(key: str, entries: Iterable[tuple[int, bytes]]) -> Command:
    """Return the command that sets entries of a hash."""
    return ("HSET", key, *chain.from_iterable(entries))


def _deletions(gone: Mapping[str, Iterable[int]]) -> list[Command]:
    """Return the commands that delete entries, by the key of their hash."""
    return [("HDEL", key, *numbers) for key, entries in gone.items() if (numbers := sorted(entries))]


def _fill(commands: Iterable[Command], pipe: Any) -> None:
    for command in commands:
        pipe.execute_command(*command)


def _expire(keys: list[str], pipe: Any) -> None:
    for key in keys:
        pipe.expire(key, RETIRED_S)


def _delete(keys: list[str], pipe: Any) -> None:
    pipe.delete(*keys)


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _by_category(runs: Iterable[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[":".join(map(_quoted, run.category))].append(run)
    return found
