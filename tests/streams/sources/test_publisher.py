import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from models.records import AnyEvent, Start, Submit
from streams.errors import UserError
from streams.settings import Settings
from streams.sources import publisher as publishing
from streams.sources.publisher import Publisher


class Sent:
    """A message on its way."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.is_done, self._error = False, error

    def get(self, timeout: float) -> None:
        self.is_done = True
        if self._error:
            raise self._error


class Broker:
    """A producer that accepts messages when it is asked how they are."""

    def __init__(self, refuse: int | None = None) -> None:
        self.messages: list[tuple[str, bytes, dict[str, Any]]] = []
        self.sent: list[Sent] = []
        self.flushed, self.closed = 0, False
        self._refuse = refuse

    def send(self, topic: str, value: bytes, key: bytes) -> Sent:
        self.messages.append((topic, key, json.loads(value)))
        self.sent.append(Sent(KafkaTimeoutError("too late") if len(self.sent) == self._refuse else None))
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


def test_messages_are_keyed_by_site_and_hold_the_event() -> None:
    broker = Broker()
    publisher = Publisher(broker, "events")
    event = Submit(site="möhre", time=5.0, job="1", user="ada")
    publisher.send(event)
    ((topic, key, value),) = broker.messages
    assert (topic, key) == ("events", "möhre".encode())
    assert msgspec.convert(value, AnyEvent) == event


def test_what_is_underway_is_bounded_and_what_is_accepted_counted() -> None:
    broker, most = Broker(), 0
    publisher = Publisher(broker, "events", underway=7)
    for event in some(100):
        publisher.send(event)
        most = max(most, broker.underway)
    assert most == 7
    assert sum(publisher.events.values()) == 93
    publisher.flush()
    assert publisher.events == {"s0": 50, "s1": 50}
    assert publisher.jobs == {"s0": 25, "s1": 25}
    assert broker.underway == 0


def test_what_is_done_is_settled_before_there_is_need() -> None:
    broker = Broker(refuse=3)
    publisher = Publisher(broker, "events", underway=1000)
    for event in some(10):
        publisher.send(event)
    for sent in broker.sent:
        sent.is_done = True
    with pytest.raises(KafkaTimeoutError):
        publisher.send(next(some(1)))
    assert sum(publisher.events.values()) == 3


def test_an_event_that_is_not_accepted_is_an_error_and_not_counted() -> None:
    publisher = Publisher(Broker(refuse=3), "events", underway=0)
    with pytest.raises(KafkaTimeoutError):
        for event in some(10):
            publisher.send(event)
    assert sum(publisher.events.values()) == 3


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()
    monkeypatch.setattr(publishing, "check_topics", lambda *_: None)
    monkeypatch.setattr(publishing, "QuietProducer", lambda **_: found)
    return found


def test_an_interrupt_sends_what_was_handed_over_and_tells_how_much(broker: Broker) -> None:
    def interrupted() -> Iterator[AnyEvent]:
        yield from some(10)
        raise KeyboardInterrupt

    told: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        publishing.feed(
            Settings(), interrupted(), lambda _: None, lambda found, _: told.append(sum(found.events.values()))
        )
    assert told == [10]
    assert (broker.flushed, broker.underway, broker.closed) == (1, 0, True)


def test_a_feed_sends_everything(broker: Broker) -> None:
    handed: list[AnyEvent] = []
    told: list[dict[str, int]] = []
    publishing.feed(Settings(), some(10), handed.append, lambda found, _: told.append(found.events))
    assert handed == list(some(10))
    assert told == [{"s0": 6, "s1": 4}]
    assert {topic for topic, *_ in broker.messages} == {"queuecast.events"}


def test_a_broker_that_gives_up_is_an_error(broker: Broker) -> None:
    broker._refuse = 4
    told: list[int] = []
    with pytest.raises(UserError, match=r"kafka at 127.0.0.1:9092: events were not accepted within 30 s"):
        publishing.feed(Settings(), some(10), lambda _: None, lambda found, _: told.append(sum(found.events.values())))
    assert told == [4]
    assert broker.closed
