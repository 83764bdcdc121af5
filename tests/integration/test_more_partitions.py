"""Topics get more partitions while they are read: no record is missed, and none is repeated without a group."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from itertools import count
from typing import Any

import msgspec
import pytest
from kafka import KafkaProducer

from deploy.local.stack import LocalStack
from models.site.shapes import Shape
from streams.broker.admin import admin, create_topics
from streams.broker.topics import Topics, partition_of
from streams.client.client import QuestionClient
from streams.client.watch import records
from streams.settings import KafkaSettings, Settings
from tests.streams.client.test_estimates import estimate
from tests.support import events
from tests.support.deployment import PARTITIONS, settings_on
from tests.support.fake_client import key
from tests.support.sizes import mostly_long

FIRST, NEW = range(PARTITIONS), range(PARTITIONS, 2 * PARTITIONS)
SITES = ("alder", "oak")  # one of them belongs to a new partition
SOON_S = 30.0


@pytest.fixture
def settings(local_stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings with separate topics, and a check for new partitions every second."""
    options = KafkaSettings.async_options
    monkeypatch.setattr(KafkaSettings, "async_options", lambda self: options(self) | {"metadata_max_age_ms": 1000})
    given = settings_on(local_stack.kafka.bootstrap, local_stack.redis.url, {}, {})
    create_topics(given)
    return given


class Sender:
    """Send predictions of jobs, and add partitions to the topic of predictions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._topic = Topics(settings.kafka.prefix).predictions

    def __call__(self, job: str, *partitions: int) -> None:
        with closing(KafkaProducer(**self._settings.kafka.client_options())) as producer:
            for part in partitions:
                value = msgspec.json.encode(events.prediction(job=f"{job}-{part}"))
                producer.send(self._topic, value, b"ctc", partition=part)

    def add_partitions(self) -> None:
        with admin(self._settings.kafka) as client:
            client.create_partitions({self._topic: 2 * PARTITIONS})


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not true():
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("from_beginning", mostly_long([False, True]))
@pytest.mark.parametrize("group", [None, "readers"])
def test_follower_resumes_and_reads_new_partitions_from_start(
    settings: Settings, group: str | None, from_beginning: bool
) -> None:
    send, came = Sender(settings), Counter[str]()

    def following() -> AsyncGenerator[Any]:
        return records(settings, None, None, False, group, from_beginning)

    async def follow() -> None:
        async with aclosing(following()) as found:
            async for record, _ in found:
                came[record.job] += 1

    async def look() -> None:
        send("old", *FIRST)
        task = asyncio.create_task(follow())
        begins = count()
        async with asyncio.timeout(SOON_S):
            while not came:
                send(f"begin{next(begins)}", 0)  # it starts at the end, after a lookup of that offset
                await asyncio.sleep(0.2)
        send("before", *FIRST)
        await until(lambda: all(came[f"before-{part}"] for part in FIRST))
        await asyncio.to_thread(send.add_partitions)
        send("after", *FIRST, *NEW)
        await until(lambda: all(came[f"after-{part}"] for part in (*FIRST, *NEW)))
        task.cancel()

    asyncio.run(look())
    assert came["old-1"] >= 1 if from_beginning else not came["old-1"]
    if group is None:
        assert set(came.values()) == {1}


def test_client_reads_estimates_of_new_partitions(settings: Settings) -> None:
    topic, shape = Topics(settings.kafka.prefix).estimates, Shape(4, 600.0)

    async def look() -> None:
        client = QuestionClient(settings)
        await client.start()
        try:
            with admin(settings.kafka) as broker:
                broker.create_partitions({topic: 2 * PARTITIONS})
            with closing(KafkaProducer(**settings.kafka.client_options())) as producer:
                for site in SITES:
                    part = partition_of(site, 2 * PARTITIONS)
                    producer.send(topic, estimate(site, shape), key(site, shape), partition=part)
            await until(lambda: client.cache.sites == sorted(SITES))
        finally:
            await client.stop()

    asyncio.run(look())
