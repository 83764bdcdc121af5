"""Backups as described in deploy/README.md: valid and invalid restores, and recovery from the events."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
from kafka.admin import KafkaAdminClient

from deploy.local.stack import LocalStack
from deploy.local.stack.process import Server
from models.records import AnyEvent
from streams.broker.admin import create_topics, partitions_of
from streams.settings import Settings
from tests.support.deployment import Deployment, RecordsByKey, interleaved, settings_on, simulated, unique, until

SITE, APART = "alder", "birch"
JOBS = 150


@pytest.fixture
def settings(stack: LocalStack) -> Settings:
    worker = {"checkpoint_events": 50, "checkpoint_seconds": 0.5}
    return settings_on(stack.kafka.bootstrap, stack.redis.url, worker, {"history": 50}, partitions=1)


@pytest.fixture
def store(settings: Settings) -> Iterator[Any]:
    with redis.Redis.from_url(settings.redis.url) as client:
        yield client


def back_up(server: Server, place: Path) -> None:
    """Copy the data of a stopped server."""
    server.stop()
    shutil.copytree(server.directory, place / server.name)
    server.start()


def restore(server: Server, place: Path) -> None:
    """Replace the data of a server by the backup."""
    server.stop()
    shutil.rmtree(server.directory)
    shutil.copytree(place / server.name, server.directory)
    server.start()


def keys_of(site: str, store: Any, settings: Settings) -> dict[bytes, bytes]:
    """Return all Redis entries of a site."""
    return {key: store.dump(key) for key in store.scan_iter(f"{settings.redis.prefix}:{{{site}}}:*", count=1000)}


def take(settings: Settings, directory: Path, events: list[AnyEvent], expected: RecordsByKey) -> RecordsByKey:
    """Run a worker on these events until all expected jobs have records, and return all records."""
    with closing(Deployment(settings, directory)) as here:
        here.read_all()
        here.worker.start()
        here.send(events)
        until(lambda: record_keys(published_records(here)) >= record_keys(expected))
        here.stop()
        return here.records()


def record_keys(published: RecordsByKey) -> set[tuple[str, str, str, bool]]:
    """Return the topic, site and job of each record, and True if it has a run time.

    The number of estimates of a pending job is ignored: it depends on the estimates.
    """
    found = set()
    for (topic, site), values in published.items():
        for record in map(msgspec.json.decode, values):
            found.add((topic, site, record["job"], record.get("actual_run_s") is not None))
    return found


def record_count(published: RecordsByKey) -> int:
    return sum(map(len, published.values()))


def published_records(here: Deployment) -> RecordsByKey:
    """Return the records up to now."""
    here.read()
    return here.records()


def of(site: str, published: RecordsByKey) -> RecordsByKey:
    return {name: values for name, values in published.items() if name[1] == site}


def degraded(published: RecordsByKey, last: int) -> set[str | None]:
    """Return why the last predictions at submission are degraded; the gap may have ended when later ones are made."""
    (name,) = (name for name in published if name[0].endswith("predictions"))
    records = [record for record in map(msgspec.json.decode, published[name]) if "waited_s" not in record]
    return {record["degraded"] for record in records[-last:]}


@pytest.mark.long
def test_backup_of_kafka_and_redis_is_restored_only_together(
    stack: LocalStack,
    settings: Settings,
    store: Any,
    tmp_path: Path,
) -> None:
    events = interleaved(simulated(SITE, JOBS), simulated(APART, JOBS, seed=2))
    first, second = events[:500], events[500:700]
    directory, backup, servers = tmp_path / "worker-1", tmp_path / "backup", (stack.kafka, stack.redis)
    with closing(Deployment(settings, tmp_path / "none")) as here:
        before, expected = here.expected(first), here.expected(first + second)

    assert take(settings, directory, first, before) == before
    for server in servers:
        back_up(server, backup)
    assert take(settings, directory, second, expected) == expected

    newer = keys_of(APART, store, settings)
    for server in servers:
        restore(server, backup)
    store.delete(*keys_of(APART, store, settings))
    for key, value in newer.items():  # newer than the states, so entries that the states need are deleted
        store.restore(key, 0, value)
    published = take(settings, directory, second, expected)
    assert of(SITE, published) == of(SITE, expected)
    # A state stored before the first start needs no entry: with such a state, everything is recovered.
    if "recovered from the events" in (directory / "server.log").read_text():
        assert of(APART, published) == of(APART, expected)
    else:
        assert None not in degraded(of(APART, published), last=10)


@pytest.mark.long
def test_backup_of_events_restores_all_state(settings: Settings, tmp_path: Path) -> None:
    events = simulated(SITE, JOBS)
    with closing(Deployment(settings, tmp_path / "worker-1")) as here:
        expected = here.expected(events)
        here.worker.start()
        here.send(events)
        here.await_outputs(record_count(expected))
        here.stop()
        client = KafkaAdminClient(**settings.kafka.client_options())
        client.delete_topics([here.topics.state])
        until(lambda: partitions_of(settings)[here.topics.state] == 0)
        client.delete_groups([here.topics.group])
        client.close()
        create_topics(settings)
        here.worker.start()
        until(lambda: record_count(published_records(here)) >= 2 * record_count(expected))
        here.stop()
        assert {name: unique(values) for name, values in here.records().items()} == expected
        assert record_count(here.records()) == 2 * record_count(expected)
        assert here.stored(SITE) == here.expected_in_redis(events, SITE)
