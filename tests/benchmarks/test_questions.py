"""Latency of questions to a worker while events arrive, compared with an echo through the broker."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from statistics import quantiles
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from models.records import AnyEvent, NoAnswer, WaitQuestion
from streams.client.client import MAX_FETCH_WAIT_MS, QuestionClient
from streams.client.pending_questions import new_id
from tests.support.deployment import PARTITIONS, Deploy, Deployment, busy_sites, until

SITES = ("alder", "birch", "cedar")
JOBS = 2500
BEFORE = 2000
"""Events processed before the first question."""

EVENTS_PACE = 300
QUESTIONS_PACE = 50
"""Questions a second."""

QUESTIONS = 500
WARMING_UP = 100
MOST_RATIO = 50.0
"""Maximum ratio of the median to that of the bare echo. Measured values are printed."""


@pytest.fixture(scope="module")
def events() -> list[AnyEvent]:
    """Return the events of three busy sites."""
    return busy_sites(SITES, JOBS)


async def paced(ask: Callable[[int], Awaitable[Any]]) -> list[float]:
    """Return the time of each call (s), started at a fixed rate."""
    begin = time.perf_counter()

    async def timed(number: int) -> float:
        due = begin + number / QUESTIONS_PACE
        await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        await ask(number)
        return time.perf_counter() - due

    taken = await asyncio.gather(*map(timed, range(WARMING_UP + QUESTIONS)))
    return taken[WARMING_UP:]


async def echoes(here: Deployment) -> list[float]:
    """Measure echoes through a topic, with clients like those of questions."""
    options, topic = here.settings.kafka.async_options(), here.topics.answers
    producer = AIOKafkaProducer(**options, acks=1, linger_ms=0)
    consumer = AIOKafkaConsumer(**options, enable_auto_commit=False, fetch_max_wait_ms=MAX_FETCH_WAIT_MS)
    await asyncio.gather(producer.start(), consumer.start())
    places = [TopicPartition(topic, part) for part in range(PARTITIONS)]
    consumer.assign(places)
    await consumer.seek_to_end(*places)
    back: dict[bytes, asyncio.Event] = {}

    async def note_activity() -> None:
        async for message in consumer:
            back[message.key].set()

    async def send(number: int) -> None:
        key = str(number).encode()
        back[key] = asyncio.Event()
        await producer.send(topic, b"", key, number % PARTITIONS)
        await back[key].wait()

    hearing = asyncio.create_task(note_activity())
    try:
        return await paced(send)
    finally:
        hearing.cancel()
        await asyncio.gather(producer.stop(), consumer.stop())


async def questions(here: Deployment) -> list[float]:
    """Measure what-if questions of changing sites and shapes."""
    client = QuestionClient(here.settings)
    await client.start()

    async def ask(number: int) -> None:
        site, cpus = SITES[number % len(SITES)], 1 + number % 128
        answer = await client.ask(WaitQuestion(id=new_id(), site=site, cpus=cpus, walltime=60.0 * number))
        assert not isinstance(answer, NoAnswer)

    try:
        return await paced(ask)
    finally:
        await client.stop()


def test_question_latency_is_near_kafka_echo(deploy: Deploy, events: list[AnyEvent]) -> None:
    here, flowing = deploy(history=6000), iter(events)
    here.worker.start()
    here.send(islice(flowing, BEFORE))
    until(lambda: _sites(here) == sorted(SITES))
    with here.fed(flowing, EVENTS_PACE):
        bare = asyncio.run(echoes(here))
        ours = asyncio.run(questions(here))
    (bare_50, bare_99), (our_50, our_99) = (percentiles(taken) for taken in (bare, ours))
    print(f"\necho p50 {bare_50:.1f} ms, p99 {bare_99:.1f} ms; question p50 {our_50:.1f} ms, p99 {our_99:.1f} ms")
    assert len(ours) == len(bare) == QUESTIONS
    assert our_50 <= MOST_RATIO * bare_50


def _sites(here: Deployment) -> list[str]:
    async def look() -> list[str]:
        client = QuestionClient(here.settings, outcomes=False)
        await client.start()
        try:
            return client.cache.sites
        finally:
            await client.stop()

    return asyncio.run(look())


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile (ms)."""
    cuts = quantiles(seconds, n=100)
    return 1000 * cuts[49], 1000 * cuts[98]
