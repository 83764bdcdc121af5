import json
from typing import Any

import msgspec
import pytest

from models.records import Outcome, Prediction
from streams.client.watch import SkippedRecord, WatchFilter, arriving, json_line, line, read

KINDS: dict[str, type[Prediction] | type[Outcome]] = {"p": Prediction, "o": Outcome}


class Message(msgspec.Struct):
    topic: str
    value: bytes | None
    partition: int = 3
    offset: int = 17
    headers: list[tuple[str, bytes]] = []


def prediction(**more: Any) -> Prediction:
    said: dict[str, Any] = {
        "site": "ctc",
        "job": "4711",
        "attempt": 0,
        "made_at": 835823160.0,
        "predicted_wait_s": 5400.0,
        "predicted_run_s": 3600.0,
        "predicted_start": 835828560.0,
        "method": "qespera",
        "reason": "100 jobs alike",
    }
    return Prediction(**said | more)


def outcome(**more: Any) -> Outcome:
    said: dict[str, Any] = {
        "site": "ctc",
        "job": "4711",
        "attempt": 0,
        "made_at": 835823160.0,
        "method": "qespera",
        "predicted_wait_s": 5400.0,
        "predicted_run_s": 3600.0,
        "observed_at": 835829160.0,
        "actual_wait_s": 6000.0,
        "error_s": -600.0,
    }
    return Outcome(**said | more)


def message(record: Prediction | Outcome) -> Message:
    return Message("p" if isinstance(record, Prediction) else "o", msgspec.json.encode(record))


def test_a_prediction_in_a_line() -> None:
    said = prediction(bounds={"0.1": 60, "0.5": 5400, "0.9": 31000, "0.95": 52000})
    assert line(said) == ("1996-06-26 21:06 UTC  ctc  job 4711  waits 1h30m, 90 % within 8h37m, starts 22:36")


def test_a_later_estimate_says_how_long_the_job_has_queued() -> None:
    assert "job 4711  queued 45m, waits " in line(prediction(waited_s=2700.0))


def test_no_estimate_is_said_with_its_reason() -> None:
    said = prediction(
        predicted_wait_s=None,
        predicted_run_s=None,
        predicted_start=None,
        reason="nodes down",
        degraded="9 of 10 nodes down",
        attempt=2,
    )
    assert line(said) == (
        "1996-06-26 21:06 UTC  ctc  job 4711 (attempt 2)  wait unknown: nodes down  [9 of 10 nodes down]"
    )


def test_an_outcome_in_a_line() -> None:
    assert line(outcome()) == "1996-06-26 22:46 UTC  ctc  job 4711  waited 1h40m, predicted 1h30m  (qespera)"
    assert "waited 1h40m, predicted 1h30m, ran 2m, predicted 1h" in line(outcome(actual_run_s=120.0))
    assert "cancelled after 1h40m, no estimate" in line(outcome(censored=True, predicted_wait_s=None))
    assert "ran 2m, no estimate" in line(outcome(actual_run_s=120.0, predicted_run_s=None))


NASTY = "\x1b]0;owned\x07\x9b2J\r\n[bold red]\u202eevil\x00\U000e0001"


@pytest.mark.parametrize("field", ["site", "job", "reason", "degraded"])
def test_names_cannot_steer_the_terminal(field: str) -> None:
    unknown = {} if field != "reason" else {"predicted_wait_s": None}
    said = prediction(**{field: NASTY}, **unknown)
    for shown in (line(said), json_line(msgspec.json.encode(said))):
        assert shown.isprintable()
        assert "[bold red]" in shown
    assert json.loads(json_line(msgspec.json.encode(said)))[field] == NASTY


def test_bounds_and_times_that_make_no_sense_are_no_trouble() -> None:
    said = prediction(bounds={"most": 5.0, "²": 6.0, "": 7.0, "0.9": 1e300}, made_at=1e300, predicted_start=-1e300)
    assert line(said).startswith("1e+300  ctc")


def test_a_json_line_is_one_line_of_the_same_json() -> None:
    raw = b'{\n  "site": "m\xc3\xb6hre",\n  "new": [1.50, 1e3]\n}\n'
    assert json_line(raw) == '{"site":"möhre","new":[1.50,1e3]}'


def test_the_filtered_records_come_with_their_own_bytes() -> None:
    one, other, end = prediction(job="1"), prediction(site="kth"), outcome(job="1")
    messages = [message(one), message(other), message(end)]

    def given(shown: WatchFilter) -> list[Any]:
        return [record for record, *_ in read(messages, KINDS, shown)]

    assert given(WatchFilter()) == [one, other, end]
    assert given(WatchFilter(site="ctc")) == [one, end]
    assert given(WatchFilter(job="4711")) == [other]
    assert given(WatchFilter("kth", "1")) == []
    assert [raw for _, raw, _ in read(messages, KINDS, WatchFilter(job="1"))] == [messages[0].value, messages[2].value]


@pytest.mark.parametrize("value", [None, b"", b"what", b'{"site": 1}', b"\xff\xfe", msgspec.json.encode(outcome())])
def test_what_is_no_such_record_is_told_and_left_out(value: bytes | None) -> None:
    skipped, good = (
        record for record, *_ in read([Message("p", value), message(prediction())], KINDS, WatchFilter("ctc"))
    )
    assert isinstance(skipped, SkippedRecord)
    assert skipped.reason.startswith("p, partition 3, offset 17: ")
    assert good == prediction()


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
def test_a_late_prediction_is_told_with_its_delay(headers: list[tuple[str, bytes]], late: int | None) -> None:
    ((record, _, found),) = read(
        [Message("p", msgspec.json.encode(prediction()), headers=headers)], KINDS, WatchFilter()
    )
    assert found == late
    assert isinstance(record, Prediction)
    assert line(record, found).endswith(" late]") == (late is not None)


def test_the_mark_of_a_late_prediction_is_readable() -> None:
    assert line(prediction(), 75) == line(prediction()) + "  [left 1m15s late]"


def test_a_kafka_that_goes_away_and_comes_back_is_told_once_each() -> None:
    said: list[str] = []
    first, last = message(prediction()), message(prediction(job="4712"))
    polled = iter([{"p": [first]}, {}, {}, {}, {}, {"p": [last]}])
    answering = iter([True, False, False, True])

    class Polled:
        def poll(self, timeout_ms: int) -> dict[str, list[Message]]:
            return next(polled)

    found = arriving(Polled(), lambda: next(answering), "kafka.example.org:9092", said.append)
    assert next(found) == first
    assert not said
    assert next(found) == last
    assert [text.partition(" after ")[0] for text in said] == [
        "kafka: no broker answers at kafka.example.org:9092; waiting for it",
        "kafka at kafka.example.org:9092 is back",
    ]
