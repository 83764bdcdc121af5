"""Asks the workers, and knows what stands to be read without asking: the client of the topics of questions.

A question goes to the partition of its site, so to the worker that has the site; answers are read from now on, without
a group, by whoever has asked. What stands is a table in memory: standing estimates from their topic's beginning, and
the latest outcomes from the end of theirs.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple, Protocol

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from models.ranking import JobRequest, Ranking, Said, hindrance, rank
from models.records import UNKNOWN_SITE, AnyAnswer, AnyQuestion, NoAnswer, Outcome, StandingEstimate, WaitAnswer
from models.site.shapes import HOUR_S, Shape, covering
from streams.errors import Unreachable, UserError
from streams.settings import Settings, SiteSettings
from streams.topics import Topics, check_topics, refused
from streams.worker.intake import UNDECODABLE

log = logging.getLogger(__name__)

MOST_OPEN = 5000
"""Questions that may be open at once: the bound on memory."""

KEPT_OUTCOMES = 50
"""The latest jobs of a site and method whose outcomes are kept."""

OUTCOMES_READ = 200
"""Outcomes of a partition that are read at the start."""

OUTDATED_S = 2 * HOUR_S
"""An estimate that is older by so much than the newest of its site is of a shape that is no longer offered."""

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


class Silent(UserError):
    """No worker has answered in time."""


class Busy(UserError):
    """Too many questions are open."""


def new_id() -> str:
    """An id that no other question has."""
    return uuid.uuid4().hex


class Stood(NamedTuple):
    """A standing estimate and when it came to the broker (Unix seconds)."""

    estimate: StandingEstimate
    updated: float


class SiteEstimates(NamedTuple):
    """What stands of a site: its estimates by size, walltime and queue, and when the latest came (Unix seconds)."""

    estimates: list[StandingEstimate]
    updated: float

    @property
    def latest(self) -> StandingEstimate:
        """The one that was made last."""
        return max(self.estimates, key=lambda estimate: estimate.made_at)


class Board:
    """What stands to be read of the sites: their standing estimates and latest outcomes, as messages bring them.

    Parameters:
        hours: after so long an estimate that was not made anew is forgotten.
    """

    def __init__(self, hours: float, clock: Callable[[], float] = time.time) -> None:
        self._oldest_s = hours * HOUR_S
        self._clock = clock
        self._estimates: dict[str, dict[Shape, Stood]] = {}
        self._partitions: dict[str, int] = {}
        self._outcomes: dict[str, dict[str, dict[tuple[str, int], Outcome]]] = {}

    @property
    def sites(self) -> list[str]:
        """The sites of which estimates stand, by name."""
        return sorted(site for site in list(self._estimates) if self._stood(site))

    def partition(self, site: str) -> int | None:
        """The partition on which the site's estimates lie, and its worker listens; None where none has been seen."""
        return self._partitions.get(site)

    def estimates(self, site: str) -> SiteEstimates | None:
        """What stands of a site; None where nothing does."""
        stood = self._stood(site)
        if not stood:
            return None
        order = sorted(stood, key=lambda shape: (shape.queue or "", shape.cpus, shape.walltime))
        return SiteEstimates([stood[shape].estimate for shape in order], max(one.updated for one in stood.values()))

    def _stood(self, site: str) -> Mapping[Shape, Stood]:
        """What stands of a site, after dropping what is outdated."""
        stood = self._estimates.get(site, {})
        newest = max((found.updated for found in stood.values()), default=0.0)
        oldest = max(newest - OUTDATED_S, self._clock() - self._oldest_s)
        for shape in [shape for shape, found in stood.items() if found.updated < oldest]:
            del stood[shape]
        if not stood:
            self._estimates.pop(site, None)
        return stood

    def covering(self, site: str, cpus: int, walltime: float | None, queue: str | None) -> StandingEstimate | None:
        """The estimate of the least shape that a job fits into; None where there is none."""
        stood = self._stood(site)
        shape = covering(stood, cpus, walltime, queue)
        return None if shape is None else stood[shape].estimate

    def outcomes(self, site: str, method: str) -> list[Outcome]:
        """The latest outcomes of a site's jobs, each job once, the newest first.

        Parameters:
            method: whose; where it has none, those of another one.
        """
        kept = self._outcomes.get(site, {})
        return list(kept.get(method, next(iter(kept.values()), {})).values())[::-1]

    def knows(self, site: str) -> bool:
        """Whether anything is known of a site."""
        return site in self._outcomes or bool(self._stood(site))

    def put_estimate(self, key: bytes, value: bytes | None, partition: int, updated: float) -> None:
        """Take in a message of the topic of estimates; one without a value takes an estimate back.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        site, cpus, walltime, queue = _decode_key(key)
        self._partitions[site] = partition
        stood = self._estimates.setdefault(site, {})
        if value:
            stood[Shape(cpus, walltime, queue)] = Stood(_decode_estimate(value), updated)
        else:
            stood.pop(Shape(cpus, walltime, queue), None)

    def put_outcome(self, value: bytes) -> None:
        """Take in a message of the topic of outcomes; that of a job's end replaces that of its start.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        outcome = _decode_outcome(value)
        kept = self._outcomes.setdefault(outcome.site, {}).setdefault(outcome.method, {})
        kept.pop((outcome.job, outcome.attempt), None)
        kept[outcome.job, outcome.attempt] = outcome
        if len(kept) > KEPT_OUTCOMES:
            del kept[next(iter(kept))]


class _Head(msgspec.Struct):
    """Whose answer it is."""

    id: str


_encode = msgspec.json.Encoder().encode
_decode_key = msgspec.json.Decoder(tuple[str, int, float, str | None]).decode
_decode_estimate = msgspec.json.Decoder(StandingEstimate).decode
_decode_outcome = msgspec.json.Decoder(Outcome).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_answer: msgspec.json.Decoder[AnyAnswer] = msgspec.json.Decoder(AnyAnswer)


class Desk:
    """Where questions wait for their answers.

    Parameters:
        send: sends a question; done when the broker has it.
        seconds: how long an answer is waited for; after a third of that the question is sent once more, for it may
            have come while its site was on the way from one worker to another.
    """

    def __init__(self, send: Callable[[AnyQuestion], Awaitable[Any]], seconds: float, most: int = MOST_OPEN) -> None:
        self._send = send
        self._seconds = seconds
        self._most = most
        self._open: dict[str, asyncio.Future[AnyAnswer]] = {}

    async def ask(self, question: AnyQuestion) -> AnyAnswer:
        """The answer, whatever it says.

        Raises:
            Silent: no worker has answered in time.
            Unreachable: nor has a broker taken the question.
            Busy: too many questions are open.
        """
        if len(self._open) >= self._most:
            raise Busy(f"{self._most} questions are open; ask again later")
        answer: asyncio.Future[AnyAnswer] = asyncio.get_running_loop().create_future()
        self._open[question.id] = answer
        sent = False
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(question)
                sent = True
                await asyncio.wait([answer], timeout=self._seconds / 3)
                if not answer.done():
                    await self._send(question)
                return await answer
        except TimeoutError:
            if sent:
                raise Silent(f"no worker answers for the site {question.site!r}; is one running?") from None
            raise Unreachable(f"kafka: no broker took the question within {self._seconds:g} s") from None
        finally:
            del self._open[question.id]

    def take(self, value: bytes) -> None:
        """Hand an answer to who waits for it, where somebody here does.

        Raises:
            msgspec.MsgspecError: it is none.
        """
        answer = self._open.get(_decode_head(value).id)
        if answer is not None and not answer.done():
            answer.set_result(_answer.decode(value))


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


async def ask_all(asker: Asking, questions: Iterable[AnyQuestion]) -> dict[str, AnyAnswer | None]:
    """What each site answers, asked all at once; None where no worker answers in time, or Kafka is away.

    Raises:
        Busy: too many questions are open.
    """

    async def ask(question: AnyQuestion) -> AnyAnswer | None:
        try:
            return await asker.ask(question)
        except (Silent, Unreachable):
            return None

    wanted = list(questions)
    answers = await asyncio.gather(*map(ask, wanted))
    return {question.site: answer for question, answer in zip(wanted, answers, strict=True)}


async def ask_ranking(
    asker: Asking,
    job: JobRequest,
    set_of: Mapping[str, SiteSettings],
    sites: Sequence[str] = (),
    run_s: float | None = None,
) -> Ranking:
    """The sites for a job, each asked what it would tell it; one that is silent, or cannot be asked because Kafka is
    away, is taken by its standing estimate.

    Parameters:
        set_of: what is set of some sites.
        sites: only these; by default those of which estimates stand, or anything is set.
        run_s: see `models.ranking.rank`.

    Raises:
        Busy: too many questions are open.
    """
    chosen = list(dict.fromkeys(sites or [*asker.board.sites, *set_of]))
    known = {site: set_of.get(site, SiteSettings()) for site in chosen}
    questions = [
        job.question(new_id(), site, known[site].speed) for site in chosen if hindrance(job, known[site]) is None
    ]
    answers = await ask_all(asker, questions)
    said = {site: _said(asker.board, job, site, known[site], answers.get(site)) for site in chosen}
    return rank(job, said, known, run_s)


def _said(board: Board, job: JobRequest, site: str, known: SiteSettings, answer: AnyAnswer | None) -> Said:
    """What there is to be said about a job at a site."""
    if isinstance(answer, WaitAnswer):
        return answer
    if isinstance(answer, NoAnswer) and answer.reason == UNKNOWN_SITE:
        return "unknown site: no event of it has been seen"
    standing = board.covering(site, job.cpus, job.walltime_at(known.speed), job.queue)
    if standing is not None:
        return standing
    if (stood := board.estimates(site)) and stood.latest.site_cpus < job.cpus:
        return stood.latest  # which says how many processors there are
    return f"no answer: {answer.detail}" if isinstance(answer, NoAnswer) else "no worker answers for this site"
