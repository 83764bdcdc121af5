"""Events deleted before a worker read them are detected, on a real broker with a truncated topic."""

import os
import signal
import time

import msgspec
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from streams.broker.topics import partition_of
from tests.support.deployment import PARTITIONS, Deploy, Deployment, metrics, simulated, until
from tests.support.sizes import mostly_long

SITE = "alder"
PARTITION = partition_of(SITE, PARTITIONS)


def cut(here: Deployment, before: int) -> None:
    """Make the broker delete the first events of the site's partition."""
    with KafkaAdminClient(**here.settings.kafka.client_options()) as client:
        client.delete_records({TopicPartition(here.topics.events, PARTITION): before})


def lost(here: Deployment) -> float:
    return metrics(here.worker)["queuecast_events_lost_total"].get((str(PARTITION),), 0.0)


def read(here: Deployment) -> float:
    """Return the number of messages that the worker has read."""
    return metrics(here.worker)["queuecast_messages_read_total"].get((), 0.0)


@pytest.mark.long
def test_events_deleted_without_a_worker_are_a_counted_gap(deploy: Deploy) -> None:
    here, events = deploy(), simulated(SITE, 60)
    here.worker.start()
    here.send(events[:100])
    until(lambda: read(here) == 100)
    assert lost(here) == 0
    here.worker.stop()
    here.send(events[100:])
    cut(here, 130)
    here.worker.start()
    until(lambda: read(here) == len(events) - 130)
    assert lost(here) == 30
    here.stop()
    predictions = [msgspec.json.decode(m.value) for m in here.messages[here.topics.predictions]]
    assert {prediction["degraded"] for prediction in predictions[-5:]} == {"events were lost"}
    assert "30 events were deleted before they were read: the topic begins at 130" in here.log
    here.worker.start()  # it has read all events
    until(lambda: SITE in str(metrics(here.worker)["queuecast_events_total"]))
    assert lost(here) == 0


@pytest.mark.long
def test_events_deleted_during_a_stall_are_a_counted_gap(deploy: Deploy) -> None:
    here, events = deploy(worker={"session_timeout_seconds": 80.0}), simulated(SITE, 60)
    here.worker.start()
    here.send(events[:100])
    until(lambda: read(here) == 100)
    os.kill(here.worker.pid, signal.SIGSTOP)
    time.sleep(1.0)  # so that the broker answers the earlier request
    here.send(events[100:])
    cut(here, 130)
    os.kill(here.worker.pid, signal.SIGCONT)
    until(lambda: read(here) == len(events) - 30)
    assert lost(here) == 30
    here.stop()
    predictions = [msgspec.json.decode(m.value) for m in here.messages[here.topics.predictions]]
    assert {prediction["degraded"] for prediction in predictions[-5:]} == {"events were lost"}
    assert "30 events were deleted before they were read: the topic begins at 130" in here.log
    here.worker.start()
    until(lambda: SITE in str(metrics(here.worker)["queuecast_events_total"]))
    assert lost(here) == 0


@pytest.mark.parametrize("committed", mostly_long([None, 0]))
def test_events_deleted_before_the_first_read_are_counted(deploy: Deploy, committed: int | None) -> None:
    here, events = deploy(), simulated(SITE, 60)
    if committed is not None:
        commit(here, committed)
    here.send(events)
    cut(here, 40)
    here.worker.start()
    until(lambda: read(here) == len(events) - 40)
    assert lost(here) == 40
    here.stop()
    assert "40 events were deleted before they were read: the topic begins at 40" in here.log


def commit(here: Deployment, offset: int) -> None:
    """Commit offsets as a worker that joined the group and stopped before its first event."""
    consumer = KafkaConsumer(**here.settings.kafka.client_options(), group_id=here.topics.group)
    place = TopicPartition(here.topics.events, PARTITION)
    consumer.assign([place])
    consumer.commit({place: OffsetAndMetadata(offset, "", -1)})
    consumer.close()
