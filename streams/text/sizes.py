"""Reads and writes sizes of memory as people and schedulers write them, such as 64G."""

import re

from streams.errors import NotUnderstood

PATTERN = r"[0-9]{1,16}([.][0-9]{1,6})?([kKmMgGtT][iI]?)?[bB]?"
"""Matches sizes and nothing else. It has no flags, so that a JSON Schema can use it too."""

_DIGITS = {"": 16, "[kK][iI]?": 15, "[mM][iI]?": 12, "[gG][iI]?": 9, "[tT][iI]?": 6}

SAFE_PATTERN = "(" + "|".join(f"[0-9]{{1,{most}}}([.][0-9]{{1,6}})?{unit}" for unit, most in _DIGITS.items()) + ")[bB]?"
"""Matches such sizes as are surely not above 2^60 bytes, by their digits, so that whatever fits a document is taken."""

EXPECTED = "bytes, or a number with K, M, G or T (1024 each): 64G, 512M, 1.5T"

MOST_BYTES = 1 << 60

_UNITS = "KMGT"
_size = re.compile(rf"(?P<number>[0-9.]+)(?P<unit>[{_UNITS}]?)I?B?")
_pattern = re.compile(PATTERN)


def bytes_of(text: str) -> int:
    """A size of memory in bytes; spaces around the text are ignored. A number without a letter is bytes.

    Raises:
        UserError: the text is no size, or it is above 2^60 bytes.

    >>> bytes_of("64Gi"), bytes_of("1.5 MiB".replace(" ", "")), bytes_of("4096")
    (68719476736, 1572864, 4096)
    """
    text = text.strip()
    found = _size.fullmatch(text.upper()) if _pattern.fullmatch(text) else None
    if found is None:
        raise NotUnderstood(f"{text[:40]!r} is no size of memory; expected {EXPECTED}")
    unit = found["unit"]
    size = round(float(found["number"]) * 1024.0 ** (1 + _UNITS.index(unit) if unit else 0))
    if size > MOST_BYTES:
        raise NotUnderstood(f"{text[:40]!r} is more than 2^60 bytes")
    return size


def size_text(size: int) -> str:
    """A size of memory in its largest unit, as `bytes_of` reads it but for what is rounded.

    >>> size_text(64 << 30), size_text(1572864), size_text(99)
    ('64G', '1.5M', '99B')
    """
    power = min(max((size.bit_length() - 1) // 10, 0), len(_UNITS))
    return f"{size / 1024**power:.4g}{_UNITS[power - 1] if power else 'B'}"
