"""Parse the fields of logs as numbers and names.

An invalid field is reported with its name: functions that receive the name raise `BadRecord`.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from sys import intern
from typing import Any

import msgspec

from models.durations import SKEW_S
from streams.errors import UNDECODABLE
from streams.sources.contract import SkippedPart

MAX_COUNT = 1_000_000_000
MAX_BYTES = 1 << 60
MAX_SECONDS = 1e11
MAX_NAME = 256
MAX_TEXT = 1024
MAX_SHOWN = 40  # characters of a wrong field that are shown
_UNITS = {"": 0, "b": 0, "w": 0, "k": 10, "kb": 10, "kw": 10, "m": 20, "mb": 20, "mw": 20, "g": 30, "gb": 30}
_UNITS |= {"gw": 30, "t": 40, "tb": 40, "tw": 40, "p": 50, "pb": 50, "pw": 50}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]{0,2})", re.ASCII)
WORD_BYTES = 8  # bytes of a word, a unit of memory in PBS and Torque

Object = dict[str, Any]  # an object of JSON


class BadRecord(Exception):
    """A record that gives no event because a field is wrong, or the whole record if `field` is None."""

    def __init__(self, field: str | None, found: object, expected: str) -> None:
        self.field = field
        self.found = str(found) if field is None else repr(str(found)[:MAX_SHOWN])
        self.expected = expected
        super().__init__(field, found, expected)

    def skipped(self, file: str, line: int | None = None) -> SkippedPart:
        """The same, of a record that stands there."""
        return SkippedPart(file, line, self.field, self.found, self.expected)


def in_turn(time: float, before: float) -> float:
    """Move a time to the one that it must follow, if it is earlier by no more than the engine's clock tolerance.

    >>> in_turn(90.0, 100.0), in_turn(9.0, 100.0)
    (100.0, 9.0)
    """
    return before if before - SKEW_S <= time < before else time


def known(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def natural_number(text: str, field: str, most: int = MAX_COUNT) -> int:
    """A whole number from 0."""
    if len(text) <= 20 and text.isdecimal() and text.isascii() and (value := int(text)) <= most:
        return value
    raise BadRecord(field, text, "a whole number")


def unix_time(text: str, field: str) -> float:
    """Unix seconds, later than 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0.0 < value <= MAX_SECONDS:
        return value
    raise BadRecord(field, text, "Unix seconds")


def by_name(text: str) -> dict[str, str]:
    """Parse a small table of names from text. Names are interned, because msgspec omits defaults by identity.

    >>> by_name("user:user_name qos")
    {'user': 'user_name', 'qos': 'qos'}
    """
    pairs = (word.partition(":") for word in text.split())
    return {intern(name): intern(other or name) for name, _, other in pairs}


@lru_cache(4096)
def count_of(text: str | None) -> int | None:
    """Parse an integer from 0; None if it is invalid or missing."""
    if text is None or len(text) > 20 or not text.isascii() or not text.isdecimal():
        return None
    return value if (value := int(text)) <= MAX_COUNT else None


@lru_cache(4096)
def bytes_of(text: str | None) -> int | None:
    """Memory such as `45gb`, `1.024t`, `4224531456b` or `512` (bytes); None where it is none.

    >>> bytes_of("1993mb"), bytes_of("2kw"), bytes_of("1.5G"), bytes_of("much")
    (2089811968, 16384, 1610612736, None)
    """
    found = _SIZE.fullmatch(text.lower()) if text is not None else None
    if found is None or (unit := found[2]) not in _UNITS:
        return None
    value = int(float(found[1]) * (1 << _UNITS[unit]) * (WORD_BYTES if unit.endswith("w") else 1))
    return value if value <= MAX_BYTES else None


@lru_cache(4096)
def seconds_of(text: str | None) -> float | None:
    """Parse a duration: seconds, `MM:SS`, `HH:MM:SS` or `DD:HH:MM:SS`; None if it is invalid or 0.

    >>> seconds_of("96:00:00"), seconds_of("1:00:00:00"), seconds_of("90"), seconds_of("UNLIMITED")
    (345600.0, 86400.0, 90.0, None)
    """
    total = 0.0
    parts = text.split(":") if text is not None else []
    if not 1 <= len(parts) <= 4:
        return None
    for part, factor in zip(reversed(parts), (1, 60, 3600, 86400), strict=False):
        try:
            value = float(part)
        except ValueError:
            return None
        total += value * factor
    return total if 0.0 < total <= MAX_SECONDS else None


def tasks_of(parts: Iterable[str]) -> int | None:
    """Return the number of array tasks in the parts of an index expression; None if a part is invalid.

    >>> tasks_of(["1-100:2", "105"]), tasks_of(["all"]), tasks_of([])
    (51, None, None)
    """
    total = 0
    for part in parts:
        bounds, _, step = part.partition(":")
        first, _, last = bounds.partition("-")
        begin, end, by = count_of(first), count_of(last or first), count_of(step or "1")
        if begin is None or end is None or not by or end < begin:
            return None
        total += (end - begin) // by + 1
    return total if 1 <= total <= MAX_COUNT else None


def numbers_in(text: str) -> int:
    """Return how many numbers `0-3,7,10-20:5` contains; invalid parts are skipped."""
    return sum(tasks_of([part]) or 0 for part in text.split(","))


def name_of(text: object) -> str | None:
    """Return a name, truncated to the maximum length in events; None if it is empty."""
    return text[:MAX_NAME] if text and isinstance(text, str) else None


def text_of(text: str | None) -> str | None:
    """Return a text, truncated to the maximum length in events; None if it is empty."""
    return text[:MAX_TEXT] if text else None


def time_in(text: str | None, zone: tzinfo = UTC) -> float | None:
    """Parse an ISO 8601 time as Unix seconds, in this zone if it has none; None if it is invalid."""
    try:
        found = datetime.fromisoformat(text or "")
        seconds = (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return seconds if 0 < seconds <= MAX_SECONDS else None


iso_time = lru_cache(65536)(time_in)  # the same, for who meets times again


def job_of(text: str, field: str) -> str:
    """A job's id, of `MAX_NAME` characters at most."""
    if 0 < len(text) <= MAX_NAME and text.isprintable():
        return text
    raise BadRecord(field, text, f"a job's id of 1 to {MAX_NAME} printable characters")


_json = msgspec.json.Decoder(Object)


def object_of(text: str, found: str | None = None, expected: str = "an object in JSON") -> Object:
    """Parse a JSON object.

    Raises:
        BadRecord: the text is not an object; it is described by `found`, else by its beginning.
    """
    try:
        return _json.decode(text)
    except UNDECODABLE:
        raise BadRecord(None, found or repr(text[:MAX_SHOWN]), expected) from None


def object_at(found: object, *names: str) -> Object:
    """Return the object at this path; empty if there is none."""
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}
