"""Older and newer brokers than the local stack, and an upgrade between them while events arrive."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from deploy.local.stack import Redis, StackError
from models.records import AnyEvent
from streams.operate.doctor import examine
from tests.support.deployment import Deployment, busy_sites, parts, settings_on, unique
from tests.support.kafka_versions import NEWEST, OLDEST, KafkaOf, cluster_of_three, start_all

SITES = ("alder", "birch")
WORKER = {"checkpoint_events": 50, "checkpoint_seconds": 0.2, "session_timeout_seconds": 30.0}
ENGINE = {"history": 150, "method": "qespera", "bounds": "qbets"}

pytestmark = [pytest.mark.long, pytest.mark.stack, pytest.mark.timeout(900)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Redis]:
    with Redis(tmp_path / "redis") as server:
        yield server


def workload(jobs: int) -> list[AnyEvent]:
    return busy_sites(SITES, jobs)


def check_against_replay(here: Deployment, events: list[AnyEvent]) -> None:
    """Check that distinct outputs equal a replay."""
    expected = here.expected(events)
    here.await_outputs(sum(map(len, expected.values())), 300.0)
    here.stop()
    assert {where: unique(values) for where, values in here.records().items()} == expected


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_worker_resumes_on_a_broker_of_each_version(version: str, store: Redis, tmp_path: Path) -> None:
    with KafkaOf(tmp_path / "kafka", version, ready_within=120.0) as kafka:
        settings = settings_on(kafka.bootstrap, store.url, WORKER, ENGINE)
        with closing(Deployment(settings, tmp_path / "worker")) as here:
            events = workload(100)
            first, second = parts(events, 2)
            here.worker.start()
            here.send(first)
            here.worker.kill()
            here.worker.start()
            here.send(second)
            assert {result.state for result in examine(settings) if "redis" not in result.check} <= {"ok", "warn"}
            check_against_replay(here, events)


def test_rolling_broker_upgrade_loses_no_event(store: Redis, tmp_path: Path) -> None:
    brokers = cluster_of_three(tmp_path, OLDEST)
    try:
        start_all(brokers)
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        settings = settings_on(bootstrap, store.url, WORKER, ENGINE)
        settings = msgspec.structs.replace(settings, topics=msgspec.structs.replace(settings.topics, replication=3))
        with closing(Deployment(settings, tmp_path / "worker")) as here:
            events = workload(600)
            here.worker.start()
            rest = iter(events)
            with here.fed(rest, pace=len(events) / 60.0):
                for broker in brokers:
                    broker.stop()
                    broker.version = NEWEST
                    broker.start()
            here.send(rest)
            check_against_replay(here, events)
    finally:
        for broker in brokers:
            broker.kill()


def test_broker_cannot_disable_the_classic_group_protocol(tmp_path: Path) -> None:
    kafka = KafkaOf(tmp_path, NEWEST, properties={"group.coordinator.rebalance.protocols": "consumer"})
    with pytest.raises(StackError, match="Disabling the 'classic' protocol is not supported"):
        kafka.start()
