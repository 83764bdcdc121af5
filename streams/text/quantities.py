"""Parse durations (90m, 1-00:30:00), memory sizes (64G) and deadlines in the notations of users and schedulers.

Durations with colons mean the same as in sbatch. A number without a unit is rejected: Slurm reads it as minutes, PBS as
seconds.
"""

import re
from datetime import datetime, timedelta
from math import fsum

from streams.errors import InvalidInput

PATTERN = (
    r"(?=[^1-9]*[1-9])("  # more than nothing
    r"[0-9]{1,5}d([0-9]{1,5}h)?([0-9]{1,6}m)?([0-9]{1,8}s)?"
    r"|[0-9]{1,5}h([0-9]{1,6}m)?([0-9]{1,8}s)?|[0-9]{1,6}m([0-9]{1,8}s)?|[0-9]{1,9}s"
    r"|[0-9]{1,5}[.][0-9]{1,6}[dhms]"
    r"|[0-9]{1,6}:[0-5][0-9]|([0-9]{1,5}-)?[0-9]{1,5}:[0-5][0-9]:[0-5][0-9]|[0-9]{1,5}-[0-9]{1,5}(:[0-5][0-9])?)"
)
"""Matches durations and nothing else. It has no flags, so that a JSON Schema can use it too."""

EXPECTED = "a time with its unit, not 0: 90m, 1.5h, 1d12h, 30s, MM:SS, HH:MM:SS, D-HH or D-HH:MM:SS"

_UNITS = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_duration = re.compile(PATTERN)
_number = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)


def seconds_of(text: str) -> float:
    """Return a duration in seconds; surrounding spaces are ignored.

    Raises:
        UserError: the text is not a duration, or has no unit, or it is 0.

    >>> seconds_of("240m"), seconds_of("1.5h"), seconds_of("04:00:00"), seconds_of("1-00:30:00")
    (14400.0, 5400.0, 14400.0, 88200.0)
    >>> seconds_of("30:00"), seconds_of("1-00"), seconds_of("1-12:30")
    (1800.0, 86400.0, 131400.0)
    """
    text = text.strip()
    if _number.fullmatch(text):
        number = text[:20]
        raise InvalidInput(
            f"{number!r} is not a valid duration without a unit; expected {number}m, {number}h or {number}s"
        )
    if not _duration.fullmatch(text):
        raise InvalidInput(f"{text[:40]!r} is not a valid duration; expected {EXPECTED}")
    if ":" in text or "-" in text:
        days, dash, clock = text.rpartition("-")
        parts = [int(part) for part in clock.split(":")]
        units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
        return float(int(days or 0) * 86_400 + fsum(part * unit for part, unit in zip(parts, units, strict=False)))
    return fsum(float(count) * _UNITS[unit] for count, unit in re.findall(r"([0-9.]+)([dhms])", text))


TIMES = "expected a time of day as 17:00, a date with one as 2026-05-04T08:00, or a duration as 3h"


def deadline_of(text: str, now: datetime) -> datetime:
    """Parse a deadline in the time zone of `now`, unless the text has its own; a time of day means its next occurrence.

    Raises:
        InvalidInput: the text is not a time or a duration, or lies in the past.

    >>> noon = datetime(2026, 5, 3, 12, 0)
    >>> [f"{deadline_of(text, noon):%d %H:%M}" for text in ("17:00", "08:30", "2026-05-04 08:00", "90m")]
    ['03 17:00', '04 08:30', '04 08:00', '03 13:30']
    """
    text = text.strip()
    try:
        if len(text) <= len("17:00"):
            clock = datetime.strptime(text, "%H:%M")
            found = now.replace(hour=clock.hour, minute=clock.minute, second=0, microsecond=0)
            return found if found > now else found + timedelta(days=1)
        found = datetime.fromisoformat(text)
        found = found.replace(tzinfo=now.tzinfo) if found.tzinfo is None else found
    except ValueError:
        try:
            return now + timedelta(seconds=seconds_of(text))
        except (InvalidInput, OverflowError):
            raise InvalidInput(f"{text[:40]!r} is not a valid time; {TIMES}") from None
    if found <= now:
        raise InvalidInput(f"{text!r} is in the past; {TIMES}")
    return found


SIZE_PATTERN = r"[0-9]{1,16}([.][0-9]{1,6})?([kKmMgGtT][iI]?)?[bB]?"
"""Matches sizes and nothing else. It has no flags, so that a JSON Schema can use it too."""

_DIGITS = {"": 16, "[kK][iI]?": 15, "[mM][iI]?": 12, "[gG][iI]?": 9, "[tT][iI]?": 6}

SAFE_SIZE_PATTERN = (
    "(" + "|".join(f"[0-9]{{1,{most}}}([.][0-9]{{1,6}})?{unit}" for unit, most in _DIGITS.items()) + ")[bB]?"
)
"""Matches such sizes as are surely not above 2^60 bytes, by their digits, so that whatever fits a document is taken."""

EXPECTED_SIZE = "bytes, or a number with K, M, G or T (1024 each): 64G, 512M, 1.5T"

MAX_BYTES = 1 << 60

_SIZE_UNITS = "KMGT"
_size = re.compile(rf"(?P<number>[0-9.]+)(?P<unit>[{_SIZE_UNITS}]?)I?B?")
_pattern = re.compile(SIZE_PATTERN)


def bytes_of(text: str) -> int:
    """Return a memory size in bytes; surrounding spaces are ignored. A number without a letter is bytes.

    Raises:
        UserError: the text is not a size, or it is above 2^60 bytes.

    >>> bytes_of("64Gi"), bytes_of("1.5 MiB".replace(" ", "")), bytes_of("4096")
    (68719476736, 1572864, 4096)
    """
    text = text.strip()
    found = _size.fullmatch(text.upper()) if _pattern.fullmatch(text) else None
    if found is None:
        raise InvalidInput(f"{text[:40]!r} is not a valid memory size; expected {EXPECTED_SIZE}")
    unit = found["unit"]
    size = round(float(found["number"]) * 1024.0 ** (1 + _SIZE_UNITS.index(unit) if unit else 0))
    if size > MAX_BYTES:
        raise InvalidInput(f"{text[:40]!r} is more than 2^60 bytes")
    return size


def size_text(size: int) -> str:
    """Format a memory size in its largest unit, rounded; `bytes_of` can parse the result.

    >>> size_text(64 << 30), size_text(1572864), size_text(99)
    ('64G', '1.5M', '99B')
    """
    power = min(max((size.bit_length() - 1) // 10, 0), len(_SIZE_UNITS))
    return f"{size / 1024**power:.4g}{_SIZE_UNITS[power - 1] if power else 'B'}"
