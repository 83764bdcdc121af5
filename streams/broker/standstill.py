"""Stop reads of a topic that make no progress: Kafka clients wait forever if the broker goes away."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from streams.errors import Unreachable

POLL_MS = 1000
PATIENCE_S = 30.0  # seconds without progress after which the broker counts as unreachable


class Standstill:
    """Detect a read without progress for `PATIENCE_S`."""

    def __init__(self) -> None:
        self._before: Any = None
        self._since = time.monotonic()

    def record_progress(self, unread: Mapping[Any, tuple[int | None, int]]) -> None:
        """Record the progress of the read.

        Args:
            unread: The current offset and the end offset by partition (`topic`, `partition`).

        Raises:
            Unreachable: There was no progress for `PATIENCE_S`.
        """
        if unread != self._before:
            self._before, self._since = unread, time.monotonic()
        elif time.monotonic() - self._since >= PATIENCE_S:
            place, (at, _) = next(iter(unread.items()))
            where = f"{place.topic}, partition {place.partition}, offset {at}"
            raise Unreachable(f"kafka: {where}: nothing came for {PATIENCE_S:.0f} s; is the broker running?")


async def batches_to(
    consumer: Any, ends: Mapping[Any, int], most: int | None = None
) -> AsyncGenerator[Mapping[Any, list[Any]]]:
    """Yield batches from an aiokafka consumer, from its positions up to these offsets and perhaps a few messages
    beyond.

    Args:
        most: Maximum number of messages per batch.

    Raises:
        Unreachable: There was no progress for `PATIENCE_S`.
    """
    still = Standstill()
    while unread := {place: (at, end) for place, end in ends.items() if (at := await _position(consumer, place)) < end}:
        still.record_progress(unread)
        yield await consumer.getmany(*unread, timeout_ms=POLL_MS, max_records=most)


async def _position(consumer: Any, place: Any) -> int:
    """Return the consumer's position; queries the broker if the position is the beginning or the end."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return int(await consumer.position(place))
    except TimeoutError:
        raise Unreachable(
            f"kafka: {place.topic}, partition {place.partition}: no broker returned its start offset"
        ) from None
