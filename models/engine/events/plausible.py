"""Plausibility checks of events. An implausible event is sent to the dead-letter queue and changes no state."""

from models.engine.outgoing import Anomaly
from models.method import SiteContext
from models.records import Alter, AnyEvent, Capacity, ExpectedStart, Heartbeat, Start, Submit
from models.site.clock import MAX_AGE_S, SiteClock
from models.site.size import MIN_STARTED_JOBS, implausible_capacity, implausible_job, implausible_request

_WITH_ELIGIBLE, _WITH_SIZE = (
    (Submit, Alter),
    (Submit, Start, Alter, Capacity),
)  # not unions: slower


def doubt(event: AnyEvent, arrived: float | None, clock: SiteClock, context: SiteContext) -> Anomaly | None:
    """Return why an event is implausible, by its time and the sizes that it contains; None if it is plausible.

    Args:
        arrived: when it arrived at the broker, Unix seconds; None offline.
    """
    if isinstance(event, Heartbeat):
        return _implausible_heartbeat(event.time, arrived, clock)
    reason = clock.doubt(event.time, arrived) or _implausible_eligible(event)
    if reason is not None:
        return _implausible("implausible_time", reason)
    reason = _implausible_size(event, context, clock.now)
    return None if reason is None else _implausible("implausible_size", reason)


def _implausible_heartbeat(time: float, arrived: float | None, clock: SiteClock) -> Anomaly | None:
    """Check the time of a heartbeat. A live source runs ahead of a site that still replays: that is no error."""
    reason = clock.doubt_heartbeat(time, arrived)
    if reason is None:
        return None
    return _implausible("implausible_time", reason) if clock.live else Anomaly("heartbeat_ahead_of_replay", reason)


def _implausible(reason: str, detail: str) -> Anomaly:
    return Anomaly(reason, detail, rejected=True, implausible=True)


def _implausible_eligible(event: AnyEvent) -> str | None:
    """Check that future times in an event are at most 400 days after it."""
    if isinstance(event, ExpectedStart):
        ahead = event.expected > event.time + MAX_AGE_S
        return f"expected at {event.expected:.0f}, more than 400 days later" if ahead else None
    if not isinstance(event, _WITH_ELIGIBLE) or event.eligible is None or event.eligible <= event.time + MAX_AGE_S:
        return None
    return f"eligible at {event.eligible:.0f}, more than 400 days later"


def _implausible_size(event: AnyEvent, context: SiteContext, now: float) -> str | None:
    if not isinstance(event, _WITH_SIZE):
        return None
    if not isinstance(event, Capacity) and (reason := implausible_request(event)) is not None:
        return reason
    if event.cpus is None:
        return None
    settled = context.history.count >= MIN_STARTED_JOBS
    declared = 0 if context.capacity is None else context.capacity.cpus
    if isinstance(event, Capacity):
        largest = int(context.history.window.maximum[0]) if len(context.history) else 0
        return implausible_capacity(event, declared, context.max_cpus, largest, settled)
    reason = implausible_job(event.cpus, declared, context.max_cpus, settled)
    if reason is not None and not declared:
        context.size.doubt(now)
    return reason
