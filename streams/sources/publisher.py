"""Sends events to the events topic."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from models.records import AnyEvent, Submit
from streams.errors import UserError
from streams.faults import kafka_faults
from streams.settings import Settings
from streams.topics import Topics, check_topics

UNDERWAY = 10_000
"""Messages that may be on their way to the broker: the bound on memory."""

DELIVERY_MS = 30_000
"""Milliseconds after which a message that was not accepted is an error."""


class Producer(Protocol):
    """What a publisher needs of `KafkaProducer`."""

    def send(self, topic: str, value: bytes, key: bytes) -> Any: ...  # noqa: D102

    def flush(self, timeout: float | None = None) -> Any: ...  # noqa: D102


class QuietProducer(KafkaProducer):  # type: ignore[misc]  # kafka's classes are untyped
    """A producer that can be closed, and thrown away, while a broker that has gone owes it answers."""

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Close it; what is underway after `timeout` seconds is given up."""
        with suppress(KafkaError):
            super().close(timeout, null_logger)


class Publisher:
    """Sends events, keyed by site, and counts those that the broker has accepted."""

    def __init__(self, producer: Producer, topic: str, underway: int = UNDERWAY) -> None:
        self._producer = producer
        self._topic = topic
        self._most = underway
        self._underway: deque[tuple[AnyEvent, Any]] = deque()
        self._encode = msgspec.json.Encoder().encode
        self.events: dict[str, int] = {}
        self.jobs: dict[str, int] = {}

    def send(self, event: AnyEvent) -> None:
        """Send an event; waits while too many are underway.

        Raises:
            KafkaError: an event, this one or one before it, was not accepted.
        """
        sent = self._producer.send(self._topic, value=self._encode(event), key=event.site.encode())
        self._underway.append((event, sent))
        self._settle(self._most)

    def flush(self) -> None:
        """Wait until everything is accepted.

        Raises:
            KafkaError: an event was not.
        """
        self._producer.flush(timeout=DELIVERY_MS / 1000)
        self._settle(0)

    def _settle(self, most: int) -> None:
        """Count what is done, in order, and wait for it where more than `most` are underway."""
        while self._underway and (len(self._underway) > most or self._underway[0][1].is_done):
            event, sent = self._underway[0]
            sent.get(timeout=DELIVERY_MS / 1000)
            self._underway.popleft()
            self.events[event.site] = self.events.get(event.site, 0) + 1
            if isinstance(event, Submit):
                self.jobs[event.site] = self.jobs.get(event.site, 0) + 1


def feed(
    settings: Settings,
    events: Iterable[AnyEvent],
    on_sent: Callable[[AnyEvent], None],
    on_end: Callable[[Publisher, float], None],
) -> None:
    """Send events to the events topic; what was sent when it is interrupted goes out still.

    Messages are stamped with the wall clock, since the broker counts by it how long to keep them.

    Parameters:
        events: in order, when they are due.
        on_sent: told of each event as it is handed over.
        on_end: told, however it ends, what was accepted and within how many seconds.

    Raises:
        UserError: the broker cannot be reached or refuses, or the topic is missing or not ours to write to.
    """
    topic = Topics(settings.kafka.prefix).events
    check_topics(settings, {topic: "write"})
    with kafka_faults(settings.kafka):
        producer = QuietProducer(
            **settings.kafka.client_options(),
            acks="all",
            enable_idempotence=True,
            linger_ms=20,
            batch_size=65_536,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=DELIVERY_MS // 2,
            max_block_ms=DELIVERY_MS,
            allow_auto_create_topics=False,
        )
        try:
            _send_all(Publisher(producer, topic), events, on_sent, on_end)
        except KafkaTimeoutError:
            waited = f"{DELIVERY_MS // 1000} s"
            raise UserError(
                f"kafka at {settings.kafka.bootstrap}: events were not accepted within {waited}; "
                "is the broker still there?"
            ) from None
        finally:
            producer.close(timeout=1)


def _send_all(
    publisher: Publisher,
    events: Iterable[AnyEvent],
    on_sent: Callable[[AnyEvent], None],
    on_end: Callable[[Publisher, float], None],
) -> None:
    began = time.monotonic()
    try:
        for event in events:
            publisher.send(event)
            on_sent(event)
        publisher.flush()
    except KeyboardInterrupt:
        publisher.flush()
        raise
    finally:
        on_end(publisher, time.monotonic() - began)
