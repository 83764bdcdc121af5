import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.records import AnyEvent
from streams.broker.schema import RECORDS, schema
from streams.errors import UserError
from tests.support.extremes import extreme, read

VALIDATORS = {name: jsonschema.Draft202012Validator(schema(name)) for name in RECORDS}

number = st.floats(allow_nan=False, allow_infinity=False)
part = number.filter(lambda value: not value.is_integer())  # the schema accepts 1.0 as an integer, the decoder does not
anything = st.none() | st.booleans() | st.integers(-5, 5) | part | st.text(max_size=3) | st.just([]) | st.just({})


documents = {kind: extreme(record) for kind, record in RECORDS.items()}
examples = st.sampled_from(list(RECORDS)).flatmap(
    lambda kind: st.tuples(st.just(kind), documents[kind].map(lambda document: read(RECORDS[kind], document)))
)


def as_json(record: Any) -> Any:
    return json.loads(msgspec.json.encode(record))


@pytest.mark.parametrize("record", [None, *RECORDS])
def test_schema_is_valid_draft_2020_12(record: str | None) -> None:
    found = schema(record)
    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert found["$id"] == f"urn:queuecast:{record or 'records'}:v1"
    assert found["title"] == f"queuecast {record or 'records'}"
    assert json.loads(json.dumps(found)) == found


def test_schema_references_are_defined() -> None:
    for found in (schema(), *map(schema, RECORDS)):
        references = {part.split('"')[0] for part in json.dumps(found).split('"#/$defs/')[1:]}
        assert references <= set(found["$defs"])
    assert set(RECORDS) <= set(schema()["$defs"])


@given(examples)
def test_encoded_record_is_valid_by_schema(example: tuple[str, Any]) -> None:
    kind, record = example
    VALIDATORS[kind].validate(as_json(record))
    jsonschema.Draft202012Validator(schema()).validate(as_json(record))


@given(examples, st.data())
def test_schema_accepts_same_documents_as_decoder(example: tuple[str, Any], data: st.DataObject) -> None:
    kind, record = example
    document = as_json(record)
    field = data.draw(st.sampled_from(sorted(document)))
    if data.draw(st.booleans()):
        del document[field]
    else:
        document[field] = data.draw(anything)
    try:
        msgspec.json.decode(json.dumps(document), type=RECORDS[kind])
        readable = True
    except msgspec.ValidationError:
        readable = False
    assert VALIDATORS[kind].is_valid(document) == readable


SUBMIT = {"v": 1, "site": "s", "type": "submit", "time": 5.0, "job": "1"}


@pytest.mark.parametrize(
    "change",
    [
        {"type": "vanish"},
        {"type": None},
        {"site": ""},
        {"time": "now"},
        {"time": -1},
        {"job": 4711},
        {"cpus": 0},
        {"v": 2},
        {"user": "x" * 300},
    ],
)
def test_schema_rejects_malformed_event(change: dict[str, Any]) -> None:
    assert VALIDATORS["event"].is_valid(SUBMIT)
    assert not VALIDATORS["event"].is_valid(SUBMIT | change)


@pytest.mark.parametrize("field", ["site", "type", "time", "job"])
def test_schema_rejects_event_without_required_field(field: str) -> None:
    assert not VALIDATORS["event"].is_valid({name: value for name, value in SUBMIT.items() if name != field})


def test_schema_accepts_unknown_fields() -> None:
    assert VALIDATORS["event"].is_valid(SUBMIT | {"colour": "green"})


def test_schema_has_all_event_types() -> None:
    kinds = {"bundle", *(kind.kind for kind in AnyEvent.__args__)}
    assert set(schema("event")["discriminator"]["mapping"]) == kinds


def test_schema_of_unknown_record_raises_user_error() -> None:
    with pytest.raises(UserError, match="no record 'weather'; there are: event, prediction, outcome, dead-letter"):
        schema("weather")
