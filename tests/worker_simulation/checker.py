"""Compares what came out of a simulation with what comes out where nothing goes wrong."""

from collections.abc import Collection
from typing import Any

import msgspec

from models.records import DeadLetter
from streams.worker.checkpoint.stored_site import decode_stored
from tests.support.stored import heads, saved_state, whole
from tests.worker_simulation.servers import Kafka
from tests.worker_simulation.workers import ReadTable

FIELDS = ("offset", "operations", "failures", "state")  # what is compared of a stored site


class Difference(AssertionError):
    """What came out is not what had to come out."""


def compare(found: Kafka, expected: Kafka, degraded: Collection[str] = ()) -> None:
    """Make sure that a run did what the undisturbed one did.

    Args:
        degraded: sites of which Redis lost what could not be recovered; every prediction must be there, with any value.

    Raises:
        Difference: something is lost, or different.
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
    """Return the values on a topic in their order, each once; of degraded sites, only which predictions there are."""
    found: dict[Any, None] = {}
    for value in kafka.records(topic):
        record = msgspec.json.decode(value)
        if record["site"] not in degraded:
            found[value] = None
        elif topic == "predictions":
            found[tuple(record[name] for name in ("site", "job", "attempt", "method"))] = None
    return found


def dead_letters(found: Kafka) -> list[DeadLetter]:
    """Return the dead letters, each once."""
    return [msgspec.json.decode(value, type=DeadLetter) for value in dict.fromkeys(found.records("dead-letters"))]


def stored_sites(kafka: Kafka) -> dict[str, tuple[Any, ...]]:
    """Return what the changelog has of each site."""
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
