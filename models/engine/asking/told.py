"""When a job starts, in one line for whoever has just submitted it."""

from collections.abc import Mapping

from models.site.state import Phase

SHOWN_BOUND = "0.9"
"""The bound that the line tells."""

_PHASES = {
    Phase.HELD.value: "is held: it may not start yet",
    Phase.RUNNING.value: "runs already",
    Phase.SUSPENDED.value: "runs already, and is suspended",
}


def about(seconds: float) -> str:
    """A duration in one rounded unit.

    >>> about(20), about(2400), about(9000), about(200_000)
    ('a minute', '40 min', '2.5 h', '2.3 days')
    """
    if seconds <= 90:
        return "a minute"
    for unit, size, most in (("min", 60, 90 * 60), ("h", 3600, 36 * 3600)):
        if seconds < most:
            amount = seconds / size
            return f"{round(amount) if unit == 'min' or amount >= 5 else round(amount * 2) / 2:g} {unit}"
    return f"{seconds / 86_400:.2g} days"


def told(phase: str, left_s: float | None, bounds_s: Mapping[str, float] | None, ahead: int, reason: str = "") -> str:
    """When a job starts, as it stands now.

    Parameters:
        phase: of the job, as in `LiveJob`.
        left_s: seconds until it is expected to start; None where there is no estimate, and `reason` says why.
        bounds_s: seconds from now within which it starts, by probability.
        ahead: queued jobs that are expected to start before.

    >>> told("queued", 2400, {"0.9": 7200}, 12)
    'starts in about 40 min, 9 in 10 within 2 h; 12 jobs ahead'
    >>> told("queued", 30, None, 0)
    'starts within a minute'
    """
    if phase in _PHASES:
        return _PHASES[phase]
    if left_s is None:
        return f"no estimate: {reason}" if reason else "no estimate"
    text = "starts within a minute" if left_s <= 60 else f"starts in about {about(left_s)}"
    within_s = (bounds_s or {}).get(SHOWN_BOUND)
    if within_s is not None and within_s > max(left_s, 60):
        text += f", 9 in 10 within {about(within_s)}"
    return text + (f"; {ahead:,} {'job' if ahead == 1 else 'jobs'} ahead" if ahead else "")
