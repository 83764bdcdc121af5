"""Answers questions about this worker's sites, beside the events; a question changes nothing.

Questions are read from the topic's end, without a group and without commits: a client without an answer asks again.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition

from models.engine.answers import answer
from models.records import UNKNOWN_SITE, AnyAnswer, AnyQuestion, DeadLetter, Name, NoAnswer
from streams.settings import KafkaSettings
from streams.topics import Topics
from streams.worker.intake import UNDECODABLE, Unreadable, dead_letter, read_question
from streams.worker.ledger import SiteHandle
from streams.worker.metrics import Metrics
from streams.worker.standing import site_time

log = logging.getLogger(__name__)

STALE_S = 10.0
"""Seconds after which a question is not answered: its client has stopped waiting."""

PAUSE_S = 5.0
"""Seconds before reading is tried again after it failed."""

WAIT_MS = 100
"""Milliseconds to wait for a question before the next look at which partitions are this worker's."""

_encode = msgspec.json.Encoder().encode


class Questions:
    """Answers the questions about this worker's sites.

    Parameters:
        handles: these sites, by name.
        partitions: gives the partitions that are this worker's now.
        producer: sends the answers; by default one of its own, so that answers do not wait for what events lead to.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        handles: Mapping[str, SiteHandle],
        partitions: Callable[[], frozenset[int]],
        metrics: Metrics,
        producer: AIOKafkaProducer | None = None,
    ) -> None:
        self._kafka = kafka
        self._topics = Topics(kafka.prefix)
        self._handles = handles
        self._partitions = partitions
        self._metrics = metrics
        self._producer = producer

    async def run(self) -> None:
        """Answer for ever; an error here must not stop the events."""
        while True:
            try:
                await self._listen()
            except Exception as error:
                log.warning("questions cannot be read: %r; tried again in %.0f s", error, PAUSE_S)
                await asyncio.sleep(PAUSE_S)

    async def _listen(self) -> None:
        options = self._kafka.async_options()
        reading = {"enable_auto_commit": False, "auto_offset_reset": "latest", "fetch_max_wait_ms": WAIT_MS}
        async with AsyncExitStack() as opened:
            consumer = AIOKafkaConsumer(**options, **reading)
            self._producer = AIOKafkaProducer(**options, acks=1, linger_ms=0)
            for client in (consumer, self._producer):
                opened.push_async_callback(client.stop)
                await client.start()
            await self._answer_all(consumer)

    async def _answer_all(self, consumer: AIOKafkaConsumer) -> None:
        read: frozenset[int] = frozenset()
        while True:
            if read != self._partitions():
                read = self._partitions()
                await self._read_from_now_on(consumer, read)
            if not read:
                await asyncio.sleep(WAIT_MS / 1000)
                continue
            for messages in (await consumer.getmany(timeout_ms=WAIT_MS)).values():
                for message in messages:
                    await self.take(message)

    async def _read_from_now_on(self, consumer: AIOKafkaConsumer, partitions: frozenset[int]) -> None:
        if not partitions:
            consumer.unsubscribe()
            return
        places = [TopicPartition(self._topics.questions, partition) for partition in partitions]
        consumer.assign(places)
        await consumer.seek_to_end(*places)

    async def take(self, message: ConsumerRecord) -> None:
        """Answer one question, or say why not."""
        if time.time() - message.timestamp / 1000 > STALE_S:
            self._metrics.asked("stale")
            return
        try:
            question = read_question(message.key, message.value)
        except Unreadable as error:
            self._metrics.asked("malformed")
            place = (message.topic, message.partition, message.offset, message.value)
            letter = dead_letter(error.reason, error.detail, None, *place)
            await self._send(self._topics.dead_letters, message.key, letter)
            if (asked := _whose(message.value)) is not None:
                refused = NoAnswer(id=asked.id, site=asked.site, reason=error.reason, detail=error.detail)
                await self._send(self._topics.answers, message.key, refused, message.partition)
            return
        told = self.answer(question)
        self._metrics.asked(told.reason if isinstance(told, NoAnswer) else "answered")
        await self._send(self._topics.answers, message.key, told, message.partition)
        self._metrics.answered(message.timestamp / 1000)

    async def _send(
        self, topic: str, key: bytes | None, record: AnyAnswer | DeadLetter, partition: int | None = None
    ) -> None:
        assert self._producer is not None
        await self._producer.send(topic, _encode(record), key, partition)

    def answer(self, question: AnyQuestion) -> AnyAnswer:
        """The answer, by the site's engine as it is now."""
        handle = self._handles.get(question.site)
        if handle is None:
            detail = f"no event of a site {question.site!r} has been seen"
            return NoAnswer(id=question.id, site=question.site, reason=UNKNOWN_SITE, detail=detail)
        try:
            return answer(question, handle.engine, site_time(handle.engine))
        except Exception as error:  # a fault of ours must neither stop other answers nor stay unseen
            log.exception("a question could not be answered", extra={"site": question.site})
            return NoAnswer(id=question.id, site=question.site, reason="failed", detail=repr(error))


class _QuestionHead(msgspec.Struct):
    """The id and site of a question that cannot be read as a whole."""

    id: Name
    site: Name


def _whose(value: bytes | None) -> _QuestionHead | None:
    try:
        return _decode_head(value or b"")
    except UNDECODABLE:
        return None


_decode_head = msgspec.json.Decoder(_QuestionHead).decode
