"""A message of a topic of events, as it was read."""

from typing import Any, NamedTuple, Self


class Fetched(NamedTuple):
    """A message of a topic of events, and when it arrived at the broker (Unix seconds, 0: unknown)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: float

    @classmethod
    def of(cls, message: Any) -> Self:
        """Return what is needed of Faust's message, which holds much else."""
        return cls(message.topic, message.partition, message.offset, message.key, message.value, message.timestamp)

    @classmethod
    def of_record(cls, record: Any) -> Self:
        """Return the same of aiokafka's record, which counts milliseconds."""
        seconds = max(record.timestamp, 0) / 1000.0
        return cls(record.topic, record.partition, record.offset, record.key, record.value, seconds)
