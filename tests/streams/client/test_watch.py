"""Records of the topics, as the Python client returns them and as `watch` prints them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest

from models.records import Outcome, Prediction
from queuecast import AsyncClient, WithdrawnEstimate
from streams.client import watch
from streams.client.ordering import CausalOrder
from streams.client.watch import arriving, json_line, late_s, line, records
from streams.settings import KafkaSettings, Settings
from tests.support import events


class Message(msgspec.Struct):
    topic: str
    value: bytes | None
    partition: int = 3
    offset: int = 17
    headers: list[tuple[str, bytes]] = []
    key: bytes = b"ctc"
    timestamp: int = 0


def prediction(**more: Any) -> Prediction:
    defaults = {"site": "ctc", "job": "4711", "predicted_run_s": 3600.0, "method": "qespera", "wait_s": 5400.0}
    return events.prediction(**defaults | {"made_at": 835823160.0} | more)


def outcome(**more: Any) -> Outcome:
    defaults = {"site": "ctc", "job": "4711", "predicted_run_s": 3600.0, "method": "qespera"}
    return events.outcome(**defaults | {"wait_s": 6000.0, "predicted_s": 5400.0, "made_at": 835823160.0} | more)


def message(record: Prediction | Outcome) -> Message:
    kind = "predictions" if isinstance(record, Prediction) else "outcomes"
    return Message(f"queuecast.{kind}", msgspec.json.encode(record))


def test_prediction_line_shows_wait_bound_and_start() -> None:
    record = prediction(bounds={"0.1": 60, "0.5": 5400, "0.9": 31000, "0.95": 52000})
    assert line(record) == ("1996-06-26 21:06 UTC  ctc  job 4711  waits 1h30m, 90 % within 8h37m, starts 22:36")


def test_prediction_line_of_later_estimate_shows_waited_time() -> None:
    assert "job 4711  queued 45m, waits " in line(prediction(waited_s=2700.0))


def test_prediction_line_missing_estimate_shows_reason() -> None:
    record = prediction(
        predicted_wait_s=None,
        predicted_run_s=None,
        predicted_start=None,
        reason="nodes down",
        degraded="9 of 10 nodes down",
        attempt=2,
    )
    assert line(record) == (
        "1996-06-26 21:06 UTC  ctc  job 4711 (attempt 2)  wait unknown: nodes down  [9 of 10 nodes down]"
    )


def test_outcome_line_shows_actual_and_predicted_wait() -> None:
    assert line(outcome()) == "1996-06-26 22:46 UTC  ctc  job 4711  started: waited 1h40m, predicted 1h30m  (qespera)"
    assert "ended: waited 1h40m, predicted 1h30m, ran 2m, predicted 1h" in line(outcome(actual_run_s=120.0))
    assert "cancelled after 1h40m, no estimate" in line(outcome(censored=True, predicted_wait_s=None))
    assert "ran 2m, no estimate" in line(outcome(actual_run_s=120.0, predicted_run_s=None))


class TestOrder:
    def messages(self, *places: tuple[str, int, int]) -> list[Any]:
        """Return messages with the given topic, partition and timestamp."""
        return [Message(topic, b"", partition=number, timestamp=stamp) for topic, number, stamp in places]

    def test_outcome_waits_for_predictions_written_before_it(self) -> None:
        ended: set[int] = set()
        order = CausalOrder("p", lambda number: number in ended)
        first = self.messages(("o", 1, 50), ("o", 2, 10), ("p", 2, 5), ("p", 2, 20))
        assert [(one.topic, one.timestamp) for one in order.ordered(first)] == [("p", 5), ("o", 10), ("p", 20)]
        assert [one.timestamp for one in order.ordered(self.messages(("p", 1, 30)))] == [30]
        assert [one.topic for one in order.ordered(self.messages(("p", 1, 60)))] == ["o", "p"]
        [held] = self.messages(("o", 1, 99))
        assert order.ordered([held]) == []
        ended.add(1)
        assert order.ordered([]) == [held] and order.ordered([]) == []

    def test_prediction_precedes_outcome_of_equal_timestamp(self) -> None:
        order = CausalOrder("p", lambda _: True)
        assert [one.topic for one in order.ordered(self.messages(("o", 1, 7), ("p", 1, 7)))] == ["p", "o"]


NASTY = "\x1b]0;owned\x07\x9b2J\r\n[bold red]\u202eevil\x00\U000e0001"


@pytest.mark.parametrize("field", ["site", "job", "reason", "degraded"])
def test_prediction_line_escapes_control_characters(field: str) -> None:
    unknown = {} if field != "reason" else {"predicted_wait_s": None}
    record = prediction(**{field: NASTY}, **unknown)
    for shown in (line(record), json_line(msgspec.json.encode(record))):
        assert shown.isprintable()
        assert "[bold red]" in shown
    assert json.loads(json_line(msgspec.json.encode(record)))[field] == NASTY


def test_prediction_line_accepts_invalid_bounds_and_times() -> None:
    record = prediction(bounds={"most": 5.0, "²": 6.0, "": 7.0, "0.9": 1e300}, made_at=1e300, predicted_start=-1e300)
    assert line(record).startswith("1e+300  ctc")


def test_json_line_compacts_json_to_one_line() -> None:
    raw = b'{\n  "site": "m\xc3\xb6hre",\n  "new": [1.50, 1e3]\n}\n'
    assert json_line(raw) == '{"site":"möhre","new":[1.50,1e3]}'


class Over(Exception):
    """No more messages."""


class Polled:
    """Fake consumer that returns prepared batches."""

    def __init__(self, *batches: list[Message]) -> None:
        self._batches = iter(batches)

    async def read_new_partitions(self) -> None:
        """Do nothing: there are no new partitions."""

    def is_at_end(self, _: object) -> bool:
        """Return true: all messages are read."""
        return True

    async def getmany(self, **_: object) -> dict[str, list[Message]]:
        for batch in self._batches:
            return {"place": batch} if batch else {}
        raise Over


def came(follow: AsyncGenerator[Any]) -> list[Any]:
    """Return all records until the messages end."""

    async def take() -> list[Any]:
        found = []
        with suppress(Over):
            async for one in follow:
                found.append(one)  # noqa: PERF401  # keep the records before an error
        return found

    return asyncio.run(take())


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Replace the topics with a list of messages."""
    found: list[Message] = []

    @asynccontextmanager
    async def started(*_: object) -> AsyncIterator[None]:
        yield

    monkeypatch.setattr(watch, "Consumer", lambda *_, **__: Polled(found))
    monkeypatch.setattr(watch, "started", started)
    return found


def given(site: str | None = None, job: str | None = None, report: Callable[[str], None] = print) -> list[Any]:
    return came(records(Settings(), site, job, True, None, False, report))


def test_records_filter_returns_records_with_their_messages(topic: list[Message]) -> None:
    one, other, end = prediction(job="1"), prediction(site="kth"), outcome(job="1")
    topic += map(message, (one, other, end))
    assert [record for record, _ in given()] == [one, other, end]
    assert given(site="ctc") == given(job="1") == [(one, topic[0]), (end, topic[2])]
    assert given(job="4711") == [(other, topic[1])]
    assert given("kth", "1") == []


@pytest.mark.parametrize("value", [None, b"", b"what", b'{"site": 1}', b"\xff\xfe", msgspec.json.encode(outcome())])
def test_invalid_record_is_reported_and_skipped(topic: list[Message], value: bytes | None) -> None:
    topic += [Message("queuecast.predictions", value), message(prediction())]
    reports: list[str] = []
    ((good, _),) = given("ctc", report=reports.append)
    assert reports[0].startswith("skipped: queuecast.predictions, partition 3, offset 17: ") and len(reports) == 1
    assert good == prediction()


def test_tombstone_yields_withdrawn_estimate(topic: list[Message]) -> None:
    topic.append(Message("queuecast.estimates", None, key=b'["birch",4,3600,"batch"]'))
    assert came(AsyncClient(Settings()).estimate_changes(site="birch")) == [
        WithdrawnEstimate("birch", 4, 3600.0, "batch")
    ]


@pytest.mark.parametrize(
    ("headers", "late"),
    [
        ([], None),
        ([("late", b"75")], 75),
        ([("trace", b"\xff"), ("late", b"0")], 0),
        ([("late", b"soon")], None),
        ([("late", b"-1")], None),
    ],
)
def test_late_header_marks_prediction_with_delay(headers: list[tuple[str, bytes]], late: int | None) -> None:
    found = late_s(Message("p", b"", headers=headers))
    assert found == late
    assert line(prediction(), found).endswith(" late]") == (late is not None)


def test_late_prediction_mark_shows_readable_delay() -> None:
    assert line(prediction(), 75) == line(prediction()) + "  [left 1m15s late]"


def test_kafka_outage_and_recovery_are_each_reported_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reports: list[str] = []
    first, last = message(prediction()), message(prediction(job="4712"))
    answering = iter([True, False, False, True])

    async def answers(*_: object) -> bool:
        return next(answering)

    monkeypatch.setattr(watch, "broker_answers", answers)
    polled = Polled([first], [], [], [], [], [last])
    found = came(arriving(polled, KafkaSettings(bootstrap="kafka.example.org:9092"), reports.append))
    assert found == [[first], [], [], [], [], [last]]
    assert [text.partition(" after ")[0] for text in reports] == [
        "kafka: no broker answers at kafka.example.org:9092; waiting for it",
        "kafka at kafka.example.org:9092 is back",
    ]


def test_replaced_certificate_keeps_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([None])  # the second call finds no certificate files

    async def answers(*_: object) -> bool:
        return True

    monkeypatch.setattr(watch, "broker_answers", answers)
    monkeypatch.setattr(KafkaSettings, "tls_context", lambda _: next(made))
    assert came(arriving(Polled([], [], []), KafkaSettings(), print)) == [[], [], []]
