"""Reads by when something shall be: a time of day, a date with one, or a duration from now."""

from datetime import datetime, timedelta

from streams.errors import NotUnderstood
from streams.text.durations import seconds_of

EXPECTED = "expected a time of day as 17:00, a date with one as 2026-05-04T08:00, or a duration as 3h"


def deadline_of(text: str, now: datetime) -> datetime:
    """By when, on the clock of `now` unless the text names another zone; a time of day is the next one.

    Raises:
        NotUnderstood: the text is none, or lies in the past.

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
        except (NotUnderstood, OverflowError):
            raise NotUnderstood(f"{text[:40]!r} is no time; {EXPECTED}") from None
    if found <= now:
        raise NotUnderstood(f"{text!r} is past; {EXPECTED}")
    return found
