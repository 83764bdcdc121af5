"""Decoding of messages to events, and reasons for rejection."""

import random

import msgspec
import pytest

from models.records import AnyEvent, Capacity, DeadLetter, Start, Submit, bundled
from models.simulation import generate, run
from streams.worker.intake.messages import (
    EVENT_TYPES,
    MAX_MESSAGE_BYTES,
    MAX_SHOWN_BYTES,
    Unreadable,
    dead_letter,
    read_site_message,
)

SUBMIT = Submit(site="ctc", time=835823160.0, job="4711", user="u12", queue="batch", cpus=64, walltime=14400.0)
BEGIN = b'{"v":1,"site":"ctc","type":"submit","time":835823160.0,"job":"4711"'


def read_event(key: bytes | None, value: bytes | None) -> AnyEvent:
    """Return the single event of a message."""
    (part,) = read_site_message(key, value).parts
    return part.event


@pytest.mark.parametrize(
    "event", [SUBMIT, Start(site="ctc", time=1.0, job="1"), Capacity(site="ctc", time=1.0, cpus=4)]
)
def test_event_round_trips_through_message(event: AnyEvent) -> None:
    assert read_event(b"ctc", msgspec.json.encode(event)) == event


def test_event_with_unknown_field_is_decoded() -> None:
    assert read_event(b"ctc", BEGIN + b',"colour":{"deep":[1,2]}}').time == 835823160.0


def test_event_with_special_characters_in_site_is_decoded() -> None:
    event = Start(site='ä/{x}:* "', time=1.0, job="☃")
    assert read_event(event.site.encode(), msgspec.json.encode(event)) == event


@pytest.mark.parametrize(
    ("reason", "value", "message"),
    [
        ("empty", None, "no value"),
        ("empty", b"", "no value"),
        ("too_large", BEGIN + b',"x":"' + b"x" * MAX_MESSAGE_BYTES + b'"}', f"at most {MAX_MESSAGE_BYTES}"),
        ("not_json", b"hello", "invalid character"),
        ("not_json", BEGIN, "truncated"),
        ("not_json", BEGIN + b',"user":"\xff\xfe"}', ""),
        ("not_json", BEGIN + b',"user":"\\ud800"}', ""),
        ("not_json", BEGIN + b',"cpus":NaN}', "invalid character"),
        ("not_json", BEGIN + b',"x":' + b"[" * 60_000, ""),
        ("version", BEGIN.replace(b'"v":1', b'"v":2') + b"}", "version 2; this reads up to 1"),
        ("version", BEGIN.replace(b'"v":1', b'"v":3').replace(b"submit", b"dance") + b"}", "version 3"),
        ("unknown_type", BEGIN.replace(b"submit", b"dance") + b"}", "'dance'; expected one of submit, start"),
        ("unknown_type", b'{"site":"ctc","time":1}', "None"),
        ("malformed", b"[]", "Expected `object`"),
        ("malformed", b"null", "Expected `object`"),
        ("malformed", BEGIN.replace(b'"v":1', b'"v":"1"') + b"}", "$.v"),
        ("malformed", BEGIN.replace(b'"v":1', b'"v":0') + b"}", "$.v"),
        ("malformed", BEGIN.replace(b'"job":"4711"', b'"job":4711') + b"}", "$.job"),
        ("malformed", BEGIN.replace(b'"job":"4711"', b'"job":""') + b"}", "$.job"),
        ("malformed", BEGIN.replace(b',"job":"4711"', b"") + b"}", "`job`"),
        ("malformed", BEGIN.replace(b"835823160.0", b"-1") + b"}", "$.time"),
        ("malformed", BEGIN.replace(b"835823160.0", b"1e300") + b"}", "$.time"),
        ("malformed", BEGIN + b',"cpus":0}', "$.cpus"),
        ("malformed", BEGIN + b',"cpus":1e400}', "$.cpus"),
        ("malformed", BEGIN + b',"walltime":-5}', "$.walltime"),
        ("malformed", BEGIN + b',"user":"' + b"u" * 300 + b'"}', "$.user"),
        ("wrong_key", BEGIN.replace(b"ctc", b"kth") + b"}", "'kth'"),
    ],
)
def test_undecodable_message_raises_unreadable_with_reason(reason: str, value: bytes | None, message: str) -> None:
    with pytest.raises(Unreadable) as error:
        read_event(b"ctc", value)
    assert error.value.reason == reason
    assert message in error.value.detail
    assert len(error.value.detail) <= 500


def test_message_without_key_raises_unreadable() -> None:
    with pytest.raises(Unreadable, match="key must be its site"):
        read_event(None, BEGIN + b"}")


def test_event_types_equal_documented_list() -> None:
    names = "submit start end cancel hold release suspend resume alter requeue expected_start capacity heartbeat"
    assert tuple(names.split()) == EVENT_TYPES


def mutated(value: bytes, dice: random.Random) -> bytes:
    """Return a message damaged at one to four positions."""
    harmed = bytearray(value)
    for _ in range(dice.randint(1, 4)):
        place, length = dice.randrange(len(harmed) + 1), dice.randint(0, 6)
        harmed[place : place + length] = dice.choice(
            (b"", dice.randbytes(length), harmed[:20], b'"', b"9" * 40, b"null", b"\\u0000", b"-", b"{", b"1e999")
        )
    return bytes(harmed)


def test_mutated_message_is_an_event_or_unreadable() -> None:
    dice = random.Random(4)
    values = [msgspec.json.encode(event) for event in run(generate(1, 40, 32, 0.9), 32, "ctc")]
    read, reasons = 0, set[str]()
    for _ in range(10_000):
        value = mutated(dice.choice(values), dice)
        try:
            event = read_event(b"ctc", value)
        except Unreadable as error:
            reasons.add(error.reason)
            dead_letter(error.reason, error.detail, None, "t", 0, 0, value)
        else:
            read += 1
            assert msgspec.json.decode(msgspec.json.encode(event), type=AnyEvent) == event
    assert read > 100
    assert reasons >= {"not_json", "version", "unknown_type", "malformed", "wrong_key"}


def test_dead_letter_has_printable_start_of_message() -> None:
    value = b"\xff\x1b[31m" + "ä".encode() * MAX_SHOWN_BYTES
    letter = dead_letter("not_json", "why", "ctc", "queuecast.events", 3, 17, value)
    assert letter.value.startswith("\\xff\\x1b[31mää")
    assert letter.value.isprintable()
    assert (letter.value_bytes, letter.partition, letter.offset) == (len(value), 3, 17)
    assert len(letter.value) <= 4 * MAX_SHOWN_BYTES
    assert msgspec.json.decode(msgspec.json.encode(letter), type=DeadLetter) == letter
    assert dead_letter("empty", "", None, "t", 0, 0, None).value == ""


@pytest.mark.parametrize("field", ["site", "job", "user", "queue", "qos"])
@pytest.mark.parametrize("letter", ["\n", "\x00", "\x0b", "\x1c", "\x85", "\u2028", "\u2029"])
def test_event_with_line_break_in_name_is_rejected(field: str, letter: str) -> None:
    event = msgspec.structs.replace(Submit(site="alder", time=1.0, job="1", historical=True), **{field: f"a{letter}b"})
    encoded = msgspec.json.encode(event)
    for value in (encoded, bundled(event.site, [encoded])):
        with pytest.raises(Unreadable) as refused:
            read_site_message(event.site.encode(), value)
        assert f"{field} has the character U+{ord(letter):04X}" in refused.value.detail


@pytest.mark.parametrize("name", ["Jülich", "北京", "a\\b", 'a"b', "a b", "😀"])
def test_event_with_unicode_and_quotes_in_name_is_decoded(name: str) -> None:
    event = Submit(site=name, time=1.0, job=name, user=name, pending_reason="two\nlines")
    assert read_site_message(name.encode(), msgspec.json.encode(event)).parts[0].event == event
