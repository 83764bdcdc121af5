"""A message read from an events topic."""

from typing import Any, NamedTuple, Self


class Fetched(NamedTuple):
    """A message of an events topic with its broker timestamp (Unix seconds, 0 if unknown)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: float

    @classmethod
    def of(cls, message: Any) -> Self:
        """Create a message from Faust's message, which holds more than is needed."""
        return cls(message.topic, message.partition, message.offset, message.key, message.value, message.timestamp)

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """Create a message from an aiokafka record, whose timestamp is in milliseconds."""
        seconds = max(record.timestamp, 0) / 1000.0
        return cls(record.topic, record.partition, record.offset, record.key, record.value, seconds)
