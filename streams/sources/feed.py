"""Traces into the events topic: several sites at once, as fast as it goes or at the pace at which they happened."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import Any, Protocol

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from models.records import AnyEvent, Submit
from streams.errors import UserError
from streams.faults import kafka_faults
from streams.settings import Settings
from streams.sources.swf import Trace, check_site, events_of
from streams.topics import Topics, check_topics

UNDERWAY = 10_000
"""Messages that may be on their way to the broker: the bound on memory."""

DELIVERY_MS = 30_000
"""Milliseconds after which a message that was not accepted is an error."""


class Source(msgspec.Struct, frozen=True):
    """A trace and the site whose events it holds."""

    trace: Trace
    site: str

    def first(self, jobs: int) -> "Source":
        """The source with its first `jobs` jobs alone, and what became of them."""
        return Source(msgspec.structs.replace(self.trace, jobs=self.trace.jobs[:jobs]), self.site)

    @property
    def count(self) -> int:
        """How many events it has."""
        return bool(self.trace.cpus) + sum(3 if job.started else 2 for job in self.trace.jobs)

    def events(self) -> Iterator[tuple[float, AnyEvent]]:
        """Its events, each with the seconds since the trace's first submission."""
        begin = self.trace.begin
        return ((event.time - begin, event) for event in events_of(self.trace, self.site))


def timeline(sources: Iterable[Source]) -> Iterator[tuple[float, AnyEvent]]:
    """The events of all sources by the seconds since each one's beginning; a site's own stay in their order."""
    return heapq.merge(*(source.events() for source in sources), key=itemgetter(0))


def paced(
    events: Iterable[tuple[float, AnyEvent]],
    speed: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[AnyEvent]:
    """Events when they are due: at `speed` times the pace at which they happened, infinity for no waiting."""
    began = clock()
    for since_s, event in events:
        ahead_s = since_s / speed - (clock() - began)
        if ahead_s > 0:
            sleep(ahead_s)
        yield event


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


def until(events: Iterable[tuple[float, AnyEvent]], seconds: float) -> Iterator[tuple[float, AnyEvent]]:
    """The events of the first `seconds`."""
    for since_s, event in events:
        if since_s > seconds:
            return
        yield since_s, event


def sources_of(traces: Sequence[Trace], sites: Sequence[str]) -> list[Source]:
    """Traces with their sites.

    Parameters:
        sites: one for each trace, in their order; the files' names where there are none.

    Raises:
        UserError: there are not as many sites as traces, two are the same, or one is no name.
    """
    names = list(sites) or [trace.site for trace in traces]
    if len(names) != len(traces):
        raise UserError(f"{len(names)} sites for {len(traces)} traces; name one for each, in their order, or none")
    for name in names:
        check_site(name)
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"two traces for site {', '.join(sorted(twice))}; name the sites with --site")
    return [Source(trace, site) for trace, site in zip(traces, names, strict=True)]
