"""Answers questions about this worker's sites, beside the events; a question changes nothing.

Questions are read from the topic's end, without a group and without commits: a client without an answer asks again.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata

from models.engine.asking.answers import answer
from models.records import UNKNOWN_SITE, AnyAnswer, AnyQuestion, DeadLetter, Name, NoAnswer, SiteAnswer
from streams.settings import KafkaSettings
from streams.topics import Topics
from streams.worker.answer_size import encoded
from streams.worker.freshness import Freshness
from streams.worker.intake import UNDECODABLE, Unreadable, dead_letter, read_question
from streams.worker.metrics import Metrics
from streams.worker.question_ages import QuestionAges
from streams.worker.standing import site_time
from streams.worker.stored import SiteHandle

log = logging.getLogger(__name__)

STALE_S = 10.0
"""Seconds after which a question is not answered: its client has stopped waiting."""

PAUSE_S = 5.0
"""Seconds before reading is tried again after it failed."""

WAIT_MS = 100
"""Milliseconds to wait for a question before the next look at which partitions are this worker's."""


class Questions:
    """Answers the questions about this worker's sites.

    Parameters:
        handles: these sites, by name.
        partitions: gives the partitions that are this worker's now.
        producer: sends the answers; by default one of its own, so that answers do not wait for what events lead to.
        freshness: tells how old what is known of a site is.
        unknown_fields: how often a site's events had each field that no event has.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        handles: Mapping[str, SiteHandle],
        partitions: Callable[[], frozenset[int]],
        metrics: Metrics,
        producer: AIOKafkaProducer | None = None,
        freshness: Freshness | None = None,
        unknown_fields: Callable[[str], dict[str, int]] = lambda _: {},
    ) -> None:
        self._kafka = kafka
        self._topics = Topics(kafka.prefix)
        self._handles = handles
        self._partitions = partitions
        self._metrics = metrics
        self._producer = producer
        self._ages = QuestionAges()
        self._freshness = freshness or Freshness()
        self._unknown_fields = unknown_fields

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
            found = await consumer.getmany(timeout_ms=WAIT_MS)
            for place in consumer.assignment():
                await self._take_all(consumer, place, found.get(place, []))

    async def _read_from_now_on(self, consumer: AIOKafkaConsumer, partitions: frozenset[int]) -> None:
        if not partitions:
            consumer.unsubscribe()
            return
        places = [TopicPartition(self._topics.questions, partition) for partition in partitions]
        consumer.assign(places)
        await consumer.seek_to_end(*places)
        self._ages.begin(partitions)

    async def _take_all(
        self, consumer: AIOKafkaConsumer, place: TopicPartition, messages: list[ConsumerRecord]
    ) -> None:
        end = consumer.highwater(place)
        to_end = not messages or (end is not None and messages[-1].offset + 1 >= end)
        for message, age_s in zip(messages, self._ages.ages(place.partition, messages, to_end), strict=True):
            try:
                await self.take(message, age_s)
            except KafkaError as error:
                if error.retriable:
                    raise
                # One question must not silence those that follow.
                log.warning("a question could not be answered: %r", error, extra=_place_of(message))
                self._metrics.asked("failed")

    async def take(self, message: ConsumerRecord, age_s: float = 0.0) -> None:
        """Answer one question, or say why not.

        Parameters:
            age_s: its age, as far as it is certain.
        """
        if age_s > STALE_S:
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
        sent = await self._send(self._topics.answers, message.key, told, message.partition)
        sent.add_done_callback(partial(self._answered, message))

    def _answered(self, message: ConsumerRecord, sent: "asyncio.Future[RecordMetadata]") -> None:
        """Measure how long the answer took, from stamp to stamp: both are the broker's."""
        if sent.cancelled():
            return
        if error := sent.exception():
            log.warning("an answer was not taken by the broker: %r", error, extra=_place_of(message))
            return
        self._metrics.answered((sent.result().timestamp - message.timestamp) / 1000)

    async def _send(
        self, topic: str, key: bytes | None, record: AnyAnswer | DeadLetter, partition: int | None = None
    ) -> "asyncio.Future[RecordMetadata]":
        assert self._producer is not None
        sent: asyncio.Future[RecordMetadata] = await self._producer.send(topic, encoded(record), key, partition)
        return sent

    def answer(self, question: AnyQuestion) -> AnyAnswer:
        """The answer, by the site's engine as it is now."""
        handle = self._handles.get(question.site)
        if handle is None:
            detail = f"no event of a site {question.site!r} has been seen"
            return NoAnswer(id=question.id, site=question.site, reason=UNKNOWN_SITE, detail=detail)
        try:
            told = self._freshness.marked(answer(question, handle.engine, site_time(handle.engine)), handle)
            if isinstance(told, SiteAnswer):
                told = msgspec.structs.replace(
                    told, unknown_fields=self._unknown_fields(question.site), operations=handle.operations
                )
            return told
        except Exception as error:  # a fault of ours must neither stop other answers nor stay unseen
            log.exception("a question could not be answered", extra={"site": question.site})
            return NoAnswer(id=question.id, site=question.site, reason="failed", detail=repr(error))


def _place_of(message: ConsumerRecord) -> dict[str, int]:
    return {"partition": message.partition, "offset": message.offset}


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
