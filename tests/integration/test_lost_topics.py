"""Kafka restarts without its topics: readers wait and resume when the topics exist again."""

import asyncio
import time
from contextlib import closing

from kafka import KafkaProducer

from deploy.local.stack import LocalStack
from models.site.shapes import Shape
from streams.broker.admin import admin, create_topics
from streams.broker.topics import Topics, partition_of
from streams.client.client import QuestionClient
from tests.streams.client.test_estimates import estimate
from tests.support.deployment import PARTITIONS, settings_on
from tests.support.fake_client import key

LOOK_S = 3.0
MOST_CPU = 0.15
"""Maximum CPU share of a waiting client."""


def test_client_waits_for_deleted_topics_and_reads_them_again(local_stack: LocalStack) -> None:
    given = settings_on(local_stack.kafka.bootstrap, local_stack.redis.url, {}, {})
    topics = Topics(given.kafka.prefix)
    create_topics(given)
    shape = Shape(4, 600.0)

    def estimates_come() -> None:
        with closing(KafkaProducer(**given.kafka.client_options())) as producer:
            producer.send(
                topics.estimates,
                estimate("alder", shape),
                key("alder", shape),
                partition=partition_of("alder", PARTITIONS),
            )

    async def look() -> float:
        client = QuestionClient(given)
        await client.start()
        try:
            with admin(given.kafka) as kafka:
                kafka.delete_topics(list(topics.query_topics))
            await asyncio.sleep(1.0)
            begin = time.process_time()
            await asyncio.sleep(LOOK_S)
            used = time.process_time() - begin
            create_topics(given)
            await asyncio.to_thread(estimates_come)
            async with asyncio.timeout(30.0):
                while not client.cache.sites:
                    await asyncio.sleep(0.1)
            return used / LOOK_S
        finally:
            await client.stop()

    assert asyncio.run(look()) < MOST_CPU
