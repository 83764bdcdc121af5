"""The cells of tables as names, numbers, times and durations."""

import math
from datetime import datetime, timedelta, tzinfo

from streams.sources.logs.fields import MAX_SECONDS, iso_time
from streams.sources.slurm.attempt_rows import walltime_of

Cell = object  # text, a number, a date, a span of time, or None; Parquet's own kinds come as Python's

NOTHING = frozenset({"", "nan", "nat", "none", "null", "n/a", "na", "-", "-1", "unknown", "<na>", "\\n", "(null)"})
"""Words of tables for an unknown value, in lower case; databases export `\\N`."""

NOT_SET = frozenset({0xFFFF_FFFE, 0xFFFF_FFFF_FFFF_FFFE})
"""Slurm's numbers for a value that is not set (NO_VAL)."""

NO_LIMIT = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, 0x7FFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF})
"""Numbers for no limit: Slurm's INFINITE, and the largest signed ones, which LSF and others write."""

NO_LIMIT_WORDS = frozenset({"unlimited", "infinite", "infinity", "inf", "never"})
NOT_SET_WORDS = frozenset({"partition_limit", "not_set", "default", "invalid"})
FAR_YEAR = 9000  # databases write a date of the year 9999 for an end that has not come


def text_of(cell: Cell) -> str:
    """Return a name: integers without a fraction; empty if it is missing."""
    if cell is None or (isinstance(cell, float) and (math.isnan(cell) or cell < 0)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    text = str(cell).strip()
    return "" if text.lower() in NOTHING else text.removesuffix(".0")


def amount_of(cell: Cell) -> float | None:
    """Return a number from 0; None if it is missing or invalid."""
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def seconds_of(cell: Cell, times: float = 1.0) -> float | None:
    """A duration in seconds: a number of its unit, `1-00:00:00`, or `1 days 00:00:00`; infinite for no limit.

    Returns:
        None where it is unknown or negative.

    Raises:
        ValueError: it is not a duration, or longer than any event states.
    """
    number = amount_of(cell)
    if number in NO_LIMIT:
        return math.inf
    if number in NOT_SET or cell is None:
        return None
    if number is None:
        return _seconds_of_text(str(cell).strip())
    seconds = number if isinstance(cell, timedelta) else number * times
    if seconds > MAX_SECONDS:
        raise ValueError(cell)
    return seconds


def _seconds_of_text(text: str) -> float | None:
    word = text.lower()
    if word in NO_LIMIT_WORDS:
        return math.inf
    if word in NOTHING or word in NOT_SET_WORDS or word.startswith("-"):
        return None
    days, _, rest = text.rpartition(" ")
    seconds, _ = walltime_of(f"{days.partition(' ')[0]}-{rest}" if days else rest)
    if ":" not in text or (seconds is None and any(digit in text for digit in "123456789")):
        raise ValueError(text)
    return seconds or 0.0


def time_of(cell: Cell, zone: tzinfo) -> float | None:
    """Unix seconds of a date, or of a number of seconds, thousandths, millionths or billionths.

    Returns:
        None where it is unknown: empty, a word for nothing, 0, the Unix epoch, or a date of the year 9999.

    Raises:
        ValueError: it is not a time.
    """
    if isinstance(cell, datetime):
        if not 1970 <= cell.year < FAR_YEAR:
            return None
        return max((cell if cell.tzinfo else cell.replace(tzinfo=zone)).timestamp(), 0.0) or None
    value = amount_of(cell)
    if value is None:
        return _time_of_text(str(cell).strip(), zone) if cell is not None else None
    if value in NOT_SET or value in NO_LIMIT:
        return None
    while value > MAX_SECONDS:
        value /= 1000.0
    return value or None


def _time_of_text(text: str, zone: tzinfo) -> float | None:
    if text.lower() in NOTHING or text.startswith(("-", "1970-01-01", "0000-00-00", "9999")):
        return None
    seconds = iso_time(text.replace(" UTC", "Z").replace("/", "-"), zone)
    if seconds is None:
        raise ValueError(text)
    return seconds
