"""Clock of a site, and checks of event times."""

from functools import cached_property
from statistics import median

import msgspec

from models.durations import DAY_S, duration

MAX_AHEAD_S = 600.0  # live site: maximum time of an event after its arrival at the broker

MAX_HEARTBEAT_AHEAD_S = DAY_S
"""Replayed site: maximum time of a heartbeat after the site's time. A wrong one then costs a day at most."""

MAX_AGE_S = 400 * DAY_S
"""Maximum age of an event, relative to its arrival at a live site, else to the site's time."""

MAX_STEP_S = 60 * DAY_S
"""Replayed site: maximum time of an event after the site's time (the longest gap in the traces is 3 days)."""

MAX_LATE_S = 30 * DAY_S  # a later submit is accepted, but its wait is neither scored nor learnt
MAX_LAGS = 32  # number of lags whose median determines whether a site is live

LAG_EVERY_S = 60.0
"""Minimum seconds between two recorded lags once there are `MAX_LAGS`, so that a burst of wrong times counts once."""

MAX_CONFIRMING = 1024
"""Number of events in a row that overrule the site's time, or fewer at a site with fewer events."""

EVENTS_TO_SET_BACK = 32
"""Excess of accepted events over a day behind, over the others, that sets a replayed site's time back."""


class SiteClock(msgspec.Struct, array_like=True, dict=True):
    """The time of a site. It is a part of the stored state.

    A site is *live* while the median of the broker's time minus the events' time is under a day; otherwise it is
    *replayed* (or offline: there is no broker). At a live site the clock compares an event's time with the broker's. At
    the others it compares it with `now`, and accepts a jump only once many events in a row agree on it.

    >>> clock = SiteClock()
    >>> clock.tick(1000.0, arrived=1001.0)
    >>> clock.live, clock.now, clock.doubt(9000.0, arrived=1002.0)
    (True, 1000.0, 'its time is 2h13m ahead of its arrival')
    """

    now: float = 0.0  # the latest plausible time, Unix seconds; 0 before the first event
    believed: int = 0  # number of accepted events, up to `MAX_CONFIRMING`

    lags: list[float] = msgspec.field(default_factory=list)
    """Arrival minus event time in seconds, one per minute."""

    lag_noted: float = 0.0
    behind: int = 0
    implausible: int = 0  # number of events in a row with implausible times that agree with each other
    implausible_time: float = 0.0
    implausible_since: float = 0.0
    behind_latest: float = 0.0  # the latest time of the events that are behind

    furthest: float = 0.0
    """Maximum of `now` before it was set back: times up to `MAX_STEP_S` after it are still plausible."""

    @cached_property
    def live(self) -> bool:
        """True if events arrive in real time. It is computed when the lags change, and not stored."""
        return bool(self.lags) and abs(median(self.lags)) < DAY_S

    def doubt(self, time: float, arrived: float | None) -> str | None:
        """Return why an event's time is implausible; None if it is plausible. Changes only the counters of implausible
        times.

        Args:
            time: the time of the event, Unix seconds.
            arrived: when it arrived at the broker, Unix seconds; None offline.
        """
        reason = self._doubt(time, arrived)
        return None if reason is None or self._confirmed(time, arrived) else reason

    def _doubt(self, time: float, arrived: float | None) -> str | None:
        if arrived is not None and (self.live or (not self.lags and abs(arrived - time) < DAY_S)):
            return _outside(time - arrived, MAX_AHEAD_S, "its arrival")
        if not self.believed or self.now < time <= self.furthest + MAX_STEP_S:
            return None
        return _outside(time - self.now, MAX_STEP_S, "the site's time")

    def _confirmed(self, time: float, arrived: float | None) -> bool:
        """Count an implausible time; return whether enough in a row agree that the site's time was wrong."""
        if self.implausible == 0 or abs(time - self.implausible_time) > MAX_STEP_S:
            self.implausible, self.implausible_since = 0, arrived or 0.0
        self.implausible, self.implausible_time = self.implausible + 1, time
        if self.live:  # the broker's clock would have to be wrong
            enough = self.implausible >= MAX_CONFIRMING and (arrived or 0.0) >= self.implausible_since + DAY_S
        else:
            enough = self.implausible >= min(max(self.believed, 2), MAX_CONFIRMING)
        if enough:
            self.now, self.believed, self.implausible = time, self.implausible, 0
            self.behind, self.furthest = 0, 0.0
            self._set_lags([])
        return enough

    def tick(self, time: float, arrived: float | None = None) -> None:
        """Update the clock by an accepted event."""
        if arrived is not None and (len(self.lags) < MAX_LAGS or arrived >= self.lag_noted + LAG_EVERY_S):
            self._set_lags([*self.lags[1 - MAX_LAGS :], arrived - time])
            self.lag_noted = arrived
        time = self.of(time, arrived)
        self.believed = min(self.believed + 1, MAX_CONFIRMING)
        self.implausible = 0
        self._fall_behind(time)
        self.now = max(self.now, time)

    def doubt_heartbeat(self, time: float, arrived: float | None) -> str | None:
        """Return why the time of a heartbeat is implausible; None if it is plausible. Changes no counters."""
        if arrived is not None and self.live:
            return _outside(time - arrived, MAX_AHEAD_S, "its arrival")
        return _outside(time - self.now, MAX_HEARTBEAT_AHEAD_S, "the site's time") if self.believed else None

    def confirm(self, time: float, arrived: float | None) -> None:
        """Advance to the time of a plausible heartbeat, after the first other event of the site.

        It counts for no decision about the site's time, so a source with a wrong clock cannot keep it wrong.
        """
        self.now = max(self.now, self.of(time, arrived))

    def _fall_behind(self, time: float) -> None:
        """Set a replayed site's time back if most events are earlier: to the latest of these."""
        if self.live or time >= self.now - DAY_S:
            self.behind = max(self.behind - 1, 0)
            return
        self.behind_latest = max(self.behind_latest, time) if self.behind else time
        self.behind += 1
        if self.behind >= EVENTS_TO_SET_BACK:
            self.furthest = max(self.furthest, self.now)
            self.now, self.behind = self.behind_latest, 0

    def _set_lags(self, lags: list[float]) -> None:
        self.lags = lags
        self.__dict__.pop("live", None)

    def of(self, time: float, arrived: float | None) -> float:
        """Return the time of an accepted event; at a live site it is limited to the arrival."""
        return min(time, arrived) if arrived is not None and self.live else time

    def too_late(self, time: float, arrived: float | None) -> bool:
        """Return whether an event is too late to learn from the wait that begins with it."""
        now = arrived if arrived is not None and self.live else self.now
        return time < now - MAX_LATE_S


def _outside(ahead_s: float, most_s: float, of: str) -> str | None:
    if ahead_s > most_s:
        return f"its time is {duration(ahead_s)} ahead of {of}"
    return f"its time is {duration(-ahead_s)} before {of}" if ahead_s < -MAX_AGE_S else None
