"""Sites kept in memory over a rebalance, and the cases in which they must be restored."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from models.engine.settings import EngineSettings
from models.records import AnyEvent, Capacity, Submit
from streams.settings import Settings
from streams.worker.checkpoint.claims import Lease
from streams.worker.checkpoint.loader import SiteLoader
from streams.worker.checkpoint.store import SiteStore
from tests.support.fakes import Process
from tests.support.memory_servers import World
from tests.worker_simulation.loop import SimulatedLoop
from tests.worker_simulation.servers import Faults, Redis, RedisClient

SETTINGS = Settings(engine=EngineSettings(method="median"))
SITES = {0: ("alder", "birch"), 1: ("cedar", "dogwood")}
"""Sites by partition."""


def events(site: str, first: int = 0, count: int = 5) -> list[AnyEvent]:
    jobs = [Submit(site=site, time=float(number), job=str(number), cpus=1) for number in range(first, first + count)]
    return [Capacity(site=site, time=0.0, cpus=8), *jobs] if first == 0 else list(jobs)


class Servers:
    """Servers in memory, with a worker that has processed the events of all sites."""

    def __init__(self, loop: SimulatedLoop) -> None:
        faults = Faults(loop, Random(1))
        faults.heal()
        self.world, self.redis = World(), Redis(faults)
        for partition, sites in SITES.items():
            for site in sites:
                self.world.publish_events(events(site), partition)
        self.one = self.worker()

    def worker(self) -> Process:
        redis = RedisClient(self.redis)
        return Process(
            self.world,
            SETTINGS,
            store=lambda _, token: SiteStore(redis, "queuecast", token.check),  # type: ignore[arg-type]
        )

    def info(self, site: str) -> dict[bytes, bytes]:
        """Return the fields of a site's claim."""
        found: dict[bytes, bytes] = self.redis.data[f"queuecast:{{{site}}}:info"]
        return found


async def served(worker: Process, sites: int) -> None:
    """Wait until a worker has all its sites in memory."""
    while len(worker.owner) < sites:
        await asyncio.sleep(0.1)
    worker.raise_error()


async def take_on(worker: Process, *partitions: int) -> None:
    """Take over partitions and process all their events."""
    await worker.take_over(*partitions)
    await process(worker, *partitions)


async def process(worker: Process, *partitions: int) -> None:
    for partition in partitions:
        await worker.take_all(partition)
    while worker.owner.behind:
        await asyncio.sleep(0.1)
    worker.raise_error()


def run(test: Callable[[Servers], Awaitable[None]]) -> None:
    loop = SimulatedLoop(Random(1))
    servers = Servers(loop)

    async def begin() -> None:
        await take_on(servers.one, *SITES)
        await test(servers)

    try:
        loop.run_until_complete(begin())
    finally:
        loop.end()


@pytest.fixture
def restored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the sites restored from Redis, in order."""
    found, load = list[str](), SiteLoader.load

    async def loads(self: SiteLoader, site: str, stored: object) -> object:
        found.append(site)
        return await load(self, site, stored)  # type: ignore[arg-type]

    monkeypatch.setattr(SiteLoader, "load", loads)
    return found


def test_returned_partition_keeps_its_engines(restored: list[str]) -> None:
    async def stay(servers: Servers) -> None:
        one = servers.one
        before = {site: one.owner[site].engine for site in one.owner}
        await one.hand_over(*SITES)
        assert not len(one.owner)
        await one.take_over(0)
        await served(one, 2)
        assert {site: one.owner[site].engine for site in one.owner} == {site: before[site] for site in SITES[0]}
        assert not one.owner._kept  # of the revoked partition
        assert all(one.owner[site].claim == int(servers.info(site)[b"claims"]) for site in SITES[0])

    run(stay)
    assert restored == []


def test_kept_site_gives_same_outputs_as_without_rebalance(restored: list[str]) -> None:
    outputs = []
    for is_rebalanced in (False, True):

        async def go_on(servers: Servers, is_rebalanced: bool = is_rebalanced) -> None:
            one, world = servers.one, servers.world
            for first in (5, 10):
                if is_rebalanced:
                    await one.hand_over(*SITES)
                    await one.take_over(*SITES)
                for partition, sites in SITES.items():
                    for site in sites:
                        world.publish_events(events(site, first), partition)
                await process(one, *SITES)
            await one.hand_over(*SITES)
            outputs.append((sorted(world.outputs), {key: len(value) for key, value in world.table.items()}))

        run(go_on)
    assert outputs[0][0] == outputs[1][0] and outputs[0][1].keys() == outputs[1][1].keys()
    assert restored == []


async def claimed_by_another(servers: Servers) -> None:
    other = servers.worker()
    await other.take_over(0)
    await other.hand_over(0)


async def claim_alone_by_another(servers: Servers) -> None:
    """Another process claims a site and crashes immediately."""
    for site in SITES[0]:
        await SiteStore(RedisClient(servers.redis), "queuecast").claim(site)  # type: ignore[arg-type]


async def events_at_another(servers: Servers) -> None:
    other = servers.worker()
    for site in SITES[0]:
        servers.world.publish_events(events(site, 5), 0)
    await take_on(other, 0)
    await other.hand_over(0)


async def writes_lost(servers: Servers) -> None:
    """Redis fails over to a replica without the last write."""
    for site in SITES[0]:
        info = servers.info(site)
        info[b"writes"] = b"%d" % (int(info[b"writes"]) - 1)


async def claims_lost(servers: Servers) -> None:
    for site in SITES[0]:
        del servers.redis.data[f"queuecast:{{{site}}}:info"]


@pytest.mark.parametrize(
    "meanwhile", [claimed_by_another, claim_alone_by_another, events_at_another, writes_lost, claims_lost]
)
def test_changed_site_is_restored_after_a_rebalance(
    restored: list[str], meanwhile: Callable[[Servers], Awaitable[None]]
) -> None:
    async def change(servers: Servers) -> None:
        one = servers.one
        await one.hand_over(*SITES)
        await meanwhile(servers)
        restored.clear()
        await one.take_over(*SITES)
        await served(one, 4)
        assert sorted(restored) == sorted(SITES[0])

    run(change)


def test_site_with_unstored_events_is_restored(restored: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave(servers: Servers) -> None:
        one = servers.one
        await one.hand_over(*SITES)
        await one.take_over(*SITES)
        partition = one.partition(0)
        for site in SITES[0]:
            servers.world.publish_events(events(site, 5), 0)
        await process(one, 0)
        never = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(partition.checkpoints, "make", lambda: never)
        await one.hand_over(*SITES)
        await take_on(one, *SITES)
        await served(one, 4)
        assert sorted(restored) == sorted(SITES[0])
        assert all(one.owner[site].engine.events == 11 for site in SITES[0])

    run(leave)


def test_site_with_a_prepared_event_is_restored(restored: list[str]) -> None:
    async def prepare(servers: Servers) -> None:
        servers.one.partition(0)._processing._prepared["birch"] = ("events", 12, 0)
        await servers.one.hand_over(*SITES)
        await servers.one.take_over(*SITES)
        await served(servers.one, 4)

    run(prepare)
    assert restored == ["birch"]


def test_lease_equals_only_lease_with_same_fields() -> None:
    lease = Lease(b"me", 3, 7)
    assert lease.is_same(b"3", b"me", b"7")
    changed = [(b"4", b"me", b"7"), (b"3", b"you", b"7"), (b"3", b"me", b"8"), (b"3", b"me", None), (None, None, None)]
    assert not any(lease.is_same(*fields) for fields in changed)
