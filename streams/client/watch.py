"""Records of topics as they arrive, for programs and for the command `watch`, and their output format."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import msgspec
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError
from msgspec import UNSET

from models.durations import duration
from models.records import Outcome, Prediction
from streams.broker.consumer import Consumer, broker_answers, started
from streams.broker.topics import LATE, Topics
from streams.client.client import BROKER_TIMEOUT_S, MAX_BATCH_MESSAGES, RETRY_PAUSE_S
from streams.client.ordering import CausalOrder
from streams.errors import UNDECODABLE, UserError
from streams.settings import KafkaSettings, Settings
from streams.text.terminal import minute, printable

log = logging.getLogger(__name__)

SHOWN_BOUND = "0.9"  # the bound that a line shows; JSON has all of them, and the reasons
POLL_S = 5.0  # seconds without a message after which the broker is probed

Warn = Callable[[str], None]
"""Receives a line for each skipped message, and when Kafka becomes unreachable or available."""


def kinds(settings: Settings, outcomes: bool) -> dict[str, type[Prediction] | type[Outcome]]:
    """Return the record types by topic: predictions and, if requested, outcomes."""
    topics = Topics(settings.kafka.prefix)
    return {topics.predictions: Prediction} | ({topics.outcomes: Outcome} if outcomes else {})


async def records(
    settings: Settings,
    site: str | None,
    job: str | None,
    outcomes: bool,
    group: str | None,
    from_beginning: bool,
    warn: Warn = log.warning,
) -> AsyncGenerator[tuple[Prediction | Outcome, Any]]:
    """Yield predictions and outcomes with their messages, as `follow`; filter by site and job, None for all."""
    decoders = {
        topic: msgspec.json.Decoder[Prediction | Outcome](kind) for topic, kind in kinds(settings, outcomes).items()
    }
    reading = {topic: lambda message, read=read: read.decode(message.value or b"") for topic, read in decoders.items()}
    async with aclosing(follow(settings, reading, group, from_beginning, warn)) as found:
        async for record, message in found:
            if site in (None, record.site) and job in (None, record.job):
                yield record, message


async def follow(
    settings: Settings,
    reading: Mapping[str, Callable[[Any], Any]],
    group: str | None,
    from_beginning: bool,
    warn: Warn = log.warning,
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield records and their messages as they arrive, without end; `reading` decodes each topic.

    A group's offsets are committed once the caller has consumed its records. Messages that cannot be decoded are
    skipped.

    Raises:
        Unreachable: Kafka is unreachable at the start; later outages are waited out.
        UserError: Kafka refuses.
    """

    def consumer_of(*subscribed: str) -> Consumer:  # resumes at the oldest message if its next ones were deleted
        options = settings.kafka.async_options() | {"enable_auto_commit": False, "auto_offset_reset": "earliest"}
        return Consumer(*subscribed, **options, group_id=group)

    if group is not None and not from_beginning:
        first = consumer_of()
        async with started(first, settings, partial(_commit_ends, first, reading)):
            pass
    consumer = consumer_of(*(() if group is None else reading))
    order = _order(consumer, settings, reading) if group is None else None
    begin = partial(_assign, consumer, reading, from_beginning) if group is None else None
    async with started(consumer, settings, begin):
        async for came in arriving(consumer, settings.kafka, warn):
            for message in came if order is None else order.ordered(came):
                try:
                    record = reading[message.topic](message)
                except UNDECODABLE as error:
                    place = f"{message.topic}, partition {message.partition}, offset {message.offset}"
                    warn(f"skipped: {place}: {error}")
                else:
                    yield record, message
            if group is not None:
                with suppress(KafkaError):  # such as one that was lost to another member, who reads these again
                    await consumer.commit()


def _order(consumer: Consumer, settings: Settings, topics: Iterable[str]) -> CausalOrder | None:
    """Return the causal order if both predictions and outcomes are read without a group.

    A group commits what it has read, so none of its records is held back.
    """
    names = Topics(settings.kafka.prefix)
    if not {names.predictions, names.outcomes} <= {*topics}:
        return None
    return CausalOrder(names.predictions, lambda number: consumer.is_at_end(TopicPartition(names.predictions, number)))


async def _assign(consumer: Consumer, topics: Iterable[str], from_beginning: bool) -> None:
    """Assign all partitions to a consumer without a group."""
    places = await consumer.places(*topics)
    consumer.assign(places)
    await (consumer.seek_to_beginning if from_beginning else consumer.seek_to_end)(*places)


async def _commit_ends(consumer: Consumer, topics: Iterable[str]) -> None:
    """Let a new group start at the end of the topics, and commit its offsets, so that later partitions stand out as
    new.
    """
    places = await consumer.places(*topics)
    if {await consumer.committed(place) for place in places} == {None}:
        consumer.assign(places)
        with suppress(CommitFailedError):  # another member has just joined
            await consumer.commit(await consumer.end_offsets(places))


async def arriving(consumer: Any, settings: KafkaSettings, warn: Warn) -> AsyncGenerator[list[Any]]:
    """Yield a consumer's messages as they arrive, without end; wait while no broker answers.

    The broker is probed when no message arrives.
    """
    tls = settings.tls_context()  # once: its files may be replaced meanwhile
    away_since: float | None = None
    while True:
        looked_at, found = time.monotonic(), {}
        try:
            await consumer.read_new_partitions()
            found = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=MAX_BATCH_MESSAGES)
        except (TopicAuthorizationFailedError, GroupAuthorizationFailedError) as error:
            raise UserError(f"kafka at {settings.bootstrap}: {error}") from None
        except KafkaError as error:
            log.warning("Cannot read from Kafka: %r; retrying in %.0f s", error, RETRY_PAUSE_S)
            await asyncio.sleep(RETRY_PAUSE_S)
        there = bool(found) or await broker_answers(settings.bootstrap, tls, BROKER_TIMEOUT_S)
        if not there and away_since is None:
            away_since = looked_at
            warn(f"kafka: no broker answers at {settings.bootstrap}; waiting for it")
        elif there and away_since is not None:
            warn(f"kafka at {settings.bootstrap} is back after {duration(time.monotonic() - away_since)}")
            away_since = None
        yield [message for messages in found.values() for message in messages]


def late_s(message: Any) -> int | None:
    """Return by how many seconds the worker sent a message late; None if it was on time."""
    seconds = dict(message.headers).get(LATE, b"")
    return int(seconds) if seconds.isdigit() else None


def json_line(raw: bytes) -> str:
    """Return a record's JSON, unchanged, as one printable line."""
    return printable(msgspec.json.format(raw, indent=-1).decode("utf-8", "replace"))


def line(record: Prediction | Outcome, late: int | None = None) -> str:
    """Format a record as one printable line; `late` is by how many seconds the worker sent it late."""
    text = _prediction(record) if isinstance(record, Prediction) else _outcome(record)
    if isinstance(record, Prediction) and record.waited_s is not UNSET:
        text = f"queued {duration(record.waited_s)}, {text}"
    attempt = f" (attempt {record.attempt})" if record.attempt else ""
    time = record.made_at if isinstance(record, Prediction) else record.observed_at
    mark = "" if late is None else f"  [left {duration(late)} late]"
    return printable(f"{minute(time)}  {record.site}  job {record.job}{attempt}  {text}{mark}")


def _prediction(record: Prediction) -> str:
    degraded = f"  [{record.degraded}]" if record.degraded else ""
    if record.predicted_wait_s is None:
        return f"wait unknown: {record.reason}{degraded}"
    parts = [f"waits {duration(record.predicted_wait_s)}"]
    if (bound_s := (record.bounds or {}).get(SHOWN_BOUND)) is not None:
        parts.append(f"90 % within {duration(bound_s)}")
    if record.predicted_start is not None:
        day = minute(record.made_at, zone=False)[:11]
        parts.append(f"starts {minute(record.predicted_start, zone=False).removeprefix(day)}")
    return f"{', '.join(parts)}{degraded}"


def _outcome(record: Outcome) -> str:
    """Format the outcome at the start of a job, or at its end, which repeats the first."""
    estimate = "no estimate" if record.predicted_wait_s is None else f"predicted {duration(record.predicted_wait_s)}"
    if record.censored:
        return f"cancelled after {duration(record.actual_wait_s)}, {estimate}  ({record.method})"
    fate = "started" if record.actual_run_s is None else "ended"
    text = f"{fate}: waited {duration(record.actual_wait_s)}, {estimate}"
    if record.actual_run_s is not None:
        run = "no estimate" if record.predicted_run_s is None else f"predicted {duration(record.predicted_run_s)}"
        text += f", ran {duration(record.actual_run_s)}, {run}"
    return f"{text}  ({record.method})"
