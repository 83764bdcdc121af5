"""The Kafka client: sends questions to the workers and caches grid estimates and outcomes.

A question is sent to the partition of its site, and so to the worker that serves the site. Answers are read without a
consumer group, from the moment at which the client starts. Grid estimates are read from the beginning of their topic,
outcomes from near the end of theirs; both are kept in memory.
"""

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from models.records import AnyAnswer, AnyQuestion, JobQuestion
from streams.broker.consumer import Consumer, broker_answers
from streams.broker.topics import Topics
from streams.client.estimates import EstimateCache
from streams.client.pending_questions import AnswerTimeout, PendingQuestions, WorkerCompiling, new_id, on_behalf_of
from streams.client.probe_check import ProbeCheck
from streams.errors import UNDECODABLE, Unreachable, UserError
from streams.process.compile_progress import compile_progress
from streams.settings import Settings

log = logging.getLogger(__name__)
for _name in ("aiokafka", "kafka"):  # their warnings become our errors, or go to a configured log
    logging.getLogger(_name).addHandler(logging.NullHandler())

INITIAL_OUTCOMES = 200  # number of outcomes per partition that are read at the start

MAX_FETCH_WAIT_MS = 100
"""Maximum time that a broker holds a fetch without new data; with new data it answers immediately."""

REQUEST_TIMEOUT_MS = 5000  # how long a client waits for a broker's answer
MAX_BATCH_MESSAGES = 500  # how many messages are taken in before other tasks get their turn
BROKER_TIMEOUT_S = 1.0  # a broker that does not answer within this time is taken to be away
HEARD_WITHIN_S = 30.0  # a worker that sent something within this time is taken to run
NO_JOB = "-"  # the job of a question whose answer does not matter
COMPILING_TIMEOUT_S = 1.0  # how long a client waits for another worker while the one of this machine compiles
RETRY_PAUSE_S = 1.0  # the pause before the next try, after reading failed or while no broker answers
_encode = msgspec.json.Encoder().encode


class QuestionClient:
    """Send questions; read answers, estimates and, by default, outcomes.

    After a successful start it tolerates a Kafka outage.
    """

    def __init__(self, settings: Settings, outcomes: bool = True) -> None:
        self.cache = EstimateCache(settings.topics.estimates_retention_hours)
        self.startup_problem: str | None = "reading the grid estimates"
        """Reason why the client is not ready yet; None when it is."""
        self.silent_since: dict[str, float] = {}
        """By site, since when its worker has not answered (Unix seconds)."""
        self._kafka = settings.kafka
        _warn_in_the_clear(settings.kafka.bootstrap)
        self._tls = settings.kafka.tls_context()
        self._settings = settings
        self._topics = Topics(settings.kafka.prefix)
        self._cached_topics = [self._topics.estimates, *([self._topics.outcomes] if outcomes else [])]
        self._client_id = f"{settings.kafka.username or os.getuid()}@{socket.gethostname()}"
        self._pending = PendingQuestions(self._send, settings.serve.answer_timeout_seconds)
        self._open = AsyncExitStack()
        self._producer: Any = None
        self._answers: Any = None
        self._cached: Any = None
        self._heard_at = float("-inf")  # monotonic time of the latest message of a worker
        self._broker_problem: str | None = None
        self._broker_check, self._worker_check = ProbeCheck(self._query_broker), ProbeCheck(self._query_worker)

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """Send a question and return its answer.

        Raises:
            UserError: as `PendingQuestions.ask`; this user lacks the permission.
            Unreachable: the client has not started.
            WorkerCompiling: no worker answers, and one of this machine compiles.
        """
        self.check_started()
        if question.client_id is None:
            question = msgspec.structs.replace(question, client_id=on_behalf_of.get() or self._client_id)
        if question.wait_s is None:
            question = msgspec.structs.replace(question, wait_s=self._settings.serve.answer_timeout_seconds)
        progress = self.compiling()
        try:
            async with asyncio.timeout(None if progress is None else COMPILING_TIMEOUT_S):
                answer = await self._pending.ask(question)
        except (AnswerTimeout, TimeoutError):
            self._heard_at = float("-inf")
            if self.cache.knows(question.site):
                self.silent_since.setdefault(question.site, self.cache.clock())
            if (progress := compile_progress() or progress) is not None:
                raise WorkerCompiling(not_ready(progress)) from None
            raise
        self.silent_since.pop(question.site, None)
        self._heard_at = time.monotonic()
        return answer

    def compiling(self) -> str | None:
        """Return the progress of a worker that compiles on this machine.

        None if none does, or if a worker has sent something lately and has answered the last question.
        """
        return None if time.monotonic() - self._heard_at < HEARD_WITHIN_S else compile_progress()

    def check_started(self) -> None:
        """Raise `Unreachable` if the client is not ready yet."""
        if self.startup_problem is not None:
            raise Unreachable(self.startup_problem)

    async def problem(self) -> str | None:
        """Return the reason why no question can be answered now; None if there is none.

        Workers are silent for a long time if no event arrives. So while a worker of this machine compiles, a question
        finds out whether another one answers. The broker and the workers are each queried at most once a second. The
        result is that of the last check if a new one takes long.
        """
        if self.startup_problem is not None:
            return self.startup_problem
        if (problem := await self._check_broker()) is not None:
            return problem
        if compile_progress() is None:
            return None
        await self._worker_check.refresh()
        progress = self.compiling()
        return None if progress is None else not_ready(progress)

    async def _check_broker(self) -> str | None:
        await self._broker_check.refresh()
        return self._broker_problem

    async def _query_broker(self) -> None:
        answers = await broker_answers(self._kafka.bootstrap, self._tls, BROKER_TIMEOUT_S)
        self._broker_problem = None if answers else f"kafka: no broker answers at {self._kafka.bootstrap}"

    async def _query_worker(self) -> None:
        """Query the site with the latest estimates; without an answer, no worker counts as heard from."""
        if (site := self.cache.latest_site()) is not None:
            with suppress(UserError, TimeoutError):
                async with asyncio.timeout(COMPILING_TIMEOUT_S):
                    await self.ask(JobQuestion(id=new_id(), site=site, job=NO_JOB))
                    return
        self._heard_at = float("-inf")

    async def start(self) -> None:
        """Connect, and read the estimates and outcomes that are on the topics.

        Raises:
            UserError: Kafka cannot be reached or refuses, or topics are missing.
        """
        try:
            async with AsyncExitStack() as opened:
                await self._start(opened)
                self._open = opened.pop_all()
        except (KafkaError, OSError) as error:
            from streams.broker.admin import (
                check_topics,  # with kafka-python, which takes longer to import than an answer
            )

            await asyncio.to_thread(
                check_topics, self._settings, self._topics.query_topics
            )  # its errors contain the remedy
            raise Unreachable(f"kafka at {self._kafka.bootstrap}: {error}") from None
        self.startup_problem = None

    async def keep_trying(self) -> None:
        """Start, and try again until it works."""
        while True:
            try:
                return await self.start()
            except UserError as error:
                if self.startup_problem != str(error):
                    log.warning("not ready yet: %s", error)
                self.startup_problem = str(error)
                await asyncio.sleep(RETRY_PAUSE_S)

    async def stop(self) -> None:
        """Close all connections. Open questions remain unanswered."""
        self._broker_check.stop()
        self._worker_check.stop()
        await self._open.aclose()

    async def _start(self, opened: AsyncExitStack) -> None:
        options = self._kafka.async_options() | {"request_timeout_ms": REQUEST_TIMEOUT_MS}
        reading = {"enable_auto_commit": False, "fetch_max_wait_ms": MAX_FETCH_WAIT_MS}
        self._producer = AIOKafkaProducer(**options, acks=1, linger_ms=0)
        self._answers = Consumer(**options, **reading, auto_offset_reset="latest")
        self._cached = Consumer(**options, **reading, auto_offset_reset="earliest")
        clients = (self._producer, self._answers, self._cached)
        for client in clients:
            opened.push_async_callback(_close, client)
        await asyncio.gather(*(client.start() for client in clients))
        # Both before the first fetch, behind which a request would wait.
        answers, estimates = [await self._partitions(names) for names in ([self._topics.answers], self._cached_topics)]
        self._answers.assign(answers)
        await self._answers.seek_to_end(*answers)
        await self._catch_up(self._cached, estimates)
        for consumer, take in ((self._answers, self._take_answer), (self._cached, self._take_cached)):
            task = asyncio.create_task(self._follow(consumer, take))
            opened.push_async_callback(_cancel, task)

    async def _partitions(self, topics: Sequence[str]) -> list[TopicPartition]:
        """Return the partitions of these topics.

        Raises:
            UnknownTopicOrPartitionError: a topic is missing, or hidden from this user.
        """
        visible = await self._answers.topics()
        if missing := [topic for topic in topics if topic not in visible]:
            raise UnknownTopicOrPartitionError(missing)
        places: list[TopicPartition] = await self._answers.places(*topics)
        return places

    async def _catch_up(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        consumer.assign(partitions)
        self._count_partitions()
        begins, ends = await asyncio.gather(consumer.beginning_offsets(partitions), consumer.end_offsets(partitions))
        for partition in partitions:
            tail = ends[partition] - INITIAL_OUTCOMES if partition.topic == self._topics.outcomes else 0
            consumer.seek(partition, max(begins[partition], tail))
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            batches = await consumer.getmany(timeout_ms=1000, max_records=MAX_BATCH_MESSAGES)
            if not batches and await consumer.end_offsets(partitions):
                return  # the broker answers, so compaction has removed what is left
            self._take(batches, self._take_cached)

    def _count_partitions(self) -> None:
        self.cache.partitions = sum(place.topic == self._topics.estimates for place in self._cached.assignment())

    async def _follow(self, consumer: Any, take: Callable[[Any], None]) -> None:
        while True:
            try:
                await consumer.read_new_partitions()
                self._count_partitions()
                batches = await consumer.getmany(timeout_ms=1000, max_records=MAX_BATCH_MESSAGES)
                if any(batches.values()):
                    self._heard_at = time.monotonic()
                self._take(batches, take)
            except Exception as error:  # whatever fails, later messages must still be read
                log.warning("Cannot read from Kafka: %r; retrying in %.0f s", error, RETRY_PAUSE_S)
                await asyncio.sleep(RETRY_PAUSE_S)

    def _take(self, batches: Mapping[Any, Iterable[Any]], take: Callable[[Any], None]) -> None:
        for messages in batches.values():
            for message in messages:
                try:
                    take(message)
                except UNDECODABLE as error:
                    place = {"partition": message.partition, "offset": message.offset}
                    log.warning("Skipped a message of %s: %s", message.topic, error, extra=place)

    def _take_answer(self, message: Any) -> None:
        self._pending.resolve(message.value or b"")

    def _take_cached(self, message: Any) -> None:
        if message.topic == self._topics.estimates:
            self.cache.put_estimate(message.key or b"", message.value, message.partition, message.timestamp / 1000)
        else:
            self.cache.put_outcome(message.value or b"")

    async def _send(self, question: AnyQuestion) -> None:
        try:
            await self._producer.send_and_wait(self._topics.questions, _encode(question), question.site.encode())
        except TopicAuthorizationFailedError:
            from streams.broker.admin import refused

            raise refused(self._kafka, "write", self._topics.questions) from None
        except KafkaError as error:
            kind = Unreachable if error.retriable else UserError
            raise kind(f"kafka at {self._kafka.bootstrap}: {error!r}") from None


def not_ready(progress: str) -> str:
    """Return the problem of a worker that compiles."""
    return f"the worker is not ready: {progress}"


async def _close(client: Any) -> None:
    """Close a Kafka client, also one that never started or that waits for a broker's answer."""
    with suppress(KafkaError, OSError):
        async with asyncio.timeout(BROKER_TIMEOUT_S):
            await client.stop()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _warn_in_the_clear(bootstrap: str) -> None:
    """Let aiokafka warn of plaintext passwords only for remote brokers: local ones do not send them over a network."""
    hosts = {address.strip().rpartition(":")[0] for address in bootstrap.split(",")}
    logger = logging.getLogger("aiokafka.conn")
    logger.removeFilter(_is_of_another_kind)
    if hosts <= {"127.0.0.1", "localhost", "[::1]"}:
        logger.addFilter(_is_of_another_kind)


def _is_of_another_kind(record: logging.LogRecord) -> bool:
    return not str(record.msg).endswith(" in the clear")
