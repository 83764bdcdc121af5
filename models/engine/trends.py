"""Trends of a site: its queue by the hour, and predicted and actual waits by the day and the week.

They are bounded, and part of the site's state, so a restart does not change them.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from models.durations import WEEK_S
from models.engine.wait_counts import WaitCounts
from models.records import DepartedJobs, HourState, SiteTrends
from models.site.job import Phase
from models.site.state import SITE, SiteState

S = TypeVar("S", bound=msgspec.Struct)

HOUR_S, DAY_S = 3600.0, 86_400.0
TREND_BOUND = "0.9"  # the bound whose coverage is measured
MAX_HOURS, MAX_DAYS, MAX_WEEKS = 168, 28, 53  # retention: a week of hours, four weeks of days, a year of weeks
MONDAY_S = 4 * DAY_S  # beginning of the first week; hours and days are aligned to it too (Unix seconds, UTC)
SavedSums = tuple[float, int, float, float, float, int, int, dict[int, int], dict[int, int]]
SavedTrends = tuple[list[tuple[float, int, int, int, int]], list[SavedSums], list[SavedSums]]
"""Stored form: the fields of the hours, days and weeks; 20 bytes per hour, about 150 per day or week."""


class _Period:
    """The jobs that left the queue in a day or week, with the distributions of their predicted and actual waits."""

    def __init__(self, sums: DepartedJobs, predicted: WaitCounts, waited: WaitCounts) -> None:
        self.sums = sums
        self.predicted = predicted
        self.waited = waited

    def add(self, predicted_s: float | None, bound_s: float | None, waited_s: float) -> None:
        """Add a job; a missing estimate counts as a predicted wait of 0."""
        sums, predicted_or_0_s = self.sums, predicted_s or 0.0
        sums.jobs += 1
        sums.predicted_s += predicted_or_0_s
        sums.waited_s += waited_s
        sums.error_s += abs(predicted_or_0_s - waited_s)
        self.predicted.add(predicted_or_0_s)
        self.waited.add(waited_s)
        if bound_s is not None:
            sums.bounded += 1
            sums.covered += waited_s <= bound_s

    def record(self) -> DepartedJobs:
        """Return the sums with the current medians."""
        medians = {"predicted_median_s": self.predicted.median_s(), "waited_median_s": self.waited.median_s()}
        return msgspec.structs.replace(self.sums, **medians)

    def save(self) -> SavedSums:
        """Return the stored form."""
        one = self.sums
        sums = (one.begin, one.jobs, one.predicted_s, one.waited_s, one.error_s, one.bounded, one.covered)
        return *sums, self.predicted.counts, self.waited.counts


def _restored(saved: SavedSums) -> _Period:
    *sums, predicted, waited = saved
    fields = dict(zip(DepartedJobs.__struct_fields__, sums, strict=False))
    return _Period(DepartedJobs(**fields), WaitCounts(predicted), WaitCounts(waited))  # type: ignore[arg-type]


class Trends:
    """The last hours, days and weeks of a site. O(1) per event and per job that leaves the queue."""

    def __init__(self) -> None:
        self._hours: list[HourState] = []
        self._days: list[_Period] = []
        self._weeks: list[_Period] = []
        self._next = 0.0  # when the next hour begins

    @property
    def kept(self) -> SiteTrends:
        """The trends, the oldest first."""
        days, weeks = ([period.record() for period in periods] for periods in (self._days, self._weeks))
        return SiteTrends(hours=list(self._hours), days=days, weeks=weeks)

    def save(self) -> SavedTrends:
        """Return the stored form."""
        hours = [*map(msgspec.structs.astuple, self._hours)]
        return hours, [day.save() for day in self._days], [week.save() for week in self._weeks]

    def restore(self, saved: SavedTrends) -> None:
        """Restore the stored form."""
        hours, days, weeks = saved
        self._hours[:] = (_filled(HourState, hour) for hour in hours)
        self._days[:] = map(_restored, days)
        self._weeks[:] = map(_restored, weeks)
        self._next = _begin(hours[-1][0], HOUR_S) + HOUR_S if hours else 0.0

    def pass_to(self, now: float, state: SiteState) -> None:
        """Record the state of the site at `now` (Unix seconds), if an hour has started since the last record."""
        if now < self._next - HOUR_S:  # a wrong clock was corrected
            self._hours[:] = [hour for hour in self._hours if hour.time <= now]
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
        self._hours.append(hour)
        del self._hours[:-MAX_HOURS]
        self._next = _begin(now, HOUR_S) + HOUR_S

    def job_dequeued(self, now: float, predicted_s: float | None, bound_s: float | None, waited_s: float) -> None:
        """Add a job that left the queue `now` after `waited_s`; a missing estimate counts as a predicted wait of 0."""
        for kept, length_s, most in ((self._days, DAY_S, MAX_DAYS), (self._weeks, WEEK_S, MAX_WEEKS)):
            begin = _begin(now, length_s)
            if not kept or begin > kept[-1].sums.begin:
                kept.append(_Period(DepartedJobs(begin=begin), WaitCounts(), WaitCounts()))
                del kept[:-most]
            kept[-1].add(predicted_s, bound_s, waited_s)  # including late events


def _filled(kind: type[S], values: Iterable[Any]) -> S:
    return kind(**dict(zip(kind.__struct_fields__, values, strict=True)))


def _begin(time: float, length_s: float) -> float:
    return (time - MONDAY_S) // length_s * length_s + MONDAY_S
