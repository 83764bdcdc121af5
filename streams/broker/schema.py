"""JSON Schema (draft 2020-12) of the records on the topics, generated from the types that read and write them."""

from typing import Any

import msgspec

from models.records import (
    VERSION,
    AnyAnswer,
    AnyEvent,
    AnyQuestion,
    Bundle,
    DeadLetter,
    GridEstimate,
    Notice,
    Outcome,
    Prediction,
)
from streams.errors import InvalidInput

RECORDS: dict[str, Any] = {
    "event": AnyEvent | Bundle,
    "prediction": Prediction,
    "outcome": Outcome,
    "dead-letter": DeadLetter,
    "estimate": GridEstimate,
    "question": AnyQuestion,
    "answer": AnyAnswer,
    "notice": Notice,
}
"""Record types by name, one per topic."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(record: str | None = None) -> dict[str, Any]:
    """Return the schema of one record type, or a document with all of them in `$defs`.

    Raises:
        UserError: The record type does not exist.
    """
    if record is None:
        found, components = msgspec.json.schema_components(RECORDS.values(), ref_template="#/$defs/{name}")
        named = dict(zip(RECORDS, found, strict=True))
        choice = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in named]}
        return _head("records", "What is on queuecast's topics.") | choice | {"$defs": named | components}
    if record not in RECORDS:
        raise InvalidInput(f"no record {record!r}; there are: {', '.join(RECORDS)}")
    (found_one,), components = msgspec.json.schema_components([RECORDS[record]], ref_template="#/$defs/{name}")
    return _head(record, f"The value of a message of queuecast's topic {record}s.") | found_one | {"$defs": components}


def _head(name: str, description: str) -> dict[str, str]:
    return {
        "$schema": DIALECT,
        "$id": f"urn:queuecast:{name}:v{VERSION}",
        "title": f"queuecast {name}",
        "description": description,
    }
