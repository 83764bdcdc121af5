"""Asks the workers, and knows what stands to be read without asking: the client of the topics of questions.

A question goes to the partition of its site, so to the worker that has the site; answers are read from now on, without
a group, by whoever has asked. What stands is a table in memory: standing estimates from their topic's beginning, and
the latest outcomes from the end of theirs.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Protocol

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from models.records import AnyAnswer, AnyQuestion
from streams.client.estimates import Board
from streams.client.questions import Desk
from streams.errors import Unreachable, UserError
from streams.settings import Settings
from streams.topics import Topics, check_topics, refused
from streams.worker.intake import UNDECODABLE

log = logging.getLogger(__name__)

OUTCOMES_READ = 200
"""Outcomes of a partition that are read at the start."""

FETCH_MS = 100
"""The longest wait of a broker for news; it answers at once when there are any."""

REQUEST_MS = 5000
"""Within which a broker must answer a client's request."""

AT_ONCE = 500
"""Messages that are taken in before others have their turn."""

PATIENCE_S = 1.0
"""Within which a broker must answer to be there."""

PAUSE_S = 1.0
"""Before another try, where reading failed or a broker is away."""

_encode = msgspec.json.Encoder().encode


class Asking(Protocol):
    """What those who want to know something need: what stands, and somebody to ask."""

    board: Board
    trouble: str | None
    """Why nothing is known yet; None where what stands has been read."""

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """The answer; see `Desk.ask`."""
        ...

    async def hindrance(self) -> str | None:
        """Why nothing can be asked just now; None where it can."""
        ...


class Asker:
    """The connections: questions out; answers, estimates and outcomes in. Once started it gets over a Kafka that is
    away for a while.

    Parameters:
        outcomes: those too.
    """

    def __init__(self, settings: Settings, outcomes: bool = True) -> None:
        self.board = Board(settings.topics.estimates_hours)
        self.trouble: str | None = "reading the standing estimates"
        """Why it is not started; None where it is."""
        self._kafka = settings.kafka
        self._settings = settings
        self._topics = Topics(settings.kafka.prefix)
        self._told = [self._topics.estimates, *([self._topics.outcomes] if outcomes else [])]
        self._desk = Desk(self._send, settings.serve.answer_seconds)
        self._open = AsyncExitStack()
        self._producer: Any = None
        self._answers: Any = None
        self._looked = (0.0, "not looked yet")

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """The answer.

        Raises:
            Silent: no worker has answered within `serve.answer_seconds`.
            Unreachable: Kafka is away, or nothing has been connected yet.
            Busy: too many questions are open.
            UserError: we may not ask.
        """
        if self.trouble is not None:
            raise Unreachable(self.trouble)
        return await self._desk.ask(question)

    async def hindrance(self) -> str | None:
        """Why nothing can be asked just now; None where it can. What was found is told again for a second."""
        if self.trouble is not None:
            return self.trouble
        since, found = self._looked
        if time.monotonic() - since > PATIENCE_S:
            found = "" if await self._answered() else f"kafka: no broker answers at {self._kafka.bootstrap}"
            self._looked = (time.monotonic(), found)
        return found or None

    async def start(self) -> None:
        """Connect, and read what stands.

        Raises:
            UserError: Kafka cannot be reached or refuses, or topics are missing.
        """
        try:
            async with AsyncExitStack() as opened:
                await self._start(opened)
                self._open = opened.pop_all()
        except (KafkaError, OSError) as error:
            await asyncio.to_thread(check_topics, self._settings, self._topics.asking)  # which says it better
            raise Unreachable(f"kafka at {self._kafka.bootstrap}: {error}") from None
        self.trouble = None

    async def keep_trying(self) -> None:
        """Start, however long it takes until that can be done."""
        while True:
            try:
                return await self.start()
            except UserError as error:
                if self.trouble != str(error):
                    log.warning("not ready yet: %s", error)
                self.trouble = str(error)
                await asyncio.sleep(PAUSE_S)

    async def stop(self) -> None:
        """Let go of everything; questions that are on their way are given up."""
        await self._open.aclose()

    async def _start(self, opened: AsyncExitStack) -> None:
        options = self._kafka.async_options() | {"request_timeout_ms": REQUEST_MS}
        reading = {"enable_auto_commit": False, "fetch_max_wait_ms": FETCH_MS}
        self._producer = AIOKafkaProducer(**options, acks=1, linger_ms=0)
        self._answers = AIOKafkaConsumer(**options, **reading, auto_offset_reset="latest")
        told = AIOKafkaConsumer(**options, **reading, auto_offset_reset="earliest")
        clients = (self._producer, self._answers, told)
        for client in clients:
            opened.push_async_callback(_close, client)
        await asyncio.gather(*(client.start() for client in clients))
        places = await self._places([self._topics.answers])
        self._answers.assign(places)
        await self._answers.seek_to_end(*places)
        await self._catch_up(told)
        for consumer, take in ((self._answers, self._hear), (told, self._read)):
            task = asyncio.create_task(self._follow(consumer, take))
            opened.push_async_callback(_cancel, task)

    async def _places(self, topics: Sequence[str]) -> list[TopicPartition]:
        """The partitions of topics.

        Raises:
            UnknownTopicOrPartitionError: one is missing, or not ours to see.
        """
        there = await self._answers.topics()
        if missing := [topic for topic in topics if topic not in there]:
            raise UnknownTopicOrPartitionError(missing)
        return [TopicPartition(topic, part) for topic in topics for part in await self._producer.partitions_for(topic)]

    async def _catch_up(self, consumer: Any) -> None:
        """Read what stands by now."""
        places = await self._places(self._told)
        consumer.assign(places)
        begins, ends = await asyncio.gather(consumer.beginning_offsets(places), consumer.end_offsets(places))
        for place in places:
            tail = ends[place] - OUTCOMES_READ if place.topic == self._topics.outcomes else 0
            consumer.seek(place, max(begins[place], tail))
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            batches = await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE)
            if not batches and await consumer.end_offsets(places):
                return  # the broker is there, so what is left has been compacted away
            self._take(batches, self._read)

    async def _follow(self, consumer: Any, take: Callable[[Any], None]) -> None:
        while True:
            try:
                self._take(await consumer.getmany(timeout_ms=1000, max_records=AT_ONCE), take)
            except Exception as error:  # whatever fails, what comes next is to be read
                log.warning("cannot be read: %r; tried again in %.0f s", error, PAUSE_S)
                await asyncio.sleep(PAUSE_S)

    def _take(self, batches: Mapping[Any, Iterable[Any]], take: Callable[[Any], None]) -> None:
        for messages in batches.values():
            for message in messages:
                try:
                    take(message)
                except UNDECODABLE as error:
                    place = {"partition": message.partition, "offset": message.offset}
                    log.warning("a message of %s is skipped: %s", message.topic, error, extra=place)

    def _hear(self, message: Any) -> None:
        self._desk.take(message.value or b"")

    def _read(self, message: Any) -> None:
        if message.topic == self._topics.estimates:
            self.board.put_estimate(message.key or b"", message.value, message.partition, message.timestamp / 1000)
        else:
            self.board.put_outcome(message.value or b"")

    async def _send(self, question: AnyQuestion) -> None:
        """Send a question to where its site is, or to the partition of its key."""
        key, partition = question.site.encode(), self.board.partition(question.site)
        try:
            await self._producer.send_and_wait(self._topics.questions, _encode(question), key, partition)
        except TopicAuthorizationFailedError:
            raise refused(self._kafka, "write", self._topics.questions) from None
        except KafkaError as error:
            kind = Unreachable if error.retriable else UserError
            raise kind(f"kafka at {self._kafka.bootstrap}: {error!r}") from None

    async def _answered(self) -> bool:
        """Whether a broker answers."""
        with suppress(KafkaError, OSError):  # TimeoutError among them
            async with asyncio.timeout(PATIENCE_S):
                return bool(await self._answers.end_offsets(list(self._answers.assignment())[:1]))
        return False


async def _close(client: Any) -> None:
    """Close a client, also one that never got started, or that a broker owes answers."""
    with suppress(KafkaError, OSError):
        async with asyncio.timeout(PATIENCE_S):
            await client.stop()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
