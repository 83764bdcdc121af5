"""Named durations, and durations and counts as text for users."""

import math

DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
SKEW_S = 60.0
"""Clock skew: a start at most this long before its submit counts as simultaneous; so does an end before its start."""

AT_ONCE_S = 60.0  # maximum wait of an immediate start, seconds
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_STEPS = ((100 * 86_400, 86_400), (86_400, 3600), (600, 60))  # (minimum duration, rounding unit), seconds


def duration(seconds: float) -> str:
    """Format a duration in seconds, with at most two units; from 10 minutes on rounded to minutes.

    The format is the input format too. Tables, reasons and notices use it; the page's `text.js` has the same one.

    >>> duration(5400), duration(42.4), duration(200_000), duration(-90), duration(7200)
    ('1h30m', '42s', '2d8h', '-1m30s', '2h')
    """
    whole = math.floor(abs(seconds) + 0.5)
    step = next((step for least, step in _STEPS if whole >= least), 1)
    rest, text = (whole + step // 2) // step * step, ""
    for size, unit in _UNITS:
        count, rest = divmod(rest, size)
        text += f"{count}{unit}" if count else ""
    return f"-{text}" if text and seconds < 0 else text or "0s"


def counted(count: int, what: str) -> str:
    """Format a count of things.

    >>> counted(1, "job"), counted(1200, "job")
    ('1 job', '1,200 jobs')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"
