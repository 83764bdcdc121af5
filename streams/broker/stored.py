"""Messages of a topic: those that it holds already, from an offset to an end, and those that come."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaTimeoutError

from streams.broker.standstill import PATIENCE_S, POLL_MS, Standstill
from streams.errors import Unreachable
from streams.settings import Settings


def ends_of(settings: Settings, topic: str) -> dict[int, int]:
    """The offset that the next message of each partition will have."""
    with closing(_consumer(settings)) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        return {place.partition: end for place, end in consumer.end_offsets(places).items()}


def messages(settings: Settings, place: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    """The messages of a partition from an offset on that were not deleted. Raises Unreachable: as `read_to`."""
    if begin >= end:
        return
    with closing(_consumer(settings)) as consumer:
        consumer.assign([place])
        consumer.seek(place, max(begin, consumer.beginning_offsets([place])[place]))
        yield from read_to(consumer, {place: end})


def read_to(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> Iterator[ConsumerRecord]:
    """The messages of the consumer's partitions from where it is in each, up to these offsets. Raises Unreachable: the
    broker gives nothing any longer.
    """
    still = Standstill()
    while left := {
        place: (at, end)
        for place, end in ends.items()
        if (at := consumer.position(place, timeout_ms=POLL_MS)) is None or at < end
    }:
        still.look(left)
        for place, batch in consumer.poll(timeout_ms=POLL_MS).items():
            yield from (message for message in batch if message.offset < ends[place])


def follow_from(consumer: KafkaConsumer, begins: Mapping[TopicPartition, int]) -> Iterator[ConsumerRecord]:
    """The messages from these offsets on, as they come, without end; a broker that has gone is waited for a while.
    Raises Unreachable: no broker answers any longer.
    """
    for place, begin in begins.items():
        consumer.seek(place, begin)
    heard = time.monotonic()
    while True:
        found = consumer.poll(timeout_ms=POLL_MS)
        if not found and time.monotonic() - heard >= PATIENCE_S:
            try:
                consumer.end_offsets(list(begins))
            except KafkaTimeoutError:
                topic = next(iter(begins)).topic
                raise Unreachable(f"kafka: {topic}: no broker answers any longer; is it running?") from None
        if found or time.monotonic() - heard >= PATIENCE_S:
            heard = time.monotonic()
        for batch in found.values():
            yield from batch


def _consumer(settings: Settings) -> KafkaConsumer:
    return KafkaConsumer(**settings.kafka.client_options(), enable_auto_commit=False)
