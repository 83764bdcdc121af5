"""aiokafka clients: a consumer with a bug fix, start and stop of clients, and a check that a broker responds."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.conn import create_conn
from aiokafka.errors import KafkaError

from streams.broker.private_names import AIOKAFKA, check_private_names
from streams.errors import Unreachable
from streams.settings import Settings

check_private_names(AIOKAFKA)

LEADER_PAUSE_S = 0.5
"""Pause before the next metadata request while a topic is missing or a partition has no leader, seconds."""


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka's classes are untyped
    """An aiokafka consumer that waits while its topics are missing and can read partitions that are added later.

    Without a consumer group, aiokafka 0.14 itself would restart all partitions of the topic from the beginning.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)
        wait_for_leaders(self)

    async def places(self, *topics: str) -> list[TopicPartition]:
        """Return the partitions of topics.

        Raises:
            KafkaError: A topic is missing, or hidden from this user.
        """
        return [TopicPartition(topic, part) for topic in topics for part in await self._client._wait_on_metadata(topic)]

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next message by partition; omit partitions whose start offset is not available."""
        known = self._subscription.subscription.assignment.all_consumed_offsets()
        return {place: at.offset for place, at in known.items()}

    def is_at_end(self, place: TopicPartition) -> bool:
        """Return whether the consumer has read a partition up to the last high watermark that it received."""
        end, position = self.highwater(place), self.positions().get(place)
        return end is not None and position is not None and position >= end

    async def read_new_partitions(self) -> None:
        """Also read, from their beginning, partitions that were added to the topics of the assigned partitions.

        New partitions are added only once the position of every assigned partition is available; the others are read
        meanwhile.
        """
        read = self.assignment()
        if self._subscription.partitions_auto_assigned():
            return  # the group assigns them
        parts = {topic: self.partitions_for_topic(topic) or () for topic in {place.topic for place in read}}
        new = {TopicPartition(topic, part) for topic in parts for part in parts[topic]} - read
        if new and (positions := self.positions()).keys() == read:
            self.assign([*read, *new])
            for place, position in {**positions, **dict.fromkeys(new, 0)}.items():
                self.seek(place, position)


def wait_for_leaders(consumer: AIOKafkaConsumer) -> None:
    """Make a consumer pause while one of its partitions has no leader, for example after Kafka has lost its topics.

    Works around aiokafka 0.14, whose fetcher would send the request again immediately, in a busy loop.
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
async def started(
    client: Any, settings: Settings, begin: Callable[[], Awaitable[None]] | None = None
) -> AsyncGenerator[Any]:
    """Start a Kafka client and stop it at the end.

    Args:
        begin: Awaited once the client has started.

    Raises:
        Unreachable: Kafka is unreachable or refuses the client.
    """
    try:
        await client.start()
        if begin is not None:
            await begin()
    except (KafkaError, OSError) as error:
        await client.stop()
        raise Unreachable(f"kafka at {settings.kafka.bootstrap}: {error}") from None
    except BaseException:  # for example an interrupt during the connection
        await client.stop()
        raise
    try:
        yield client
    finally:
        with suppress(KafkaError, OSError):
            await client.stop()


async def broker_answers(bootstrap: str, tls: ssl.SSLContext | None, seconds: float) -> bool:
    """Return whether at least one broker responds within `seconds`. No connection stays open.

    Args:
        bootstrap: Comma-separated addresses, each host:port.
        tls: None without TLS.
    """
    answers = await asyncio.gather(*(_answers(address.strip(), tls, seconds) for address in bootstrap.split(",")))
    return any(answers)


async def _answers(address: str, tls: ssl.SSLContext | None, seconds: float) -> bool:
    """Return whether the broker at this address responds.

    When aiokafka 0.14 opens a connection, it requests the broker's API versions, which needs no login. An accepted TCP
    connection is not enough, because the operating system of a hanging broker still accepts it. aiokafka's public
    clients would log in, read the cluster metadata and log an error at each call.
    """
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(seconds):
            connection = await create_conn(
                host.strip("[]"), int(port), ssl_context=tls, security_protocol="SSL" if tls else "PLAINTEXT"
            )
    except (OSError, KafkaError):  # TimeoutError is an OSError
        return False
    connection.close()
    return True
