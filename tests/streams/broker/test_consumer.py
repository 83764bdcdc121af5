import asyncio
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka import TopicPartition

from streams.broker.consumer import Consumer, started
from streams.errors import Unreachable
from streams.settings import Settings


class Connecting:
    """A client that fails with this error while connecting."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.stopped = error, False

    async def start(self) -> None:
        raise self.error

    async def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize(
    ("error", "expected"), [(OSError("refused"), Unreachable), (asyncio.CancelledError(), asyncio.CancelledError)]
)
def test_client_that_fails_to_connect_is_stopped(error: BaseException, expected: type[BaseException]) -> None:
    client = Connecting(error)

    async def use() -> None:
        with pytest.raises(expected):
            async with started(client, Settings()):
                pass

    asyncio.run(use())
    assert client.stopped


def test_consumer_reads_new_partitions_once_offsets_are_complete() -> None:
    first, second = TopicPartition("answers", 0), TopicPartition("answers", 1)

    async def follow() -> None:
        consumer = Consumer()
        consumer._fetcher = Mock(seek_to=consumer._subscription.seek, close=AsyncMock())  # not started
        consumer.assign([first, second])
        consumer.seek(first, 7)
        consumer.partitions_for_topic = lambda _: {0, 1, 2}
        async with asyncio.timeout(5.0):
            await consumer.read_new_partitions()  # the second has no leader, so its first offset is unknown
        assert consumer.positions() == {first: 7}
        assert consumer.assignment() == {first, second}
        consumer.seek(second, 3)
        await consumer.read_new_partitions()
        assert consumer.positions() == {first: 7, second: 3, TopicPartition("answers", 2): 0}
        await consumer.stop()

    asyncio.run(follow())
