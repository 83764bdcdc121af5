"""Local times in sacct's text: one hour occurs twice when daylight saving time ends.

`Elapsed` shows which of the two is meant and, if the zone is missing, that the clock was changed.
"""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from streams.sources.logs.fields import time_in
from streams.sources.slurm.any_release import number_of
from streams.sources.slurm.attempt_fields import AttemptFields
from streams.sources.slurm.attempt_rows import time_of

HOUR_S = 3600.0
APART_S = 2.0  # Slurm rounds start, end and Elapsed to seconds, each by itself
FALLBACK = ("submit_time", "eligible_time", "start_time", "end_time")

ReadTime = Callable[[object], float | None]


class LocalTimes:
    """Reads the times of one attempt after the other."""

    def __init__(self, zone: tzinfo) -> None:
        self._first = lru_cache(4096)(lambda text: _time(text, zone, 0))  # most come twice in a row or never again
        self._second = lru_cache(4096)(lambda text: _time(text, zone, 1))
        self._is_fixed = zone is UTC

    def of(self, attempt: AttemptFields) -> ReadTime:
        """Return the parser for the times of this attempt; ambiguous times are resolved from its cells."""
        elapsed_s = number_of(attempt.elapsed)
        if not elapsed_s:
            return self._first
        start, end = self._first(attempt.start_time), self._first(attempt.end_time)
        if start is None or end is None or abs(end - start - elapsed_s) <= APART_S:
            return self._first
        found = self._turned(attempt, elapsed_s)
        return found.get if found is not None else self._first

    def _turned(self, attempt: AttemptFields, elapsed_s: float) -> dict[object, float | None] | None:
        """The times by their texts, where the clock was turned while the attempt ran."""
        starts, ends = self._both(attempt.start_time), self._both(attempt.end_time)
        fitting = [(s, e) for s in starts for e in ends if abs(e - s - elapsed_s) <= APART_S]
        if not fitting and abs(abs(ends[0] - starts[0] - elapsed_s) - HOUR_S) <= APART_S:
            fitting = [(starts[0], starts[0] + elapsed_s)]
        if not fitting or attempt.start_time == attempt.end_time:
            return None
        start, end = fitting[0]
        found: dict[object, float | None] = {attempt.start_time: start, attempt.end_time: end}
        for text in (attempt.submit_time, attempt.eligible_time):
            times = self._both(text)
            before = [time for time in times if time <= start]
            found.setdefault(text, max(before, default=times[0] if times else None))
        return found

    def _both(self, text: object) -> list[float]:
        """The times that a text can mean, the earlier first."""
        return sorted({time for time in (self._first(text), self._second(text)) if time is not None})


def _time(text: str | None, zone: tzinfo, fold: int) -> float | None:
    """Unix seconds of `2026-11-22T12:00:00` there, or of Unix seconds; None for Slurm's words for no time."""
    if text is None:
        return None
    if text.isdecimal():
        return time_of(float(text))
    if not fold:
        return time_in(text, zone)
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=zone, fold=1)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
