import json
from typing import Any

import msgspec
import pytest

from models.records import (
    VERSION,
    Alter,
    AnyEvent,
    Cancel,
    Capacity,
    DeadLetter,
    End,
    ExpectedStart,
    Heartbeat,
    Hold,
    JobEvent,
    Outcome,
    Prediction,
    Release,
    Requeue,
    Resume,
    Start,
    Submit,
    Suspend,
)

JOB: dict[str, Any] = {"site": "ctc", "time": 835823160.0, "job": "4711"}
EVENTS: list[AnyEvent] = [
    Submit(
        **JOB,
        user="u12",
        group="g3",
        account="physics",
        queue="batch",
        executable="namd",
        cpus=64,
        nodes=4,
        gpus=2,
        memory=1 << 40,
        walltime=14400.0,
        eligible=835823200.5,
    ),
    Submit(**JOB),
    Start(**JOB, attempt=1, cpus=64),
    End(**JOB, state="timeout"),
    Cancel(**JOB),
    Hold(**JOB),
    Release(**JOB),
    Alter(**JOB, queue="long", cpus=8, nodes=1, walltime=60.0, eligible=1.0),
    Requeue(**JOB),
    Suspend(**JOB),
    Suspend(**JOB, releases=False),
    Resume(**JOB),
    ExpectedStart(**JOB, by="slurm", expected=835823400.0),
    Capacity(site="ctc", time=0.0, cpus=338, nodes=338, down_nodes=2),
    Heartbeat(site="ctc", time=835823460.0),
]


def decoded(value: bytes | str) -> AnyEvent:
    event: AnyEvent = msgspec.json.decode(value, type=AnyEvent)
    return event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_event_round_trips_through_json_and_msgpack(event: AnyEvent) -> None:
    wire = msgspec.json.encode(event)
    assert decoded(wire) == event
    assert type(decoded(wire)) is type(event)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(event), type=AnyEvent) == event


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.kind)
def test_encoded_event_has_version_type_and_non_defaults(event: AnyEvent) -> None:
    wire = json.loads(msgspec.json.encode(event))
    assert wire["v"] == VERSION
    assert wire["type"] == event.kind
    required = {field.name for field in msgspec.structs.fields(event) if field.required} | {"v"}
    non_default = {name for name, default in _defaults(event).items() if getattr(event, name) != default}
    assert set(wire) == {"type"} | required | non_default


def test_event_types_have_distinct_kinds() -> None:
    kinds = [kind.kind for kind in AnyEvent.__args__]
    assert sorted(kinds) == sorted({*kinds})
    assert {event.kind for event in EVENTS} == {*kinds}


def test_job_event_key_is_its_id_and_attempt() -> None:
    keys = {event.key for event in EVENTS if isinstance(event, JobEvent)}
    assert keys == {("4711", 0), ("4711", 1)}


def test_decoding_ignores_unknown_and_defaults_absent_fields() -> None:
    event = decoded('{"type":"submit","site":"ctc","time":1,"job":"1","weather":{"fair":[1]},"nice":null}')
    assert event == Submit(site="ctc", time=1.0, job="1")
    assert (event.v, event.attempt, event.cpus, event.gpus, event.walltime) == (VERSION, 0, 1, 0, None)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("", "truncated"),
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ("{}", "missing required field `type`"),
        ('{"type":"teleport","site":"a","time":1}', "Invalid value 'teleport'"),
        ('{"type":"submit","site":"a","time":1}', "missing required field `job`"),
        ('{"type":"submit","time":1,"job":"1"}', "missing required field `site`"),
        ('{"type":"submit","site":"","time":1,"job":"1"}', "length >= 1"),
        ('{"type":"submit","site":"a","time":"1","job":"1"}', "Expected `float`"),
        ('{"type":"submit","site":"a","time":-1,"job":"1"}', ">= 0.0"),
        ('{"type":"submit","site":"a","time":1e12,"job":"1"}', "<= 1"),
        ('{"type":"submit","site":"a","time":1e999,"job":"1"}', "out of range"),
        ('{"type":"submit","site":"a","time":NaN,"job":"1"}', "malformed"),
        ('{"type":"submit","site":"a","time":null,"job":"1"}', "got `null`"),
        ('{"type":"submit","site":"a","time":1,"job":"1","cpus":0}', ">= 1"),
        ('{"type":"submit","site":"a","time":1,"job":"1","cpus":1.5}', "Expected `int`"),
        ('{"type":"submit","site":"a","time":1,"job":"1","walltime":-60}', ">= 0.0"),
        ('{"type":"submit","site":"a","time":1,"job":"1","memory":1152921504606846977}', "<= 1152921504606846976"),
        ('{"type":"submit","site":"a","time":1,"job":"1","attempt":-1}', ">= 0"),
        ('{"type":"submit","site":"a","time":1,"job":4711}', "Expected `str`"),
        ('{"type":"start","site":"a","time":1,"job":"%s"}' % ("9" * 257), "length <= 256"),
        ('{"type":"start","site":"a","time":1,"job":"1","v":2}', "<= 1"),
        ('{"type":"start","site":"a","time":1,"job":"1","v":0}', ">= 1"),
        ('{"type":"end","site":"a","time":1,"job":"1","state":""}', "length >= 1"),
        ('{"type":"capacity","site":"a","time":1}', "missing required field `cpus`"),
        ('{"type":"capacity","site":"a","time":1,"cpus":8,"down_nodes":-1}', ">= 0"),
    ],
)
def test_malformed_event_raises_decode_error_with_reason(value: str, complaint: str) -> None:
    with pytest.raises(msgspec.DecodeError, match=complaint):
        decoded(value)


def test_invalid_utf8_and_deep_nesting_raise_documented_errors() -> None:
    with pytest.raises(UnicodeDecodeError):
        decoded(b'{"type":"start","site":"a","time":1,"job":"\xff\xfe"}')
    with pytest.raises((RecursionError, msgspec.DecodeError)):  # Python 3.14 and later parse deeper
        decoded('{"type":"start","site":"a","time":1,"job":"1","unknown":' + "[" * 100_000)


def test_withheld_prediction_encodes_null_and_reason() -> None:
    prediction = Prediction(
        site="ctc",
        job="4711",
        attempt=0,
        made_at=1.0,
        predicted_wait_s=None,
        predicted_run_s=None,
        predicted_start=None,
        method="median",
        reason="no history",
    )
    wire = json.loads(msgspec.json.encode(prediction))
    assert wire["predicted_wait_s"] is None
    assert (wire["v"], wire["reason"], wire["bounds"], wire["degraded"]) == (VERSION, "no history", None, None)


@pytest.mark.parametrize(
    "record",
    [
        Prediction(
            site="ctc",
            job="4711",
            attempt=0,
            made_at=835823160.0,
            predicted_wait_s=5400.0,
            predicted_run_s=3600.0,
            predicted_start=835828560.0,
            bounds={"0.1": 60.0, "0.5": 5400.0, "0.9": 31000.0},
            method="median",
            reason="…",
        ),
        Outcome(
            site="ctc",
            job="4711",
            attempt=0,
            made_at=1.0,
            method="median",
            predicted_wait_s=0.1,
            predicted_run_s=None,
            observed_at=3.0,
            actual_wait_s=2.0,
            error_s=-1.9,
            wait_from="eligible",
        ),
        DeadLetter(
            reason="malformed",
            detail="not JSON",
            site=None,
            topic="events",
            partition=3,
            offset=1 << 40,
            value="{",
            value_bytes=1,
        ),
    ],
    ids=lambda record: type(record).__name__,
)
def test_record_round_trips_with_its_version(record: msgspec.Struct) -> None:
    wire = msgspec.json.encode(record)
    assert msgspec.json.decode(wire, type=type(record)) == record
    assert json.loads(wire)["v"] == VERSION


def _defaults(event: AnyEvent) -> dict[str, object]:
    """Return the defaults of an event's fields, except the version."""
    fields = msgspec.structs.fields(event)
    made = {field.name: field.default_factory() for field in fields if field.default_factory is not msgspec.NODEFAULT}
    given = {field.name: field.default for field in fields if field.default is not msgspec.NODEFAULT}
    return {name: default for name, default in {**made, **given}.items() if name != "v"}
