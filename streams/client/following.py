"""Records as they come from their topics, for asyncio."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import msgspec
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from streams.broker.consumer import Consumer, started
from streams.errors import UNDECODABLE, UserError
from streams.settings import Settings

log = logging.getLogger(__name__)

RETRY_PAUSE_S = 1.0
"""The pause before the next try, after reading failed."""

MAX_BATCH_MESSAGES = 500


async def follow(
    settings: Settings,
    kinds: dict[str, Any],
    group: str | None,
    from_beginning: bool,
    wanted: Callable[[Any], bool],
    without_value: Callable[[bytes], Any] = lambda key: None,
) -> AsyncGenerator[Any]:
    """Records of topics, each of its kind, as they come, without end; a group's offsets are committed once they were
    taken.

    What does not decode is logged and passed over; of a message without a value `without_value` makes a record or None.
    Raises Unreachable: Kafka is away at the beginning; later it is waited for. UserError: Kafka refuses.
    """
    decoders = {topic: msgspec.json.Decoder(kind).decode for topic, kind in kinds.items()}
    consumer = Consumer(
        *kinds,
        **settings.kafka.async_options(),
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest" if from_beginning else "latest",
    )
    async with started(consumer, settings):
        while True:
            for message in await _batch(consumer, settings):
                record = _decoded(message, decoders[message.topic], without_value)
                if record is not None and wanted(record):
                    yield record
            if group is not None:
                with suppress(KafkaError):  # such as one that was lost to another member, who reads these again
                    await consumer.commit()


async def _batch(consumer: Any, settings: Settings) -> list[Any]:
    try:
        found = await consumer.getmany(timeout_ms=1000, max_records=MAX_BATCH_MESSAGES)
    except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
        raise UserError(f"kafka at {settings.kafka.bootstrap}: {error}") from None
    except KafkaError as error:
        log.warning("cannot be read: %r; tried again in %.0f s", error, RETRY_PAUSE_S)
        await asyncio.sleep(RETRY_PAUSE_S)
        return []
    return [message for messages in found.values() for message in messages]


def _decoded(message: Any, decode: Callable[[bytes], Any], without_value: Callable[[bytes], Any]) -> Any:
    try:
        return without_value(message.key) if message.value is None else decode(message.value)
    except UNDECODABLE as error:
        place = {"partition": message.partition, "offset": message.offset}
        log.warning("a message of %s is passed over: %s", message.topic, error, extra=place)
        return None
