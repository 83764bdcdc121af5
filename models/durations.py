"""Durations that have a name, and durations as text for people."""

DAY_S = 86_400.0

AT_ONCE_S = 60.0
"""A job that waits less starts at once, seconds."""


def duration(seconds: float) -> str:
    """A duration in seconds as text, in at most two units.

    >>> duration(5400), duration(42.4), duration(200_000), duration(-90)
    ('1h30m', '42s', '2d7h', '-1m30s')
    """
    whole = round(abs(seconds))
    sign = "-" if seconds < 0 and whole else ""
    for large, small, size, step in (("d", "h", 86_400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= size:
            return f"{sign}{whole // size}{large}{whole % size // step}{small}"
    return f"{sign}{whole}s"
