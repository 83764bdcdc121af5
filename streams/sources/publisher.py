"""Publish a source's events to the events topic, and save its cursors behind the broker's acknowledgements.

The guarantees below hold if the process is killed, the machine fails or the broker is lost. They require that the
source keeps its contract and that the disk keeps what was flushed to it:

- **Nothing is lost.** A cursor is written only when the broker has acknowledged, on all in-sync replicas, every event
  up to it. A failed send ends the publisher and leaves the cursor before it.
- **Some events may be sent again** after a restart: those acknowledged after the last cursor write, at most about a
  second's, and those in flight. They are the same bytes, and the engine ignores them. After a kill they follow in the
  same order as before, as a repeated stretch. After a failed send, later events may have been accepted, so a site's
  events may be out of order once; the engine handles that too.
- **Within one run there are no duplicates and no reordering**: the producer is idempotent. A site's events have one
  key and so, by the murmur2 partitioner of the Java clients, one partition.
"""

import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError

from models.records import MAX_BYTES, MAX_EVENTS, AnyEvent, Submit, bundled
from streams.broker.admin import check_topics, kafka_errors
from streams.broker.topics import Topics, events_topic_of
from streams.errors import UserError
from streams.settings import Settings
from streams.sources.contract import MAX_CURSOR_BYTES, Cursor, CursorError, Source
from streams.sources.cursors import RESTART_HINT, CursorFile

UNDERWAY = 10_000  # maximum number of events in flight to the broker, which bounds memory
DELIVERY_MS = 30_000  # milliseconds after which a message that was not accepted is an error
MAX_SLEEP_S = 0.2  # seconds between two checks for a requested stop


class QuietProducer(KafkaProducer):  # type: ignore[misc]  # kafka's classes are untyped
    """A producer that can be closed although a lost broker has unanswered requests."""

    def close(self, timeout: float | None = None, null_logger: bool = False) -> None:
        """Close the producer; requests in flight after `timeout` seconds are dropped."""
        with suppress(KafkaError):
            super().close(timeout, null_logger)


class OutgoingEvent(NamedTuple):
    """A source's step to publish: its event (None if there is none now), its cursor, and the cursor file.

    Historical events with `together` share a message with their neighbours.
    """

    event: AnyEvent | None
    cursor: Cursor | None = None
    file: CursorFile | None = None
    together: bool = False


class _SendInProgress(NamedTuple):
    steps: list[OutgoingEvent]
    sent: Any  # the producer's future; None where there was no event to send


class Publisher:
    """Send events keyed by site, count the accepted ones, and save cursors behind them.

    A cursor is saved once its event and all earlier ones are acknowledged, so it is never too far ahead. Events of
    sites with a dedicated topic (`own_topics`) go there, all others to `topic`.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        topic: str,
        underway: int = UNDERWAY,
        own_topics: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._own_topics = own_topics
        self._max_underway = underway
        self._underway: deque[_SendInProgress] = deque()
        self._steps_underway = 0
        self._bundle: list[tuple[OutgoingEvent, bytes]] = []  # not sent yet
        self._bundle_bytes = 0
        self._encode = msgspec.json.Encoder().encode
        self.events: dict[str, int] = {}
        self.jobs: dict[str, int] = {}

    def send(self, outgoing: OutgoingEvent) -> None:
        """Send an event; block while too many are in flight.

        Raises:
            KafkaError: this or an earlier event was not accepted.
            OSError: a cursor could not be written.
        """
        event = outgoing.event
        value = None if event is None else self._encode(event)
        if value is None or not outgoing.together or len(value) > MAX_BYTES:
            self._close_bundle()
            self._hand_over([outgoing], value)
            return
        full = self._bundle_bytes + len(value) > MAX_BYTES or len(self._bundle) >= MAX_EVENTS
        if full or (self._bundle and _site(self._bundle[0][0]) != _site(outgoing)):
            self._close_bundle()
        self._bundle.append((outgoing, value))
        self._bundle_bytes += len(value) + 1

    def _close_bundle(self) -> None:
        if self._bundle:
            steps, values = map(list, zip(*self._bundle, strict=True))
            self._bundle, self._bundle_bytes = [], 0
            self._hand_over(steps, bundled(_site(steps[0]), values))

    def _hand_over(self, steps: list[OutgoingEvent], value: bytes | None) -> None:
        sent = None
        if value is not None:
            site = _site(steps[0])
            sent = self._producer.send(self._own_topics.get(site, self._topic), value=value, key=site.encode())
        self._underway.append(_SendInProgress(steps, sent))
        self._steps_underway += len(steps)
        self._settle(self._max_underway)

    def flush(self) -> None:
        """Wait until all events are accepted.

        Raises:
            KafkaError: an event was not accepted.
            OSError: a cursor could not be written.
        """
        self._close_bundle()
        self._producer.flush(timeout=DELIVERY_MS / 1000)
        self._settle(0)

    def _settle(self, most: int) -> None:
        """Count acknowledged events and save their cursors, in order; block while more than `most` are in flight.

        A rejected event stays at the head, so no later event is counted or saved.
        """
        while self._underway:
            steps, sent = self._underway[0]
            if sent is not None:
                if not sent.is_done and self._steps_underway <= most:
                    return
                sent.get(timeout=DELIVERY_MS / 1000)
            self._underway.popleft()
            self._steps_underway -= len(steps)
            for event, cursor, file, _ in steps:
                if event is not None:
                    self._count(event)
                if file is not None and cursor is not None:
                    file.keep(cursor)

    def _count(self, event: AnyEvent) -> None:
        self.events[event.site] = self.events.get(event.site, 0) + 1
        if isinstance(event, Submit):
            self.jobs[event.site] = self.jobs.get(event.site, 0) + 1


def _site(outgoing: OutgoingEvent) -> str:
    assert outgoing.event is not None
    return outgoing.event.site


class Stop:
    """Flag for a requested stop of the program."""

    def __init__(self) -> None:
        self.requested = False
        self.signal = signal.SIGTERM  # the signal that requested it

    @contextmanager
    def on(self, number: signal.Signals) -> Iterator[None]:
        """Treat the first such signal as a request for an orderly stop; a second one has its default effect."""

        def request(*_: object) -> None:
            self.requested, self.signal = True, number
            signal.signal(number, usual)

        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        before = signal.signal(number, request)
        try:
            yield
        finally:
            signal.signal(number, before)

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or a stop is requested."""
        end = time.monotonic() + seconds
        while not self.requested and (remaining_s := end - time.monotonic()) > 0:
            time.sleep(min(remaining_s, MAX_SLEEP_S))


@contextmanager
def stop_on_sigterm() -> Iterator[Stop]:
    """Treat the first SIGTERM as a request for an orderly stop; a second one ends the program immediately.

    Only the main thread may use it.
    """
    stop = Stop()
    with stop.on(signal.SIGTERM):
        yield stop


def from_source(source: Source, file: CursorFile | None = None) -> Iterator[OutgoingEvent]:
    """Yield a source's steps, from the cursor in its file, else from its beginning.

    Raises:
        UserError: the source cannot be read, the cursor is of another input, or a new one has more than
            `MAX_CURSOR_BYTES`.
    """
    try:
        for event, cursor in source.events(file.cursor if file else None):
            if cursor is not None and len(cursor) > MAX_CURSOR_BYTES:
                has = f"the cursor of source {source.name} has {len(cursor)} bytes"
                raise UserError(f"{has}; the maximum is {MAX_CURSOR_BYTES}: the source must store less in it")
            yield OutgoingEvent(event, cursor, file)
    except CursorError as error:
        where = f" ({file.path}: {RESTART_HINT})" if file else ""
        raise UserError(f"{error}{where}") from None


def publish(
    settings: Settings,
    steps: Iterable[OutgoingEvent],
    on_sent: Callable[[AnyEvent], None],
    on_end: Callable[[Publisher, float], None],
    stop: Stop | None = None,
    sites: Iterable[str] = (),
) -> None:
    """Send events to the events topic, or to dedicated topics; on a stop, flush the events already sent.

    Messages have the wall clock as timestamp, since the broker's retention depends on it.

    Args:
        settings: of the deployment.
        steps: the steps, which arrive when they are due.
        on_sent: called with each event as it is handed over.
        on_end: called at the end, also after an error, with the accepted events and the seconds taken.
        stop: checked before each step.
        sites: the sites of the events, if they are given: only their topics must be writable.

    Raises:
        UserError: the broker is unreachable or refuses, or a topic is missing or not writable.
        OSError: a cursor could not be written.
    """
    topic = Topics(settings.kafka.prefix).events
    own = {site: events_topic_of(settings, site) for site in settings.sites.dedicated_topics}
    check_topics(settings, dict.fromkeys((own.get(site, topic) for site in sites), "write") or {topic: "write"})
    with kafka_errors(settings.kafka):
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
            _send_all(Publisher(producer, topic, own_topics=own), steps, on_sent, on_end, stop or Stop())
        except KafkaTimeoutError:
            waited = f"{DELIVERY_MS // 1000} s"
            raise UserError(
                f"kafka at {settings.kafka.bootstrap}: events were not accepted within {waited}; "
                "is the broker still running?"
            ) from None
        finally:
            producer.close(timeout=1)


def _send_all(
    publisher: Publisher,
    steps: Iterable[OutgoingEvent],
    on_sent: Callable[[AnyEvent], None],
    on_end: Callable[[Publisher, float], None],
    stop: Stop,
) -> None:
    began = time.monotonic()
    try:
        for outgoing in steps:
            if stop.requested:
                break
            publisher.send(outgoing)
            if outgoing.event is not None:
                on_sent(outgoing.event)
        publisher.flush()
    except KeyboardInterrupt:
        publisher.flush()
        raise
    finally:
        on_end(publisher, time.monotonic() - began)
