import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kafka.errors import KafkaError, KafkaTimeoutError

from models.records import AnyEvent, Start, Submit
from streams.errors import UserError
from streams.settings import Settings
from streams.sources import feed
from streams.sources.feed import Publisher, Source, paced, sources_of, timeline, until
from streams.sources.swf import Trace, read_swf
from tests.support.traces import HEADER, made_trace, swf_line


def trace(tmp_path: Path, name: str, *lines: str, header: str = "") -> Trace:
    path = tmp_path / name
    path.write_text(header + "".join(lines))
    return read_swf(path)


@pytest.fixture
def two(tmp_path: Path) -> list[Source]:
    early = trace(tmp_path, "early.swf", swf_line(1, 100, 10, 20), swf_line(2, 150), header="; UnixStartTime: 1000\n")
    late = trace(tmp_path, "late.swf.gz", swf_line(1, 0, 20, 30), swf_line(2, 45), header="; UnixStartTime: 900000\n")
    return sources_of([early, late], [])


def test_sites_go_side_by_side_from_their_beginnings(two: list[Source]) -> None:
    found = [(since, event.site, event.kind) for since, event in timeline(two)]
    assert found == [
        (0, "early", "submit"),
        (0, "late", "submit"),
        (10, "early", "start"),
        (20, "late", "start"),
        (30, "early", "end"),
        (45, "late", "submit"),
        (45, "late", "start"),
        (45, "late", "end"),
        (50, "early", "submit"),
        (50, "early", "start"),
        (50, "early", "end"),
        (50, "late", "end"),
    ]
    assert {event.time for _, event in timeline(two) if event.site == "early"} == {1100, 1110, 1130, 1150}


def test_a_sites_own_events_stay_in_their_order(tmp_path: Path) -> None:
    sources = [Source(read_swf(made_trace(tmp_path / f"{seed}.swf", seed=seed)), f"s{seed}") for seed in (1, 2, 3)]
    mixed = [event for _, event in timeline(sources)]
    for source in sources:
        assert [event for event in mixed if event.site == source.site] == [event for _, event in source.events()]
        assert source.count == sum(1 for _ in source.events())


def test_the_first_jobs_come_with_what_became_of_them(two: list[Source]) -> None:
    kinds = [(event.job, event.kind) for _, event in two[0].first(1).events() if event.kind != "capacity"]
    assert kinds == [("1", "submit"), ("1", "start"), ("1", "end")]


def test_the_first_hours_end_in_the_midst(two: list[Source]) -> None:
    assert [since for since, _ in until(two[0].events(), 10)] == [0, 10]
    assert len(list(until(timeline(two), math.inf))) == two[0].count + two[1].count


class Clock:
    """A clock that sleeping moves on, and each look at it a little."""

    def __init__(self, look_s: float = 0.0) -> None:
        self.now, self.look_s = 500.0, look_s

    def __call__(self) -> float:
        self.now += self.look_s
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@pytest.mark.parametrize("speed", [1.0, 60.0])
def test_events_are_sent_when_they_are_due(two: list[Source], speed: float) -> None:
    clock = Clock()
    due = [clock.now - 500 for _ in paced(timeline(two), speed, clock, clock.sleep)]
    assert due == pytest.approx([since / speed for since, _ in timeline(two)])


def test_what_is_late_is_sent_at_once(two: list[Source]) -> None:
    clock = Clock(look_s=10_000)
    assert len(list(paced(timeline(two), 1.0, clock, clock.sleep))) == two[0].count + two[1].count
    assert list(paced(timeline(two), math.inf, Clock(), lambda _: pytest.fail("slept")))


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
    monkeypatch.setattr(feed, "check_topics", lambda *_: None)
    monkeypatch.setattr(feed, "QuietProducer", lambda **_: found)
    return found


def test_an_interrupt_sends_what_was_handed_over_and_tells_how_much(broker: Broker) -> None:
    def interrupted() -> Iterator[AnyEvent]:
        yield from some(10)
        raise KeyboardInterrupt

    told: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        feed.feed(Settings(), interrupted(), lambda _: None, lambda found, _: told.append(sum(found.events.values())))
    assert told == [10]
    assert (broker.flushed, broker.underway, broker.closed) == (1, 0, True)


def test_a_feed_sends_everything(broker: Broker) -> None:
    handed: list[AnyEvent] = []
    told: list[dict[str, int]] = []
    feed.feed(Settings(), some(10), handed.append, lambda found, _: told.append(found.events))
    assert handed == list(some(10))
    assert told == [{"s0": 6, "s1": 4}]
    assert {topic for topic, *_ in broker.messages} == {"queuecast.events"}


def test_a_broker_that_gives_up_is_an_error(broker: Broker) -> None:
    broker._refuse = 4
    told: list[int] = []
    with pytest.raises(UserError, match=r"kafka at 127.0.0.1:9092: events were not accepted within 30 s"):
        feed.feed(Settings(), some(10), lambda _: None, lambda found, _: told.append(sum(found.events.values())))
    assert told == [4]
    assert broker.closed


def test_each_trace_is_a_site_of_its_own(tmp_path: Path) -> None:
    one, other = (trace(tmp_path, name, HEADER, swf_line(1)) for name in ("a.swf", "b.swf.gz"))
    assert [source.site for source in sources_of([one, other], [])] == ["a", "b"]
    assert [source.site for source in sources_of([one, other], ["x", "y"])] == ["x", "y"]
    with pytest.raises(UserError, match="1 sites for 2 traces"):
        sources_of([one, other], ["x"])
    with pytest.raises(UserError, match="a name has 1 to 256 characters"):
        sources_of([one, other], ["x", ""])
    with pytest.raises(UserError, match="two traces for site a; name the sites with --site"):
        sources_of([one, one], [])
