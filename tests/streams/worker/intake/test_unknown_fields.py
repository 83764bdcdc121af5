"""Unknown fields of events."""

import logging

import msgspec
import pytest

from models.records import AnyEvent, Capacity, Start, Submit
from streams.worker.intake.intake import MAX_NAMES, MAX_SITES, UnknownFields, unknown_fields
from streams.worker.intake.messages import read_site_message

SUBMIT = b'{"type":"submit","site":"alder","time":1,"job":"1"'


def fields_of(value: bytes) -> list[str]:
    return unknown_fields(read_site_message(b"alder", value).parts[0].event, value)


@pytest.mark.parametrize(
    "event",
    [Submit(site="a", time=1.0, job="1"), Start(site="a", time=1.0, job="1"), Capacity(site="a", time=1.0, cpus=1)],
)
def test_unknown_fields_of_valid_event_are_empty(event: AnyEvent) -> None:
    assert unknown_fields(event, msgspec.json.encode(event)) == []


def test_unknown_fields_list_misspelt_names() -> None:
    assert fields_of(SUBMIT + b',"wallclock":3600,"cpus":4,"x":{"y":[1]}}') == ["wallclock", "x"]
    assert fields_of(SUBMIT + b',"' + b"z" * 300 + b'":1,"\\u001b[2J":2}') == ["z" * 64, "other"]
    assert fields_of(b'{"type":"start","site":"alder","time":1,"job":"1","walltime":5}') == ["walltime"]


def test_unknown_field_of_invalid_text_counts_as_other() -> None:
    assert fields_of(SUBMIT + b',"\x9attempt":1}') == ["other"]
    assert fields_of(SUBMIT + b',"wallclock":1,"\xff":2}') == ["other"]


def test_unknown_field_is_counted_each_time_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[str] = []
    found = UnknownFields(counted.append)
    value = SUBMIT + b',"wallclock":3600}'
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            found.look(read_site_message(b"alder", value).parts[0].event, value)
    assert found.of("alder") == {"wallclock": 4}
    assert found.of("birch") == {}
    assert counted == ["wallclock"] * 4
    assert [record.getMessage() for record in caplog.records] == [
        "Ignored unknown event field 'wallclock': check its spelling"
    ]


def test_unknown_fields_memory_is_bounded() -> None:
    counted: list[str] = []
    found = UnknownFields(counted.append)
    for number in range(MAX_SITES + 10):
        event = Submit(site=f"s{number}", time=1.0, job="1")
        found.look(event, msgspec.json.encode(event)[:-1] + b',"x%d":1,"y":1}' % number)
    assert len(set(counted)) == MAX_NAMES + 1
    assert "other" in counted
    assert found.of("s0") == {}
    assert found.of(f"s{MAX_SITES + 9}") == {f"x{MAX_SITES + 9}": 1, "y": 1}
