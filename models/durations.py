"""Durations that have a name, and durations and counts as text for people."""

import math

DAY_S = 86_400.0
SKEW_S = 60.0
"""Clocks differ: a start at most this long before its submit counts as one at it, an end before its start likewise."""

AT_ONCE_S = 60.0  # a job that waits less starts at once, seconds
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_STEPS = ((100 * 86_400, 86_400), (86_400, 3600), (600, 60))  # from which duration on it is rounded to what, seconds


def duration(seconds: float) -> str:
    """A duration in seconds as text, in at most two units; rounded, to minutes from 10 minutes on.

    It is written as people type it, in tables, reasons and notices; the page's `text.js` writes the same.

    >>> duration(5400), duration(42.4), duration(200_000), duration(-90), duration(7200)
    ('1h30m', '42s', '2d8h', '-1m30s', '2h')
    """
    whole = math.floor(abs(seconds) + 0.5)
    step = next((step for least, step in _STEPS if whole >= least), 1)
    left, text = (whole + step // 2) // step * step, ""
    for size, unit in _UNITS:
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return f"-{text}" if text and seconds < 0 else text or "0s"


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "job"), counted(1200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
