"""Read the messages of topics up to their present end."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

from kafka import KafkaConsumer, TopicPartition


def messages_of(options: Mapping[str, Any], *topics: str) -> Iterator[Any]:
    """Yield all messages of these topics, in order for each partition, with one batch in memory.

    Args:
        options: Options of the consumer, such as its servers.

    Raises:
        LookupError: a topic does not exist.
    """
    with closing(KafkaConsumer(**{"auto_offset_reset": "earliest", **options})) as consumer:
        numbers = {topic: consumer.partitions_for_topic(topic) for topic in topics}
        if missing := [topic for topic, found in numbers.items() if not found]:
            raise LookupError(f"no topic {', '.join(missing)}")
        places = [TopicPartition(topic, number) for topic, found in numbers.items() for number in found]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        yield from unread_messages(consumer)


def unread_messages(consumer: KafkaConsumer) -> Iterator[Any]:
    """Yield the messages of the assigned partitions from the consumer's positions on."""
    ends = consumer.end_offsets(consumer.assignment())
    while any(consumer.position(place) < end for place, end in ends.items()):
        for batch in consumer.poll(timeout_ms=100).values():
            yield from batch
