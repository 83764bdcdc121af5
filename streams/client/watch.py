"""The command `watch`: predictions and outcomes as they come, as text for people or JSON for programs."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

import msgspec
from kafka import KafkaConsumer
from msgspec import UNSET

from models.durations import duration
from models.records import Outcome, Prediction
from streams.broker.admin import check_topics, kafka_errors
from streams.broker.consumer import broker_answers
from streams.broker.topics import LATE, Topics
from streams.settings import Settings
from streams.text.terminal import minute, printable

SHOWN_BOUND = "0.9"  # the bound that a line shows; JSON has all of them, and the reasons
POLL_S = 5.0  # after so long without a message it is looked whether a broker answers at all
BROKER_TIMEOUT_S = 3.0  # a broker that does not answer within this time is taken to be away


class Message(Protocol):
    """What is read of a Kafka message."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    headers: list[tuple[str, bytes]]


class SkippedRecord(msgspec.Struct, frozen=True):
    """A message that is not a record of its topic's kind."""

    reason: str


class WatchFilter(msgspec.Struct, frozen=True):
    """Which records to show: those of a site, those of a job; None for all."""

    site: str | None = None
    job: str | None = None

    def includes(self, record: Prediction | Outcome) -> bool:
        """Whether to show a record."""
        return self.site in (None, record.site) and self.job in (None, record.job)


def watch(
    settings: Settings,
    shown: WatchFilter,
    outcomes: bool = False,
    from_beginning: bool = False,
    tell: Callable[[str], None] = lambda said: None,
) -> Generator[tuple[Prediction | Outcome | SkippedRecord, bytes, int | None]]:
    """Read records as they come, without end, once the topics are found; those of one site come in order.

    Each comes with its bytes and, where the worker sent it late, the delay in seconds.

    Parameters:
        shown: which records.
        outcomes: whether to read outcomes too.
        from_beginning: whether to read what is on the topics already.
        tell: told that Kafka went away, and that it is back.

    Raises:
        UserError: the broker cannot be reached or refuses, or a topic is missing or this user may not read it.
    """
    topics = Topics(settings.kafka.prefix)
    kinds: dict[str, type[Prediction] | type[Outcome]] = {topics.predictions: Prediction}
    if outcomes:
        kinds[topics.outcomes] = Outcome
    check_topics(settings, dict.fromkeys(kinds, "read"))
    return _follow(settings, kinds, shown, from_beginning, tell)


def _follow(
    settings: Settings,
    kinds: dict[str, type[Prediction] | type[Outcome]],
    shown: WatchFilter,
    from_beginning: bool,
    tell: Callable[[str], None],
) -> Generator[tuple[Prediction | Outcome | SkippedRecord, bytes, int | None]]:
    bootstrap, tls = settings.kafka.bootstrap, settings.kafka.tls_context()

    def answers() -> bool:
        return asyncio.run(broker_answers(bootstrap, tls, BROKER_TIMEOUT_S))

    with kafka_errors(settings.kafka):
        consumer = KafkaConsumer(
            *kinds,
            **settings.kafka.client_options(),
            auto_offset_reset="earliest" if from_beginning else "latest",
            enable_auto_commit=False,
        )
        try:
            yield from read(arriving(consumer, answers, bootstrap, tell), kinds, shown)
        finally:
            consumer.close()


def arriving(
    consumer: Any, answers: Callable[[], bool], bootstrap: str, tell: Callable[[str], None]
) -> Iterator[Message]:
    """A consumer's messages as they come, without end; while no broker `answers`, which is asked while nothing comes,
    Kafka is waited for, and `tell` says so.
    """
    away_since: float | None = None
    while True:
        looked_at = time.monotonic()
        found = consumer.poll(timeout_ms=int(POLL_S * 1000))
        there = bool(found) or answers()
        if not there and away_since is None:
            away_since = looked_at
            tell(f"kafka: no broker answers at {bootstrap}; waiting for it")
        elif there and away_since is not None:
            tell(f"kafka at {bootstrap} is back after {duration(time.monotonic() - away_since)}")
            away_since = None
        yield from chain.from_iterable(found.values())


def read(
    messages: Iterable[Message], kinds: dict[str, type[Prediction] | type[Outcome]], shown: WatchFilter
) -> Iterator[tuple[Prediction | Outcome | SkippedRecord, bytes, int | None]]:
    """Decode messages, by the kinds of topics: records that the filter shows, a `SkippedRecord` for what is none."""
    decoders: dict[str, Any] = {topic: msgspec.json.Decoder(kind) for topic, kind in kinds.items()}
    for message in messages:
        value = message.value or b""
        try:
            record = decoders[message.topic].decode(value)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            place = f"{message.topic}, partition {message.partition}, offset {message.offset}"
            yield SkippedRecord(f"{place}: {error}"), value, None
        else:
            if shown.includes(record):
                yield record, value, _late(message.headers)


def _late(headers: Iterable[tuple[str, bytes]]) -> int | None:
    seconds = dict(headers).get(LATE, b"")
    return int(seconds) if seconds.isdigit() else None


def json_line(raw: bytes) -> str:
    """A record's JSON, unchanged, as one printable line."""
    return printable(msgspec.json.format(raw, indent=-1).decode("utf-8", "replace"))


def line(record: Prediction | Outcome, late: int | None = None) -> str:
    """A record as one printable line; `late`: by how many seconds the worker sent it late."""
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
    said = "no estimate" if record.predicted_wait_s is None else f"predicted {duration(record.predicted_wait_s)}"
    fate = "cancelled after" if record.censored else "waited"
    text = f"{fate} {duration(record.actual_wait_s)}, {said}"
    if record.actual_run_s is not None:
        run = "no estimate" if record.predicted_run_s is None else f"predicted {duration(record.predicted_run_s)}"
        text += f", ran {duration(record.actual_run_s)}, {run}"
    return f"{text}  ({record.method})"
