"""Messages that a topic holds already, read from an offset to an end."""

import time
from collections.abc import Iterator
from contextlib import closing

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from streams.errors import Unreachable
from streams.settings import Settings

POLL_MS = 1000

PATIENCE_S = 30.0
"""Seconds without progress after which the broker counts as gone."""


def ends_of(settings: Settings, topic: str) -> dict[int, int]:
    """The offset that the next message of each partition will have."""
    with closing(_consumer(settings)) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        return {place.partition: end for place, end in consumer.end_offsets(places).items()}


def messages(settings: Settings, place: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    """The messages of a partition from an offset on, as far as they were not deleted.

    Raises:
        Unreachable: as `read_to`.
    """
    if begin >= end:
        return
    with closing(_consumer(settings)) as consumer:
        consumer.assign([place])
        consumer.seek(place, max(begin, consumer.beginning_offsets([place])[place]))
        yield from read_to(consumer, place, end)


def read_to(consumer: KafkaConsumer, place: TopicPartition, end: int) -> Iterator[ConsumerRecord]:
    """The messages of a partition from where its consumer is, up to an offset.

    Raises:
        Unreachable: the broker gives nothing any longer.
    """
    before, since = None, time.monotonic()
    while (at := consumer.position(place, timeout_ms=POLL_MS)) is None or at < end:
        if at != before:
            before, since = at, time.monotonic()
        elif time.monotonic() - since >= PATIENCE_S:
            where = f"{place.topic}, partition {place.partition}, offset {at}"
            raise Unreachable(f"kafka: {where}: nothing came for {PATIENCE_S:.0f} s; is the broker running?")
        for message in consumer.poll(timeout_ms=POLL_MS).get(place, ()):
            if message.offset < end:
                yield message


def _consumer(settings: Settings) -> KafkaConsumer:
    return KafkaConsumer(**settings.kafka.client_options(), enable_auto_commit=False)
