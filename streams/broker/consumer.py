"""aiokafka's clients: its consumer with a mend, and each started and stopped."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from streams.errors import Unreachable
from streams.settings import Settings

LEADER_PAUSE_S = 0.5
"""The pause before the broker is asked again for a topic that is missing, or for a partition without a leader."""


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka's classes are untyped
    """aiokafka's consumer; while its topics are gone, it waits."""

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)
        wait_for_leaders(self)


def wait_for_leaders(consumer: AIOKafkaConsumer) -> None:
    """Have a consumer pause while a partition of its has no leader, such as when Kafka has lost its topics.

    Mends aiokafka 0.14, whose fetcher would ask again at once, and so without end; that took half a core.
    """
    client = consumer._client
    update = client._metadata_update

    async def patiently(cluster: Any, topics: Iterable[str] | None) -> bool:
        updated: bool = await update(cluster, topics)
        if not all(_has_leaders(cluster, topic) for topic in topics or ()):
            await asyncio.sleep(LEADER_PAUSE_S)
        return updated

    client._metadata_update = patiently


def _has_leaders(cluster: Any, topic: str) -> bool:
    known: set[int] | None = cluster.partitions_for_topic(topic)
    return known is not None and cluster.available_partitions_for_topic(topic) == known


@asynccontextmanager
async def started(client: Any, settings: Settings) -> AsyncGenerator[Any]:
    """A client of Kafka, started, and stopped in the end.

    Raises:
        Unreachable: Kafka cannot be reached.
    """
    try:
        await client.start()
    except (KafkaError, OSError) as error:
        await client.stop()
        raise Unreachable(f"kafka at {settings.kafka.bootstrap}: {error}") from None
    try:
        yield client
    finally:
        with suppress(KafkaError, OSError):
            await client.stop()
