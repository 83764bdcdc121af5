"""The shapes that numbers and words have had in Slurm's JSON, from release 21.08 to 26.05."""

from math import inf, isfinite
from typing import Any

import msgspec


class Optional(msgspec.Struct, gc=False, frozen=True):
    """A number of later releases, with whether it is set."""

    is_set: bool = msgspec.field(name="set", default=True)
    infinite: bool = False
    number: float = 0.0


Number = float | str | bool | Optional | None
"""A number in any release's shape."""

Words = str | list[str] | None
"""One word or several, in any release's shape."""


def number_of(value: Number) -> float | None:
    """The number; None where it is not set or infinite."""
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
    """Whether it says that there is no limit."""
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
    """So many of a trackable resource; memory is in MiB."""
    kind, name, many = found.get("type"), found.get("name"), found.get("count")
    if isinstance(many, bool) or not isinstance(many, int | float):
        return ""
    return f"{kind}{f'/{name}' if name else ''}={many:.0f}{'M' if kind == 'mem' else ''}"
