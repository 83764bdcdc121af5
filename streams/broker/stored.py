"""Messages that a topic holds already, read from an offset to an end."""

from collections.abc import Iterator
from contextlib import closing

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from streams.settings import Settings

POLL_MS = 1000


def ends_of(settings: Settings, topic: str) -> dict[int, int]:
    """The offset that the next message of each partition will have."""
    with closing(_consumer(settings)) as consumer:
        places = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
        return {place.partition: end for place, end in consumer.end_offsets(places).items()}


def messages(settings: Settings, place: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    """The messages of a partition from an offset on, as far as they were not deleted."""
    if begin >= end:
        return
    with closing(_consumer(settings)) as consumer:
        consumer.assign([place])
        consumer.seek(place, max(begin, consumer.beginning_offsets([place])[place]))
        while consumer.position(place) < end:
            for message in consumer.poll(timeout_ms=POLL_MS).get(place, ()):
                if message.offset < end:
                    yield message


def _consumer(settings: Settings) -> KafkaConsumer:
    return KafkaConsumer(**settings.kafka.client_options(), enable_auto_commit=False)
