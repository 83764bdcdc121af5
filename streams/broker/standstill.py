"""That a read of what a topic holds ends: where the broker goes away meanwhile, its clients wait without end."""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from streams.errors import Unreachable

POLL_MS = 1000
PATIENCE_S = 30.0  # seconds without progress after which the broker counts as gone


class Standstill:
    """Tells when a read has come no further for `PATIENCE_S`."""

    def __init__(self) -> None:
        self._before: Any = None
        self._since = time.monotonic()

    def look(self, left: Mapping[Any, tuple[int | None, int]]) -> None:
        """Take how far the read is.

        Parameters:
            left: the offset that it is at, and the one that it goes to, by partition (`topic`, `partition`).

        Raises:
            Unreachable: the broker gives nothing any longer.
        """
        if left != self._before:
            self._before, self._since = left, time.monotonic()
        elif time.monotonic() - self._since >= PATIENCE_S:
            place, (at, _) = next(iter(left.items()))
            where = f"{place.topic}, partition {place.partition}, offset {at}"
            raise Unreachable(f"kafka: {where}: nothing came for {PATIENCE_S:.0f} s; is the broker running?")


async def batches_to(
    consumer: Any, ends: Mapping[Any, int], most: int | None = None
) -> AsyncGenerator[Mapping[Any, list[Any]]]:
    """What aiokafka's consumer gets from where it is in each partition to these offsets, and perhaps some more.

    Parameters:
        most: messages at once.

    Raises:
        Unreachable: the broker gives nothing any longer.
    """
    still = Standstill()
    while left := {place: (at, end) for place, end in ends.items() if (at := await _position(consumer, place)) < end}:
        still.look(left)
        yield await consumer.getmany(*left, timeout_ms=POLL_MS, max_records=most)


async def _position(consumer: Any, place: Any) -> int:
    """Where the consumer is; it asks the broker where that is the beginning or the end."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            return int(await consumer.position(place))
    except TimeoutError:
        raise Unreachable(
            f"kafka: {place.topic}, partition {place.partition}: no broker says where it begins"
        ) from None
