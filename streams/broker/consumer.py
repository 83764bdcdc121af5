"""aiokafka's clients: its consumer with a mend, each started and stopped, and whether a broker answers at all."""

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
"""The pause before the broker is asked again for a topic that is missing, or for a partition without a leader."""


class Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka's classes are untyped
    """aiokafka's consumer; while its topics are gone, it waits, and it can read the partitions that topics get.

    aiokafka 0.14 itself begins all partitions of a topic anew then, where there is no group.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)
        wait_for_leaders(self)

    async def places(self, *topics: str) -> list[TopicPartition]:
        """The partitions of topics. Raises KafkaError: one is missing, or hidden from this user."""
        return [TopicPartition(topic, part) for topic in topics for part in await self._client._wait_on_metadata(topic)]

    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next message, by partition; without those of which no broker has said where they begin."""
        known = self._subscription.subscription.assignment.all_consumed_offsets()
        return {place: at.offset for place, at in known.items()}

    def is_at_end(self, place: TopicPartition) -> bool:
        """Whether all messages of a partition were read that a broker has told of."""
        end, position = self.highwater(place), self.positions().get(place)
        return end is not None and position is not None and position >= end

    async def read_new_partitions(self) -> None:
        """Read, from their beginning, the partitions too that were added to the topics of those which were assigned.

        While no broker says where one of these begins, the new ones wait, and the others are read.
        """
        read = self.assignment()
        if self._subscription.partitions_auto_assigned():
            return  # the group sees to it
        parts = {topic: self.partitions_for_topic(topic) or () for topic in {place.topic for place in read}}
        new = {TopicPartition(topic, part) for topic in parts for part in parts[topic]} - read
        if new and (positions := self.positions()).keys() == read:
            self.assign([*read, *new])
            for place, position in {**positions, **dict.fromkeys(new, 0)}.items():
                self.seek(place, position)


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
async def started(
    client: Any, settings: Settings, begin: Callable[[], Awaitable[None]] | None = None
) -> AsyncGenerator[Any]:
    """A client of Kafka, started, and stopped in the end. Raises Unreachable: Kafka cannot be reached, or refuses.

    Parameters:
        begin: done once it has started.
    """
    try:
        await client.start()
        if begin is not None:
            await begin()
    except (KafkaError, OSError) as error:
        await client.stop()
        raise Unreachable(f"kafka at {settings.kafka.bootstrap}: {error}") from None
    except BaseException:  # such as an interrupt while it connects
        await client.stop()
        raise
    try:
        yield client
    finally:
        with suppress(KafkaError, OSError):
            await client.stop()


async def broker_answers(bootstrap: str, tls: ssl.SSLContext | None, seconds: float) -> bool:
    """Whether at least one broker answers within this time. No connection stays open.

    Parameters:
        bootstrap: addresses, host:port, several with commas.
        tls: None where there is no TLS.
    """
    answers = await asyncio.gather(*(_answers(address.strip(), tls, seconds) for address in bootstrap.split(",")))
    return any(answers)


async def _answers(address: str, tls: ssl.SSLContext | None, seconds: float) -> bool:
    """Whether the broker at this address answers.

    When aiokafka 0.14 opens a connection, it asks for the broker's API versions, which needs no login. An accepted
    connection alone would say little: the machine of a broker that hangs still accepts it. aiokafka's public clients
    would log in, read the cluster's metadata and log an error, each time that they are asked.
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
