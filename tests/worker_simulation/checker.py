"""Compare the output of a simulation with that of a run without faults."""

from collections.abc import Collection
from typing import Any

import msgspec

from models.records import DeadLetter
from streams.worker.checkpoint.stored_site import decode_stored
from tests.support.stored import heads, saved_state, whole
from tests.worker_simulation.servers import Kafka
from tests.worker_simulation.workers import ReadTable

FIELDS = ("offset", "operations", "failures", "state")  # compared fields of a stored site


class Difference(AssertionError):
    """The output differs from the expected output."""


def compare(found: Kafka, expected: Kafka, degraded: Collection[str] = ()) -> None:
    """Check that a run has the output of the run without faults.

    Args:
        degraded: sites with unrecoverable losses in Redis; each prediction must exist, with any value.

    Raises:
        Difference: a record is missing or different.
    """
    for topic in ("predictions", "outcomes", "dead-letters"):
        values, wanted = _values(found, topic, degraded), _values(expected, topic, degraded)
        if lost := [value for value in wanted if value not in values]:
            raise Difference(f"{len(lost)} {topic} are lost, the first: {lost[0]!r}")
        if more := [value for value in values if value not in wanted]:
            raise Difference(f"{len(more)} {topic} too many, the first: {more[0]!r}")
    for partition, messages in found.messages.items():
        if found.committed.get(partition, 0) != len(messages):
            raise Difference(f"partition {partition} is committed up to {found.committed.get(partition)}")
    states, wanted_states = stored_sites(found), stored_sites(expected)
    if states.keys() != wanted_states.keys():
        raise Difference(f"sites {sorted(states)} are stored, not {sorted(wanted_states)}")
    for site, state in states.items():
        if site in degraded:
            continue
        for name, value, wanted_value in zip(FIELDS, state, wanted_states[site], strict=True):
            if value != wanted_value:
                raise Difference(f"{name} of {site}: {_short(value)} and not {_short(wanted_value)}")


def _values(kafka: Kafka, topic: str, degraded: Collection[str]) -> dict[Any, None]:
    """Return the distinct values of a topic in order; for degraded sites, only the keys of the predictions."""
    found: dict[Any, None] = {}
    for value in kafka.records(topic):
        record = msgspec.json.decode(value)
        if record["site"] not in degraded:
            found[value] = None
        elif topic == "predictions":
            found[tuple(record[name] for name in ("site", "job", "attempt", "method"))] = None
    return found


def dead_letters(found: Kafka) -> list[DeadLetter]:
    """Return the distinct dead letters."""
    return [msgspec.json.decode(value, type=DeadLetter) for value in dict.fromkeys(found.records("dead-letters"))]


def stored_sites(kafka: Kafka) -> dict[str, tuple[Any, ...]]:
    """Return the compared fields of each site in the changelog."""
    table = ReadTable(kafka, None)  # type: ignore[arg-type]  # it is not written
    for partition, log in kafka.changelog.items():
        for key, value in log:
            table.take(key, value, partition)
    found = {}
    for site, stored in heads(table.data):
        state = saved_state(table.data, site, decode_stored(table.data[site.encode()]))
        found[site] = (stored.offset, stored.operations, stored.failures, whole(state))
    return found


def _short(value: Any) -> str:
    return repr(value) if not isinstance(value, bytes) else f"{len(value)} bytes"
