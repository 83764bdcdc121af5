import json
import os
import signal
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from models.records import MAX_BYTES, AnyEvent, Capacity, Limit, Start, Submit
from streams.errors import UserError
from streams.settings import Settings
from streams.sources import publisher as publishing
from streams.sources.contract import MAX_CURSOR_BYTES, Cursor, CursorError, Source, Step
from streams.sources.cursors import CursorFile
from streams.sources.publisher import OutgoingEvent, Publisher, Stop, from_source, publish, stop_on_sigterm
from streams.worker.intake.messages import MAX_MESSAGE_BYTES, read_site_message


class Sent:
    """Fake future of a sent message."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.is_done, self._error = False, error

    def get(self, timeout: float) -> None:
        self.is_done = True
        if self._error:
            raise self._error


class Broker:
    """Fake producer; a message is accepted once its future is queried."""

    def __init__(self, refuse: int | None = None) -> None:
        self.messages: list[tuple[str, bytes, dict[str, Any]]] = []
        self.sent: list[Sent] = []
        self.flushed, self.closed = 0, False
        self.accepted: list[int] = []
        self.refuse = refuse

    def send(self, topic: str, value: bytes, key: bytes) -> Sent:
        self.messages.append((topic, key, json.loads(value)))
        self.sent.append(Sent(KafkaTimeoutError("too late") if len(self.sent) == self.refuse else None))
        return self.sent[-1]

    def flush(self, timeout: float | None = None) -> None:
        self.flushed += 1

    def close(self, timeout: float | None = None) -> None:
        self.closed = True

    @property
    def underway(self) -> int:
        return sum(not sent.is_done for sent in self.sent)


def some(count: int) -> Iterator[AnyEvent]:
    for number in range(count):
        kind = Start if number % 2 else Submit
        yield kind(site=f"s{number % 4 // 2}", time=float(number), job=str(number // 2))


def test_messages_are_keyed_by_site_and_contain_event() -> None:
    broker = Broker()
    publisher = Publisher(broker, "events")
    event = Submit(site="möhre", time=5.0, job="1", user="ada")
    publisher.send(OutgoingEvent(event))
    ((topic, key, value),) = broker.messages
    assert (topic, key) == ("events", "möhre".encode())
    assert msgspec.convert(value, AnyEvent) == event


def test_publisher_limits_pending_and_counts_accepted_events() -> None:
    broker, most = Broker(), 0
    publisher = Publisher(broker, "events", underway=7)
    for event in some(100):
        publisher.send(OutgoingEvent(event))
        most = max(most, broker.underway)
    assert most == 7
    assert sum(publisher.events.values()) == 93
    publisher.flush()
    assert publisher.events == {"s0": 50, "s1": 50}
    assert publisher.jobs == {"s0": 25, "s1": 25}
    assert broker.underway == 0


def test_publisher_full_buffer_counts_acknowledged_events() -> None:
    broker = Broker(refuse=3)
    publisher = Publisher(broker, "events", underway=1000)
    for event in some(10):
        publisher.send(OutgoingEvent(event))
    for sent in broker.sent:
        sent.is_done = True
    with pytest.raises(KafkaTimeoutError):
        publisher.send(OutgoingEvent(next(some(1))))
    assert sum(publisher.events.values()) == 3


def test_publisher_rejected_event_raises_and_is_not_counted() -> None:
    publisher = Publisher(Broker(refuse=3), "events", underway=0)
    with pytest.raises(KafkaTimeoutError):
        for event in some(10):
            publisher.send(OutgoingEvent(event))
    assert sum(publisher.events.values()) == 3


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()
    monkeypatch.setattr(publishing, "check_topics", lambda *_: None)
    monkeypatch.setattr(publishing, "QuietProducer", lambda **_: found)
    return found


def published(broker: Broker, steps: Iterable[OutgoingEvent], stop: Stop | None = None) -> int:
    """Publish; return the number of accepted events, and store it in the broker on errors."""
    accepted: list[int] = []
    try:
        publish(Settings(), steps, lambda _: None, lambda found, _: accepted.append(sum(found.events.values())), stop)
    finally:
        broker.accepted = accepted
    return accepted[0]


def test_publisher_interrupt_sends_and_reports_pending_events(broker: Broker) -> None:
    def interrupted() -> Iterator[AnyEvent]:
        yield from some(10)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        published(broker, map(OutgoingEvent, interrupted()))
    assert broker.accepted == [10]
    assert (broker.flushed, broker.underway, broker.closed) == (1, 0, True)


def test_publish_sends_all_events(broker: Broker) -> None:
    handed: list[AnyEvent] = []
    counts: list[dict[str, int]] = []
    publish(Settings(), map(OutgoingEvent, some(10)), handed.append, lambda found, _: counts.append(found.events))
    assert handed == list(some(10))
    assert counts == [{"s0": 6, "s1": 4}]
    assert {topic for topic, *_ in broker.messages} == {"queuecast.events"}


def test_publish_broker_timeout_raises_user_error(broker: Broker) -> None:
    broker.refuse = 4
    with pytest.raises(UserError, match=r"kafka at 127.0.0.1:9092: events were not accepted within 30 s"):
        published(broker, map(OutgoingEvent, some(10)))
    assert broker.accepted == [4]
    assert broker.closed


class Counting(Source):
    """A source of numbered events; a live one continues with empty steps after the last event."""

    name = "counting"
    sites = ("s",)

    def __init__(self, events: int, live: bool = False) -> None:
        self.total, self.live = events, live

    def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
        begin = 0 if cursor is None else self.after(cursor)
        for number in range(begin, self.total):
            yield Submit(site="s", time=float(number), job=str(number)), str(number + 1).encode()
        while self.live:
            yield None, str(self.total).encode()

    def after(self, cursor: Cursor) -> int:
        if int(cursor) > self.total:
            raise CursorError("counting: no such place")
        return int(cursor)


@pytest.fixture
def file(tmp_path: Path) -> CursorFile:
    """Return a cursor file that writes each kept cursor."""
    return CursorFile(tmp_path, Counting(0), "events", clock=count(0, 10).__next__)


def test_cursor_is_kept_once_previous_events_are_acknowledged(file: CursorFile) -> None:
    broker = Broker()
    publisher = Publisher(broker, "events")
    steps = from_source(Counting(3, live=True), file)
    with file:
        for _ in range(4):
            publisher.send(next(steps))
        broker.sent[1].is_done = broker.sent[2].is_done = True
        publisher.send(next(steps))
        assert (file.cursor, publisher.events) == (None, {})
        broker.sent[0].is_done = True
        publisher.send(next(steps))
        assert (file.cursor, publisher.events) == (b"3", {"s": 3})


def test_failed_send_keeps_previous_cursor(broker: Broker, file: CursorFile) -> None:
    broker.refuse = 4
    with pytest.raises(UserError, match="not accepted"), file:
        published(broker, from_source(Counting(10), file))
    assert len(broker.sent) == 10  # later events were already sent and may be accepted
    assert file.cursor == b"4"
    with file:
        assert file.cursor == b"4"
        broker.refuse = None
        assert published(broker, from_source(Counting(10), file)) == 6
    assert file.cursor == b"10"


def test_event_missing_cursor_keeps_previous_cursor(broker: Broker, file: CursorFile) -> None:
    with file:
        steps = list(from_source(Counting(3), file))
        assert published(broker, [*steps, steps[-1]._replace(cursor=None)]) == 4
        assert file.cursor == b"3"


def test_publisher_oversized_cursor_stops_before_saving(broker: Broker, file: CursorFile) -> None:
    class Growing(Counting):
        def events(self, cursor: Cursor | None = None) -> Iterator[Step]:
            for number, (event, _) in enumerate(super().events(cursor)):
                yield event, b"x" * (MAX_CURSOR_BYTES + number)

    too_large = r"the cursor of source counting has 16777217 bytes; the maximum is 16777216"
    with file, pytest.raises(UserError, match=too_large):
        published(broker, from_source(Growing(5), file))
    assert len(broker.messages) == 1
    assert file.cursor is None or len(file.cursor) == MAX_CURSOR_BYTES


def test_idle_live_source_stops_on_sigterm(broker: Broker, file: CursorFile) -> None:
    def steps() -> Iterator[OutgoingEvent]:
        for number, step in enumerate(from_source(Counting(5, live=True), file)):
            yield step
            if number == 50:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with file, stop_on_sigterm() as stop:
        assert published(broker, steps(), stop) == 5
        assert stop.requested
        stop.sleep(3600)
    assert file.cursor == b"5"
    assert signal.getsignal(signal.SIGTERM) is before


def test_first_sigint_stops_gracefully_and_second_interrupts(broker: Broker, file: CursorFile) -> None:
    def steps() -> Iterator[OutgoingEvent]:
        for number, step in enumerate(from_source(Counting(5, live=True), file)):
            yield step
            if number == 50:
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with file, stop_on_sigterm() as stop, stop.on(signal.SIGINT):
        assert published(broker, steps(), stop) == 5
        assert (stop.requested, stop.signal) == (True, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_cursor_of_other_input_error_names_cursor_file(broker: Broker, file: CursorFile) -> None:
    with file:
        file.keep(b"7")
        with pytest.raises(UserError, match=r"no such place \(.*counting-s.cursor: remove the file to send from the"):
            published(broker, from_source(Counting(5), file))


def carried(value: bytes) -> list[AnyEvent]:
    return [part.event for part in read_site_message(b"s", value).parts]


def test_publisher_bundles_historical_events() -> None:
    broker = Broker()
    publisher = Publisher(broker, "events")
    old = [Submit(site="s", time=float(n), job=str(n), user="x" * 250, historical=True, old=True) for n in range(600)]
    for event in old:
        publisher.send(OutgoingEvent(event, together=True))
    alone = Submit(site="s", time=600.0, job="600", historical=True)
    publisher.send(OutgoingEvent(alone))
    publisher.flush()
    *bundles, last = (json.dumps(value, separators=(",", ":")).encode() for _, _, value in broker.messages)
    assert 1 < len(bundles) < 8 and all(len(value) < MAX_MESSAGE_BYTES for value in bundles)
    assert [one for value in bundles for one in carried(value)] == old
    assert carried(last) == [alone]
    assert publisher.events == publisher.jobs == {"s": 601}


def test_publisher_batches_stay_within_worker_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MAX_EVENTS", 3)
    broker = Broker()
    publisher = Publisher(broker, "events")
    for number in range(8):
        event = Submit(site="s", time=float(number), job=str(number), historical=True, old=True)
        publisher.send(OutgoingEvent(event, together=True))
    publisher.flush()
    assert [len(value["events"]) for _, _, value in broker.messages] == [3, 3, 2]


def test_publisher_saves_cursor_after_bundle_is_accepted() -> None:
    broker, file = Broker(refuse=1), Kept()
    publisher = Publisher(broker, "events", underway=0)
    steps = [OutgoingEvent(Submit(site="s", time=1.0, job="1", historical=True, old=True), b"1", file, True)]  # type: ignore[arg-type]
    steps += [OutgoingEvent(Start(site="s", time=2.0, job="1"), b"2", file, True)]  # type: ignore[arg-type]
    for step in steps:
        publisher.send(step)
    assert not file.cursors and not broker.messages
    publisher.flush()
    assert file.cursors == [b"1", b"2"] and len(broker.messages) == 1
    for step in steps:
        publisher.send(step)
    with pytest.raises(KafkaTimeoutError):
        publisher.flush()
    assert file.cursors == [b"1", b"2"]


def test_publisher_bundles_are_split_by_site() -> None:
    broker = Broker()
    publisher = Publisher(broker, "events")
    for event in some(8):
        publisher.send(OutgoingEvent(event, together=True))
    publisher.flush()
    assert [(key, len(value["events"])) for _, key, value in broker.messages] == [(b"s0", 2), (b"s1", 2)] * 2


class Kept:
    """Record the kept cursors."""

    def __init__(self) -> None:
        self.cursors: list[bytes] = []

    def keep(self, cursor: bytes) -> None:
        self.cursors.append(cursor)


def test_publisher_sends_oversized_event_alone_in_order() -> None:
    broker = Broker()
    publisher = Publisher(broker, "events")
    small = [Submit(site="s", time=float(n), job=str(n), historical=True, old=True) for n in range(4)]
    large = Capacity(
        site="s", time=2.0, cpus=4, limits=[Limit(per="user", name=f"{n:032}", jobs=n) for n in range(900)]
    )
    for event in [*small[:2], large, *small[2:]]:
        publisher.send(OutgoingEvent(event, together=True))
    publisher.flush()
    values = [json.dumps(value, separators=(",", ":")).encode() for _, _, value in broker.messages]
    assert MAX_BYTES < len(values[1]) < MAX_MESSAGE_BYTES
    assert list(map(carried, values)) == [small[:2], [large], small[2:]]
