"""What the cells of a table say."""

import math
from datetime import datetime, timedelta, tzinfo

from streams.sources.logs.fields import MAX_SECONDS, iso_time
from streams.sources.slurm.rows import walltime_of

Cell = object
"""Text, a number, a date, a span of time, or None; Parquet's own kinds come as Python's."""

NOTHING = frozenset({"", "nan", "nat", "none", "null", "n/a", "-", "-1", "unknown"})
"""How tables say in words that something is unknown, lower case."""


def text_of(cell: Cell) -> str:
    """A name: whole numbers without a fraction; empty where it is unknown."""
    if cell is None or (isinstance(cell, float) and (math.isnan(cell) or cell < 0)):
        return ""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    text = str(cell).strip()
    return "" if text.lower() in NOTHING else text.removesuffix(".0")


def number_of(cell: Cell) -> float | None:
    """A number from 0; None where it is unknown or none."""
    if isinstance(cell, timedelta):
        return cell.total_seconds()
    try:
        value = float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def seconds_of(cell: Cell, times: float) -> float | None:
    """A span of time in seconds: a number of its unit, or `1-00:00:00`, or `1 days 00:00:00`."""
    number = number_of(cell)
    if number is not None:
        return number if isinstance(cell, timedelta) else number * times
    if not isinstance(cell, str) or ":" not in cell:
        return None
    days, _, rest = cell.strip().rpartition(" ")
    return walltime_of(f"{days.partition(' ')[0]}-{rest}" if days else rest)[0]


def time_of(cell: Cell, zone: tzinfo) -> float | None:
    """Unix seconds of a date, or of a number of seconds, thousandths, millionths or billionths; None where unknown."""
    if isinstance(cell, datetime):
        return (cell if cell.tzinfo else cell.replace(tzinfo=zone)).timestamp()
    value = number_of(cell)
    if value is None:
        return iso_time(cell.strip().replace(" UTC", "Z").replace("/", "-"), zone) if isinstance(cell, str) else None
    while value > MAX_SECONDS:
        value /= 1000.0
    return value or None
