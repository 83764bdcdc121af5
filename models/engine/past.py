"""How a site has been: its queue by the hour, and predicted beside actual waits by the day. Bounded, and part of its
state, so that it is the same after a crash."""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from models.records import DayState, HourState, SitePast
from models.site.job import Phase
from models.site.state import SITE, SiteState

S = TypeVar("S", bound=msgspec.Struct)

HOUR_S, DAY_S = 3600.0, 86_400.0

PAST_BOUND = "0.9"
"""The bound whose coverage is kept by the day."""

MAX_HOURS, MAX_DAYS = 168, 28
"""So many hours and days are kept: one week and four."""

SavedPast = tuple[list[tuple[float, int, int, int, int]], list[tuple[float, int, float, float, float, int, int]]]
"""As it is stored: the fields of the hours and of the days, 20 and 40 bytes each."""


class Past:
    """The last hours and days of a site; an event costs a comparison, a job that leaves the queue some additions."""

    def __init__(self) -> None:
        self._kept = SitePast(hours=[], days=[])
        self._next = 0.0  # when the next hour begins

    @property
    def kept(self) -> SitePast:
        """What there is, the oldest first."""
        return self._kept

    def save(self) -> SavedPast:
        """What there is, to be stored; 0.1 ms."""
        hours = [msgspec.structs.astuple(hour) for hour in self._kept.hours]
        days = [msgspec.structs.astuple(day) for day in self._kept.days]
        return hours, days

    def restore(self, saved: SavedPast) -> None:
        """Take back what was saved."""
        hours, days = saved
        self._kept.hours[:] = (_filled(HourState, hour) for hour in hours)
        self._kept.days[:] = (_filled(DayState, day) for day in days)
        self._next = _begin(hours[-1][0], HOUR_S) + HOUR_S if hours else 0.0

    def pass_to(self, now: float, state: SiteState) -> None:
        """Note how the site is `now` (Unix seconds), if an hour has begun since this was last done."""
        if now < self._next - HOUR_S:  # a clock was wrong, and is not any more
            self._kept.hours[:] = [hour for hour in self._kept.hours if hour.time <= now]
        elif now < self._next:
            return
        queued, running = (state.totals(SITE, phase) for phase in (Phase.QUEUED, Phase.RUNNING))
        hour = HourState(
            time=now,
            queued_jobs=queued.count,
            running_jobs=running.count,
            queued_cpus=queued.cpus,
            running_cpus=running.cpus,
        )
        self._kept.hours.append(hour)
        del self._kept.hours[:-MAX_HOURS]
        self._next = _begin(now, HOUR_S) + HOUR_S

    def left(self, now: float, predicted_s: float | None, bound_s: float | None, waited_s: float) -> None:
        """A job left the queue `now` after `waited_s`; no estimate counts as a prediction of none."""
        days, begin = self._kept.days, _begin(now, DAY_S)
        if not days or begin > days[-1].begin:
            days.append(DayState(begin=begin))
            del days[:-MAX_DAYS]
        day = days[-1]  # also of an event that comes late
        day.jobs += 1
        day.predicted_s += predicted_s or 0.0
        day.waited_s += waited_s
        day.error_s += abs((predicted_s or 0.0) - waited_s)
        if bound_s is not None:
            day.bounded += 1
            day.held += waited_s <= bound_s


def _filled(kind: type[S], values: Iterable[Any]) -> S:
    return kind(**dict(zip(kind.__struct_fields__, values, strict=True)))


def _begin(time: float, length_s: float) -> float:
    return time // length_s * length_s
