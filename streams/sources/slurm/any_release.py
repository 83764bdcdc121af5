"""Numbers, words and times of Slurm's JSON, in the shape of any release."""

from functools import lru_cache
from math import inf, isfinite
from typing import Any

import msgspec

from streams.sources.slurm.attempt_rows import (
    count_of,
    time_of,
)


class Optional(msgspec.Struct, gc=False, frozen=True):
    """A number of later releases, with a flag that it is set."""

    is_set: bool = msgspec.field(name="set", default=True)
    infinite: bool = False
    number: float = 0.0


Number = float | str | bool | Optional | None  # a number in any release's shape
Words = str | list[str] | None  # one word or several, in any release's shape


def number_of(value: Number) -> float | None:
    """Return the number; None if it is not set or infinite."""
    if value is None:
        return None
    if isinstance(value, Optional):
        return value.number if value.is_set and not value.infinite else None
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = float(value) if value.isascii() and value.isdecimal() else inf
    return value if isfinite(value) else None


def is_infinite(value: Number) -> bool:
    """Check if the value means no limit."""
    if isinstance(value, Optional):
        return value.infinite
    return value == 0xFFFF_FFFF or value in ("UNLIMITED", "INFINITE")


def words_of(value: Words) -> tuple[str, ...]:
    """The words, in capitals."""
    if value is None:
        return ()
    return (value.upper(),) if isinstance(value, str) else tuple(word.upper() for word in value)


def text_of(value: Any) -> str:
    """A value as scontrol and sacct print it: words with commas, resources as `cpu=8,mem=4096M,gres/gpu=2`."""
    if isinstance(value, list):
        return ",".join(filter(None, (_resource(one) if isinstance(one, dict) else str(one) for one in value)))
    if isinstance(value, dict):
        value = msgspec.convert(value, Optional, strict=False) if "number" in value else None
    if value is None or isinstance(value, str | bool):
        return value if isinstance(value, str) else ""
    number = number_of(value)
    return "UNLIMITED" if is_infinite(value) else "" if number is None else f"{number:.0f}"


def _resource(found: dict[str, Any]) -> str:
    """Format the amount of a trackable resource (TRES); memory is in MiB."""
    kind, name, many = found.get("type"), found.get("name"), found.get("count")
    if isinstance(many, bool) or not isinstance(many, int | float):
        return ""
    return f"{kind}{f'/{name}' if name else ''}={many:.0f}{'M' if kind == 'mem' else ''}"


@lru_cache(4096, typed=True)
def count(value: Number) -> int | None:
    """A number of things, in any release's shape."""
    return count_of(number_of(value))


def json_time(value: Number) -> float | None:
    """A time in Unix seconds, in any release's shape."""
    return time_of(number_of(value))
