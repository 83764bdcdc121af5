"""Sites with dedicated topics of events: restarts, crashes and moves do not change the outputs."""

from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from deploy.local.up import WorkerProcess
from models.records import AnyEvent
from streams.broker.topics import events_topic_of
from tests.support.deployment import Deploy, Deployment, busy_sites, metrics, parts, sites, unique, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.long]

OWN, SHARED = ("alder", "birch"), ("cedar", "oak", "hazel")
SITES = (*OWN, *SHARED)
SESSION_S = 80.0
"""The maximum, so that no worker loses its membership on a busy machine."""


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    return busy_sites(SITES, 100)


def count(here: Deployment, events: list[AnyEvent]) -> int:
    """Return the number of predictions and outcomes of the events."""
    return sum(map(len, here.expected(events).values()))


def nothing_is_lost_or_doubled(here: Deployment, events: list[AnyEvent]) -> None:
    """Check that distinct outputs and stored entries equal a replay."""
    here.read_all()
    assert {where: unique(values) for where, values in here.records().items()} == here.expected(events)
    for site in SITES:
        assert here.stored(site) == here.expected_in_redis(events, site)
    assert here.dead_letters() == []


def one_serves_each(*workers: WorkerProcess) -> bool:
    """Return True if exactly one worker serves each site."""
    try:
        served = [site for worker in workers for site in sites(worker)]
    except OSError:  # a page timed out
        return False
    return sorted(served) == sorted(SITES)


def test_dedicated_topics_with_killed_workers_equal_replay(
    deploy: Deploy, events: list[AnyEvent], tmp_path: Path
) -> None:
    here = deploy(worker={"session_timeout_seconds": SESSION_S}, dedicated_topics=OWN, history=60)
    first, second, third, fourth = parts(events, 4)
    here.send(first)
    here.worker.start()
    here.await_outputs(count(here, first) // 2)
    here.worker.kill()  # part of each topic is read but not stored
    here.send(second)
    here.worker.start()
    here.await_outputs(count(here, first + second))
    with WorkerProcess(tmp_path / "second", here.settings) as other:
        here.send(third)
        until(lambda: bool(sites(other)) and one_serves_each(here.worker, other))
        other.kill()
        here.send(fourth)
        other.start()
        here.await_outputs(count(here, events))
        until(lambda: one_serves_each(here.worker, other))
        other.stop()
        until(lambda: one_serves_each(here.worker))
        until(lambda: sum(metrics(here.worker)["queuecast_consumer_lag_messages"].values()) == 0)
    here.stop()
    nothing_is_lost_or_doubled(here, events)
    for site in SITES:
        topic = events_topic_of(here.settings, site)
        assert messages(here, topic) == sum(events_topic_of(here.settings, one.site) == topic for one in events)


def messages(here: Deployment, topic: str) -> int:
    """Return the number of messages of a topic."""
    consumer = KafkaConsumer(**here.settings.kafka.client_options())
    try:
        places = [TopicPartition(topic, number) for number in range(here.settings.topics.partitions)]
        return sum(consumer.end_offsets(places).values())
    finally:
        consumer.close()
