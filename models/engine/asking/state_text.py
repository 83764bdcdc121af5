"""Describe in one line when a job starts, for the user who submitted it."""

from collections.abc import Mapping

from models.durations import counted, duration
from models.site.job import Phase

NOT_LIVE = "no such job is pending or running here, as far as known"
SHOWN_BOUND = "0.9"  # the bound that the line contains

_PHASES = {
    Phase.HELD.value: "is held: it may not start yet",
    Phase.RUNNING.value: "runs already",
    Phase.SUSPENDED.value: "runs already, and is suspended",
    Phase.UNCONFIRMED.value: "runs already, by a start without a submit",
}


def state_text(
    phase: str,
    remaining_s: float | None,
    bounds_s: Mapping[str, float] | None,
    ahead: int,
    reason: str = "",
    blocked_by: str | None = None,
) -> str:
    """Describe when a job is expected to start.

    Args:
        phase: the phase of the job, as in `LiveJob`.
        remaining_s: seconds until the expected start; None without an estimate, see `reason`.
        bounds_s: upper bounds of the start, in seconds from now, by probability.
        ahead: number of pending jobs that are expected to start earlier.
        reason: why there is no estimate.
        blocked_by: why no start is predicted.

    >>> state_text("queued", 2400, {"0.9": 7200}, 12)
    'starts in about 40m, 90 % within 2h; 12 jobs ahead'
    >>> state_text("queued", 30, None, 0)
    'starts within a minute'
    """
    if phase in _PHASES:
        return _PHASES[phase]
    if blocked_by:
        return f"no start can be promised: {blocked_by}"
    if remaining_s is None:
        return f"no estimate: {reason}" if reason else "no estimate"
    text = "starts within a minute" if remaining_s <= 60 else f"starts in about {duration(remaining_s)}"
    within_s = (bounds_s or {}).get(SHOWN_BOUND)
    if within_s is not None and within_s > max(remaining_s, 60):
        text += f", 90 % within {duration(within_s)}"
    return text + (f"; {counted(ahead, 'job')} ahead" if ahead else "")
