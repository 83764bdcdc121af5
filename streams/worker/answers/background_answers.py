"""Answer questions about this worker's sites in the background; a question changes no state.

Questions are read from the end of the topic, without a group and without commits: a client without an answer retries.
They wait in a bounded queue and are answered one by one between events. Each question gets an answer. A refusal for
lack of time is sent immediately.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any
from zlib import crc32

import msgspec
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import RecordMetadata
from prometheus_client import Counter, Histogram

from models.records import (
    BUSY,
    AnyAnswer,
    DeadLetter,
    JobsAnswer,
    Name,
    NoAnswer,
    SiteAnswer,
    WaitAnswer,
)
from streams.broker.consumer import Consumer
from streams.broker.topics import EVENT_MESSAGE_BYTES, Topics
from streams.errors import UNDECODABLE
from streams.settings import KafkaSettings, QuestionSettings
from streams.worker.answers.answering import Answering
from streams.worker.answers.question_queue import DroppedQuestion, MessageAge, WaitingQuestion, WaitingQuestions
from streams.worker.answers.time_slicer import CrashingWork, TimeSlicer
from streams.worker.intake.messages import Unreadable, dead_letter, read_question

MAX_ANSWER_BYTES = EVENT_MESSAGE_BYTES - (32 << 10)
"""Maximum size of an answer; the rest of a message is for its key and Kafka's headers."""

TOO_LARGE = "too_large"  # reason for an answer that cannot be truncated
_encode = msgspec.json.Encoder().encode


def encoded(record: AnyAnswer | DeadLetter, most: int = MAX_ANSWER_BYTES) -> bytes:
    """Encode the record as JSON, truncated to `most` bytes.

    A user's latest jobs are kept. Of a queue, the jobs that have waited longest are kept. Of a site, the queue is
    truncated first, then the oldest weeks and the last queues. `more` counts the removed entries.
    """
    value = _encode(record)
    if len(value) <= most or isinstance(record, DeadLetter):
        return value
    value = _encode(_cut(record, len(value) - most))
    if len(value) <= most:
        return value
    detail = f"the answer has {len(value)} bytes; a message takes {most}"
    return _encode(NoAnswer(id=record.id, site=record.site, reason=TOO_LARGE, detail=detail))


_CUT: dict[type, dict[str, bool]] = {
    JobsAnswer: {"jobs": True},
    SiteAnswer: {"queued": False, "weeks": True, "queues": False},
}
"""Lists of an answer that may be truncated, in this order, and whether from the front."""


def _cut(answer: AnyAnswer, excess: int) -> AnyAnswer:
    """Shorten the answer by at least `excess` bytes, as far as its lists permit."""
    excess += len(str(1 << 62))  # because `more` may grow
    left_out, changes = 0, dict[str, Any]()
    for name, first in _CUT.get(type(answer), {}).items():
        entries = deque(getattr(answer, name))
        while entries and excess > 0:
            excess -= len(_encode(entries.popleft() if first else entries.pop())) + 1
            left_out += 1
        changes[name] = list(entries)
    return msgspec.structs.replace(answer, more=answer.more + left_out, **changes) if changes else answer  # type: ignore[union-attr]


log = logging.getLogger(__name__)

PAUSE_S = 5.0  # pause before a retry of a failed read, seconds
TAKE_S = 0.002  # maximum time for queueing questions before other tasks run, seconds
SHED_S = 0.05  # polling interval for late questions, seconds
WAIT_MS = 100  # poll timeout, after which the assignment is checked, milliseconds


@dataclass(eq=False)
class Questions:
    """Answer the questions about this worker's sites.

    Args:
        partitions: Returns the current partitions of this worker.
        count: Counts questions by outcome.
        latency: Time from a question's broker timestamp to that of its answer, seconds.
        answering: Computes the answers.
        turns: Gives events priority.
        producer: Sends the answers; by default a separate one, so that answers do not wait for the records of events.
    """

    kafka: KafkaSettings
    settings: QuestionSettings
    partitions: Callable[[], frozenset[int]]
    count: Counter
    latency: Histogram
    answering: Answering
    turns: TimeSlicer = field(default_factory=TimeSlicer)
    producer: AIOKafkaProducer | None = None

    def __post_init__(self) -> None:
        self._topics = Topics(self.kafka.prefix)
        bounds = (self.settings.max_pending, self.settings.max_pending_per_client, self.settings.max_wait_seconds)
        self._waiting = WaitingQuestions(*bounds)
        self._age = MessageAge()

    async def run(self) -> None:
        """Answer questions in an endless loop; an error must not stop the events."""
        while True:
            try:
                await self._listen()
            except Exception as error:
                log.warning("Cannot read questions: %r; retrying in %.0f s", error, PAUSE_S)
                await asyncio.sleep(PAUSE_S)

    async def _listen(self) -> None:
        options = self.kafka.async_options()
        reading = {"enable_auto_commit": False, "auto_offset_reset": "latest", "fetch_max_wait_ms": WAIT_MS}
        async with AsyncExitStack() as opened:
            consumer = Consumer(**options, **reading)
            self.producer = AIOKafkaProducer(**options, acks=1, linger_ms=0)
            for client in (consumer, self.producer):
                opened.push_async_callback(client.stop)
                await client.start()
            self._waiting.clear()
            async with asyncio.TaskGroup() as tasks:
                for work in (self._read_all(consumer), self._answer_all(), self._shed_all()):
                    tasks.create_task(work)

    async def _answer_all(self) -> None:
        while True:
            waiting = await self._waiting.next()
            await self._surviving(waiting.message, self._answer(waiting))

    async def _shed_all(self) -> None:
        while True:
            for dropped in self._waiting.expired():
                await self._surviving(dropped.waited.message, self._refuse(dropped))
                await asyncio.sleep(0)
            await asyncio.sleep(SHED_S)

    async def _read_all(self, consumer: Consumer) -> None:
        read: frozenset[int] = frozenset()
        while True:
            if read != self.partitions():
                read = self.partitions()
                await self._read_from_now_on(consumer, read)
            if not read:
                await asyncio.sleep(WAIT_MS / 1000)
                continue
            found = await consumer.getmany(timeout_ms=WAIT_MS)
            await self._take_all(chain.from_iterable(found.values()))

    async def _read_from_now_on(self, consumer: Consumer, partitions: frozenset[int]) -> None:
        if not partitions:
            consumer.unsubscribe()
            return
        places = [TopicPartition(self._topics.questions, partition) for partition in partitions]
        consumer.assign(places)
        await consumer.seek_to_end(*places)

    async def _take_all(self, messages: Iterable[ConsumerRecord]) -> None:
        start_s = time.monotonic()
        for message in messages:
            await self._surviving(message, self.take(message))
            if time.monotonic() - start_s > TAKE_S:
                await asyncio.sleep(0)  # a flood of questions must not delay other tasks
                start_s = time.monotonic()

    async def _surviving(self, message: ConsumerRecord, work: Awaitable[None]) -> None:
        """Process one question; a permanent error must not stop later questions."""
        try:
            await work
        except KafkaError as error:
            if error.retriable:
                raise
            log.warning("Cannot answer question: %r", error, extra=_place_of(message))
            self.count.labels("failed").inc()

    async def take(self, message: ConsumerRecord) -> None:
        """Queue a question, or send the reason why it is refused."""
        try:
            question = read_question(message.key, message.value)
        except Unreadable as error:
            self.count.labels("malformed").inc()
            place = (message.topic, message.partition, message.offset, message.value)
            letter = dead_letter(error.reason, error.detail, None, *place)
            await self._send(self._topics.dead_letters, message.key, letter)
            if (head := _whose(message.value)) is not None:
                refused = NoAnswer(id=head.id, site=head.site, reason=error.reason, detail=error.detail)
                await self._send(self._topics.answers, message.key, refused, message.partition)
            return
        if (dropped := self._waiting.put(question, message, self._age.of(message))) is not None:
            await self._refuse(dropped)

    async def _refuse(self, dropped: DroppedQuestion) -> None:
        answer = self.answering.without_work(dropped.waited.question, dropped.reason)
        await self._send_answer(dropped.waited.message, answer)

    async def _answer(self, waiting: WaitingQuestion) -> None:
        """Answer a question in its turn; without the engine if it is too late."""

        def work() -> AnyAnswer:
            if self._waiting.is_late(waiting):
                return self.answering.without_work(waiting.question, BUSY)
            return self.answering.answer(waiting.question)

        question = waiting.question
        digest = crc32(msgspec.json.encode(msgspec.structs.replace(question, id="-", client_id=None)))
        try:
            answer = await self.turns.take(work, self.settings.cpu_share, (question.site, "question", digest))
        except CrashingWork:
            detail = "workers have crashed on this question"
            answer = NoAnswer(id=question.id, site=question.site, reason="failed", detail=detail)
        await self._send_answer(waiting.message, answer)

    async def _send_answer(self, message: ConsumerRecord, answer: AnyAnswer) -> None:
        self.count.labels(_outcome(answer)).inc()
        sent = await self._send(self._topics.answers, message.key, answer, message.partition)
        sent.add_done_callback(partial(self._answered, message))

    def _answered(self, message: ConsumerRecord, sent: "asyncio.Future[RecordMetadata]") -> None:
        """Measure the latency of the answer between two broker timestamps."""
        if sent.cancelled():
            return
        if error := sent.exception():
            log.warning("Cannot send answer: %r", error, extra=_place_of(message))
            return
        self.latency.observe(max(sent.result().timestamp - message.timestamp, 0) / 1000)

    async def _send(
        self, topic: str, key: bytes | None, record: AnyAnswer | DeadLetter, partition: int | None = None
    ) -> "asyncio.Future[RecordMetadata]":
        assert self.producer is not None
        sent: asyncio.Future[RecordMetadata] = await self.producer.send(topic, encoded(record), key, partition)
        return sent


def _outcome(answer: AnyAnswer) -> str:
    """Return the outcome of a question as a metric label."""
    if isinstance(answer, NoAnswer):
        return answer.reason
    return "grid" if isinstance(answer, WaitAnswer) and answer.source == "grid" else "answered"


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
