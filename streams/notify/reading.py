"""Reads what notices follow from: what is predicted, what becomes of it, whose jobs there are, and what was told."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from models.records import Notice, Outcome, Prediction, Submit
from streams.broker.consumer import Consumer, started
from streams.broker.topics import Topics, event_topics
from streams.errors import UNDECODABLE, UserError
from streams.notify.metrics import NotifyCounts
from streams.notify.watching import Watching
from streams.settings import Settings

log = logging.getLogger(__name__)

MAX_BATCH_MESSAGES = 1000


class _Kind(msgspec.Struct):
    type: str | None = None


class Reader:
    """Reads the topics, and keeps in step with them the jobs that are watched and the lag that is shown."""

    def __init__(self, settings: Settings, watching: Watching, counts: NotifyCounts) -> None:
        self._settings = settings
        self._watching = watching
        self._counts = counts
        self._topics = Topics(settings.kafka.prefix)

    @asynccontextmanager
    async def caught_up(self, producer: Any, with_users: bool) -> AsyncGenerator[Any]:
        """A consumer of what is to come, after what is on the topics was taken in.

        First whose jobs there are and what was told, then the predictions, then which jobs have left.
        """
        topics = self._topics
        users = list(event_topics(self._settings)) if with_users else []
        consumer = Consumer(**self._settings.kafka.async_options(), enable_auto_commit=False)
        async with started(consumer, self._settings):
            positions: dict[TopicPartition, int] = {}
            for names in ([*users, topics.notices], [topics.predictions], [topics.outcomes]):
                places = [TopicPartition(name, part) for name in names for part in await producer.partitions_for(name)]
                positions |= await self._read_whole(consumer, places)
            following = {place: at for place, at in positions.items() if place.topic != topics.notices}
            consumer.assign(list(following))
            for place, at in following.items():
                consumer.seek(place, at)
            yield consumer

    async def _read_whole(self, consumer: Any, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Take in what these partitions hold now; gives where they ended."""
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            await self._read(consumer)
        return {place: await consumer.position(place) for place in places}

    async def follow(self, consumer: Any) -> None:
        """Take in what comes, without end.

        Raises:
            UserError: Kafka refuses.
        """
        while True:
            try:
                await self._read(consumer)
            except KafkaError as error:
                if not error.retriable:
                    raise UserError(f"kafka at {self._settings.kafka.bootstrap}: {error!r}") from None
                log.warning("cannot be read: %r; tried again", error)
                await asyncio.sleep(1.0)

    async def _read(self, consumer: Any) -> None:
        batches = await consumer.getmany(timeout_ms=1000, max_records=MAX_BATCH_MESSAGES)
        for message in (message for messages in batches.values() for message in messages):
            self._take(message.topic, message.value or b"", message.timestamp / 1000)
        lag: Counter[str] = Counter()
        for place in consumer.assignment():
            lag[place.topic] += max(0, (consumer.highwater(place) or 0) - await consumer.position(place))
        self._counts.lag = lag

    def _take(self, topic: str, value: bytes, stamp: float) -> None:
        """Take in a message; one that is not understood is passed over, for workers have told of it already."""
        watching, topics = self._watching, self._topics
        with suppress(*UNDECODABLE):
            if topic == topics.predictions:
                watching.predicted(msgspec.json.decode(value, type=Prediction), stamp)
            elif topic == topics.outcomes:
                watching.left(msgspec.json.decode(value, type=Outcome), stamp)
            elif topic == topics.notices:
                watching.was_told(msgspec.json.decode(value, type=Notice))
            elif msgspec.json.decode(value, type=_Kind).type == "submit":
                watching.submitted(msgspec.json.decode(value, type=Submit))
