"""Check names for control characters and line separators."""

from collections.abc import Iterator
from typing import Any, get_type_hints
from unicodedata import category

import msgspec

from models.records.events import Text

_SEPARATORS = ("Cc", "Zl", "Zp")
"""Unicode categories of control characters and of line and paragraph separators."""


def may_have_unsafe_names(value: bytes | msgspec.Raw) -> bool:
    """Return whether JSON may have such a character in a name, by its bytes only.

    JSON has control characters only as escapes; the others are not ASCII.
    """
    found = bytes(value) if isinstance(value, msgspec.Raw) else value
    return b"\\" in found or not found.isascii()


def unsafe_name(record: msgspec.Struct) -> str | None:
    """Return a description of the first forbidden character in the names of a record; None if there is none.

    >>> from models.records import Start
    >>> unsafe_name(Start(site="a\\u2028b", time=0.0, job="1"))
    'site has the character U+2028; names have no control characters and no line separators'
    >>> unsafe_name(Start(site="Jülich", time=0.0, job="1")) is None
    True
    """
    texts = _texts(type(record))
    for field in record.__struct_fields__:
        if field in texts:
            continue
        for text in _strings(getattr(record, field)):
            for letter in text:
                if category(letter) in _SEPARATORS:
                    wrong = f"{field} has the character U+{ord(letter):04X}"
                    return f"{wrong}; names have no control characters and no line separators"
    return None


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, found in value.items():
            yield from _strings(key)
            yield from _strings(found)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _strings(one)
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _strings(getattr(value, field))


_TEXTS: dict[type, frozenset[str]] = {}


def _texts(kind: type) -> frozenset[str]:
    """Return the fields of a record that are texts, which may have several lines."""
    if kind not in _TEXTS:
        hints = get_type_hints(kind, include_extras=True)
        _TEXTS[kind] = frozenset(name for name, hint in hints.items() if hint in (Text, Text | None))
    return _TEXTS[kind]
