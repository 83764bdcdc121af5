"""Store of histories on a real Redis: entries round-trip once, and other keys are unchanged."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis

from deploy.local.stack import LocalStack, Redis, free_port
from models.engine.engine import Engine
from models.engine.histories import Changes
from models.engine.saved_state import SavedState, read_saved
from models.engine.settings import EngineSettings
from models.runtimes.closest import Closest
from models.site.job import Job
from models.site.rows import Row
from models.site.runs import Run, RunHistory
from streams.errors import UserError
from streams.settings import RedisSettings
from streams.worker.checkpoint.claims import WritesLost
from streams.worker.checkpoint.redis_client import check_redis, connect
from streams.worker.checkpoint.store import SCAN_MEMBERS, TRANSACTION_COMMANDS, HistoryEntries, SiteStore, included
from tests.support.deployment import parts, simulated

T = TypeVar("T")
SETTINGS = EngineSettings(method="median", shadows=(), history=50)


class Store:
    """A store with a separate prefix: run single calls, and dump its Redis entries."""

    def __init__(self, url: str) -> None:
        self.settings = RedisSettings(url=url, prefix=f"t{uuid.uuid4().hex[:8]}")
        self.redis: Any = redis.Redis.from_url(url)

    def do(self, work: Callable[[SiteStore], Awaitable[T]], site: str = "alder") -> T:
        async def run() -> T:
            client = connect(self.settings)
            try:
                own = SiteStore(client, self.settings.prefix)
                await own.claim(site)
                return await work(own)
            finally:
                await client.aclose()

        return asyncio.run(run())

    def write(self, site: str, changes: Changes) -> None:
        self.do(lambda store: store.write(site, changes), site)

    def trim(self, engine: Engine, changes: Changes) -> None:
        self.do(lambda store: store.trim(engine.site, engine.context.history.oldest, changes), engine.site)

    def load(self, site: str, saved: SavedState) -> HistoryEntries:
        """Return the entries counted by a state; the rest is deleted."""

        async def load(store: SiteStore) -> HistoryEntries:
            stored = await store.read(site)
            kept = included(stored, saved, SETTINGS.history)
            await store.clean(site, stored, kept)
            return kept

        return self.do(load, site)

    def dump(self, pattern: str = "*") -> dict[bytes, Any]:
        """Return all entries under the prefix except the claims."""
        keys = self.redis.scan_iter(f"{self.settings.prefix}:{pattern}", count=1000)
        keys = [key for key in keys if not key.endswith(b":info")]
        read = {b"hash": self.redis.hgetall, b"set": self.redis.smembers}
        return {key: read[self.redis.type(key)](key) for key in keys}


@pytest.fixture
def store(local_stack: LocalStack, request: pytest.FixtureRequest) -> Iterator[Store]:
    found = Store(local_stack.redis.url + getattr(request, "param", ""))
    yield found
    found.redis.close()


def test_long_change_is_written_in_several_transactions(store: Store) -> None:
    users = 2 * TRANSACTION_COMMANDS + 10
    runs = [Run(number, ("user", f"u{number}"), 60.0, None, 1) for number in range(users)]

    async def write_and_forget(own: SiteStore) -> tuple[HistoryEntries, list[int]]:
        writes = []
        await own.write("alder", Changes(runs=runs))
        writes.append(own.claims._held["alder"].writes)
        found = await own.read("alder")
        await own.trim("alder", 0, Changes(forgotten_runs=runs))
        writes.append(own.claims._held["alder"].writes)
        return found, writes

    found, writes = store.do(write_and_forget)
    assert sorted(found.runs, key=lambda run: run.number) == runs
    assert writes == [3, 3 + 5 + 1]  # deletion takes two commands per run, then the categories are deleted
    assert store.dump() == {}


def test_crash_between_transactions_keeps_written_entries(store: Store) -> None:
    runs = [Run(number, ("user", f"u{number}"), 60.0, None, 1) for number in range(2 * TRANSACTION_COMMANDS)]

    async def crash(own: SiteStore) -> None:
        execute, calls = own.claims.execute, iter([None])

        async def once(*arguments: Any) -> list[Any]:
            next(calls)
            return await execute(*arguments)

        own.claims.execute = once  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):  # a StopIteration in a coroutine
            await own.write("alder", Changes(runs=runs))

    store.do(crash)
    assert store.dump("*:runs:*")
    store.do(lambda found: found.forget("alder"))
    assert store.dump() == {}


@pytest.mark.parametrize("store", ["?protocol=2", "?protocol=3"], indirect=True)
def test_engine_stored_incrementally_is_restored_identically(store: Store) -> None:
    engine = Engine("alder", SETTINGS)
    for part in parts(simulated("alder", 300), 9):
        for event in part:
            engine.apply(event)
        state, changes = engine.checkpoint()
        store.write("alder", changes)
        before = store.dump()
        store.write("alder", changes)
        assert store.dump() == before
        store.trim(engine, changes)
        stored = store.load("alder", read_saved(state))
        again = Engine.load(state, stored.started, stored.runs, SETTINGS, stored.rows)
        assert len(stored.started) == min(engine.context.history.count, SETTINGS.history)
        assert again.context.history.count == engine.context.history.count
        assert (again.context.history.waits == engine.context.history.waits).all()
        assert again.context.runs.categories == engine.context.runs.categories
        engine = again


def test_store_stalled_while_encoding_writes_no_entry(store: Store) -> None:
    def stood_still() -> None:
        raise RuntimeError("this process stood still")

    async def write(own: SiteStore) -> None:
        own.claims._check = stood_still
        await own.write("alder", Changes(runs=[Run(1, ("user", "ada"), 60.0, None, 1)]))

    with pytest.raises(RuntimeError):
        store.do(write)
    assert not store.dump()


def test_store_deletes_entries_after_the_stored_state(store: Store) -> None:
    engine, (first, second) = Engine("alder", SETTINGS), parts(simulated("alder", 300), 2)
    for event in first:
        engine.apply(event)
    state, changes = engine.checkpoint()
    store.write("alder", changes)
    store.trim(engine, changes)
    before, known = store.dump(), store.load("alder", read_saved(state))
    for event in second:
        engine.apply(event)
    _, later = engine.checkpoint()
    store.write("alder", later)  # crash before the state is stored
    stored = store.load("alder", read_saved(state))
    assert comparable(stored) == comparable(known)
    left = store.dump()
    categories = {name for name in left if name.endswith(b":categories")}
    assert {name: entries for name, entries in left.items() if name not in categories} == {
        name: entries for name, entries in before.items() if name not in categories
    }
    store.load("alder", read_saved(state))  # now the empty categories are found
    assert store.dump() == before


def comparable(stored: HistoryEntries) -> tuple[list[tuple[object, ...]], list[Run]]:
    """Return rows and runs in order, in comparable form without arrays."""
    found = [(row.number, row.wait_s, row.features.tobytes()) for row in stored.started]
    return sorted(found), sorted(stored.runs, key=lambda run: run.number)


def test_store_keeps_entries_of_previous_state_until_trim(store: Store) -> None:
    engine = Engine("alder", SETTINGS)
    first, second = parts(simulated("alder", 300), 2)
    for event in first:
        engine.apply(event)
    state, changes = engine.checkpoint()
    store.write("alder", changes)
    for event in second:
        engine.apply(event)
    _, later = engine.checkpoint()
    assert later.forgotten_runs
    store.write("alder", later)
    stored = store.load("alder", read_saved(state))
    assert len(stored.started) == SETTINGS.history
    assert len(stored.runs) == read_saved(state).histories.runs_kept


HOSTILE = ("a", "a:history", "a}", "{a}", "*", "a:runs:site", "ä\n\x00", "%41", "a b", "🌲" * 64)


def test_store_separates_sites_with_special_names(store: Store) -> None:
    for site in HOSTILE:
        job = Job(id="1", attempt=0, submit=0.0, user=site, queue="a:b", executable="x}", cpus=2)
        new, _ = RunHistory(Closest.templates).learn(job, 10.0)
        store.write(site, Changes(runs=new))
    everything = store.dump()
    assert len([name for name in everything if name.endswith(b":categories")]) == len(HOSTILE)
    for site in HOSTILE:
        own = store.do(lambda found, site=site: found.read(site), site).runs  # type: ignore[misc]
        assert [run.category[-1] for run in own if run.category[0] == "user"] == [site]
        assert len(own) == len(new)  # one for each category of the job
    for gone, site in enumerate(HOSTILE, 1):
        store.do(lambda found, site=site: found.forget(site), site)  # type: ignore[misc]
        left = store.dump()
        assert len([name for name in left if name.endswith(b":categories")]) == len(HOSTILE) - gone
        assert all(left[name] == everything[name] for name in left)
    assert store.dump() == {}


def test_unusable_redis_error_hides_the_password(require_stack: None, tmp_path: Path) -> None:
    def error_of(url: str) -> str:
        with pytest.raises(UserError) as error:
            asyncio.run(check_redis(RedisSettings(url=url)))
        return str(error.value)

    port = free_port()
    assert error_of(f"redis://:hunter2@127.0.0.1:{port}/0").startswith(f"redis at 127.0.0.1:{port}: ")
    with Redis(tmp_path, password="open sesame") as server:
        asyncio.run(check_redis(RedisSettings(url=server.url)))
        for url in (f"redis://127.0.0.1:{server.port}/0", f"redis://:hunter2@127.0.0.1:{server.port}/0"):
            message = error_of(url)
            assert message.startswith(f"redis at 127.0.0.1:{server.port}: ")
            assert "hunter2" not in message
            assert "sesame" not in message


def test_store_deletes_category_without_runs(store: Store) -> None:
    history = RunHistory(Closest.templates, breadth=20)
    for number in range(200):  # each with a different executable
        job = Job(id=str(number), attempt=0, submit=0.0, user="ada", executable=f"job_{number}.sh", cpus=2)
        new, gone = history.learn(job, 10.0)
        changes = Changes(runs=new, forgotten_runs=gone)
        store.write("alder", changes)
        store.do(lambda found, changes=changes: found.trim("alder", 0, changes))  # type: ignore[misc]
    (members,) = store.dump("*:categories").values()
    assert len(members) == len(history.categories) <= 20
    assert len(store.dump("*:runs:*")) == len(members)
    assert sorted(run.number for run in store.do(lambda found: found.read("alder")).runs) == sorted(
        run.number for run in history
    )


def test_store_read_removes_categories_without_runs(store: Store) -> None:
    new, _ = RunHistory(Closest.templates).learn(Job(id="1", attempt=0, submit=0.0, user="ada", cpus=2), 10.0)
    store.write("alder", Changes(runs=new))
    key = f"{store.settings.prefix}:{{alder}}:categories"
    alive = store.redis.smembers(key)
    store.redis.sadd(key, *(f"user,executable:ada:job_{number}.sh" for number in range(2 * SCAN_MEMBERS)))
    assert len(store.do(lambda found: found.read("alder")).runs) == len(new)
    assert store.redis.smembers(key) == alive


def test_entries_of_unknown_origin_are_kept_and_ignored(store: Store) -> None:
    job = Job(id="1", attempt=0, submit=0.0, user="ada", cpus=2)
    new, _ = RunHistory(Closest.templates).learn(job, 10.0)
    assert store.do(lambda found: found.begin("alder")) == 0
    store.write("alder", Changes(runs=new))
    before = store.dump()
    assert store.do(lambda found: found.begin("alder")) == 1
    assert store.dump() == before
    assert all(store.redis.ttl(key) > 0 for key in before)
    assert store.do(lambda found: found.read("alder", 1)).runs == []
    store.do(lambda found: found.take_back("alder", 0))
    assert all(store.redis.ttl(key) == -1 for key in before)
    store.do(lambda found: found.forget("alder"))
    assert store.dump() == {}
    assert store.redis.ttl(f"{store.settings.prefix}:{{alder}}:info") > 0
    store.do(lambda found: found.begin("alder"))
    assert store.redis.ttl(f"{store.settings.prefix}:{{alder}}:info") == -1


@pytest.mark.parametrize("name", ["history", "categories", "info", "rows:blend"])
def test_key_of_wrong_type_is_renamed_and_counts_as_lost(store: Store, name: str) -> None:
    changes = Changes(rows={"blend": [Row(0, b"a")]}, oldest={"blend": 0})
    store.write("alder", changes)
    key = f"{store.settings.prefix}:{{alder}}:{name}"
    store.redis.delete(key)
    store.redis.set(key, "what?")

    async def write(own: SiteStore) -> HistoryEntries:
        try:
            await own.write("alder", changes)
        except WritesLost:
            await own.write("alder", changes)
        return await own.read("alder")

    found = store.do(write)
    assert found.rows == {"blend": [Row(0, b"a")]} and not found.started
    assert store.redis.get(f"{key}:aside") == b"what?" or name == "history"


def test_store_entry_of_wrong_type_counts_as_lost(store: Store) -> None:
    store.write("alder", Changes(rows={"blend": [Row(0, b"a")]}, oldest={"blend": 0}))
    store.redis.set(f"{store.settings.prefix}:{{alder}}:history", "what?")
    assert store.do(lambda own: own.read("alder")).started == []
    assert store.do(lambda own: own.begin("alder")) == 1


def test_crash_mark_is_changed_only_by_latest_owner(store: Store) -> None:
    async def marks(own: SiteStore) -> list[bytes | None]:
        found = []
        await own.take_mark(3, "zombie", b"first")
        await own.take_mark(3, "successor", b"second")
        await own.set_mark(3, "zombie", b"third")
        found.append(await own.mark(3))
        await own.set_mark(3, "successor", b"fourth")
        found.append(await own.mark(3))
        await own.set_mark(3, "successor", None, released=True)
        await own.set_mark(3, "zombie", b"fifth")
        await own.set_mark(3, "successor", b"sixth")
        found.append(await own.mark(3))
        return found

    assert store.do(marks) == [b"second", b"fourth", None]


def test_crash_mark_lost_by_redis_is_written_again(store: Store) -> None:
    async def marks(own: SiteStore) -> bytes | None:
        await own.take_mark(3, "worker", b"first")
        store.redis.delete(f"{store.settings.prefix}:crashes:3")
        await own.set_mark(3, "worker", b"second")
        return await own.mark(3)

    assert store.do(marks) == b"second"


def test_lost_entries_do_not_free_their_generation(store: Store) -> None:
    async def begun(own: SiteStore) -> list[int]:
        first = await own.begin("alder")
        lost = await own.begin("alder", after=first)
        store.redis.delete(own.key("alder", "info"))
        return [first, lost, await own.begin("alder", after=lost), await own.begin("alder")]

    assert store.do(begun) == [0, 1, 2, 2]
