"""Read the messages that a topic holds, from an offset to an end."""

from collections.abc import Iterator, Mapping
from contextlib import closing

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from streams.broker.standstill import POLL_MS, Standstill
from streams.settings import Settings


def ends_of(settings: Settings, topic: str) -> dict[int, int]:
    """Return the end offset of each partition."""
    with closing(_consumer(settings)) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        return {place.partition: end for place, end in consumer.end_offsets(places).items()}


def messages(settings: Settings, place: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    """Yield the messages of a partition from `begin` to `end` that still exist.

    Raises:
        Unreachable: See `read_to`.
    """
    if begin >= end:
        return
    with closing(_consumer(settings)) as consumer:
        consumer.assign([place])
        consumer.seek(place, max(begin, consumer.beginning_offsets([place])[place]))
        yield from read_to(consumer, {place: end})


def held(settings: Settings, topic: str) -> Iterator[ConsumerRecord]:
    """Yield the messages that a topic holds now, in order within each partition.

    Raises:
        Unreachable: See `read_to`.
    """
    with closing(_consumer(settings)) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        consumer.seek_to_beginning(*places)
        yield from read_to(consumer, ends)


def read_to(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> Iterator[ConsumerRecord]:
    """Yield the messages of the consumer's partitions from its positions up to these offsets.

    Raises:
        Unreachable: There was no progress for `PATIENCE_S`.
    """
    still = Standstill()
    while unread := {
        place: (at, end)
        for place, end in ends.items()
        if (at := consumer.position(place, timeout_ms=POLL_MS)) is None or at < end
    }:
        still.record_progress(unread)
        for place, batch in consumer.poll(timeout_ms=POLL_MS).items():
            yield from (message for message in batch if message.offset < ends[place])


def _consumer(settings: Settings) -> KafkaConsumer:
    return KafkaConsumer(**settings.kafka.client_options(), enable_auto_commit=False)
