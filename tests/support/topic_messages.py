"""Read the messages of topics up to their present end."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition


def messages_of(options: Mapping[str, Any], *topics: str) -> Iterator[Any]:
    """Yield all messages of these topics, in order for each partition, with one batch in memory.

    Args:
        options: Options of the consumer, such as its servers.
    """
    with closing(KafkaConsumer(**options)) as consumer:
        places = [TopicPartition(topic, number) for topic in topics for number in consumer.partitions_for_topic(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        yield from unread_messages(consumer)


def unread_messages(consumer: KafkaConsumer) -> Iterator[Any]:
    """Yield the messages of the assigned partitions from the consumer's positions on."""
    ends = consumer.end_offsets(consumer.assignment())
    while any(consumer.position(place) < end for place, end in ends.items()):
        for batch in consumer.poll(timeout_ms=100).values():
            yield from batch
