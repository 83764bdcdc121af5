"""State of the site for queued jobs at a moment: their features, and their starts in the simulated schedule."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.arrays import Floats
from models.durations import counted, duration
from models.method import SiteContext
from models.site.job import Job
from models.waits.blend.conditional import waits_after
from models.waits.blend.mixture_snapshot import PROBABILITIES
from models.waits.blend.remaining.queued_features import OF_QUEUE, SUBMISSION, queue_features, rows_of
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.live_features import NEVER_S
from models.waits.boosted.submit_features import Stored
from models.waits.order import LearntOrder

_PROBABILITIES = np.array(PROBABILITIES)


_FITS_IN = -1  # the place among the features of a submission
_AHEAD, _FREE, _CPUS = OF_QUEUE.index("ahead_jobs"), OF_QUEUE.index("free"), OF_QUEUE.index("cpus")


class QueueSnapshot(NamedTuple):
    """Queued jobs at a moment.

    Attributes:
        ages_s: time that each has waited, (jobs,) seconds.
        conditional_s: quantiles of the remaining waits by their first predictions, (jobs, 4) seconds.
        queue: queued and running work around them, (jobs, `OF_QUEUE`).
        fits_in_s: seconds until enough CPUs are free by time limits if no other job starts, (jobs,).
        rows: their features as they are stored, (jobs, features).
    """

    ages_s: Floats
    conditional_s: Floats
    queue: Floats
    fits_in_s: Floats
    rows: Stored

    def reason(self, number: int, queued_at_submission: int | None, context: SiteContext) -> str:
        """Return what a job waits for: the jobs ahead of it and the CPUs that it lacks."""
        ahead = round(self.queue.item(number, _AHEAD))
        then = "" if queued_at_submission is None else f" ({max(queued_at_submission, ahead):,} at its submission)"
        reason = f"{counted(ahead, 'job')} queued before it {'waits' if ahead == 1 else 'wait'}{then}"
        if context.layout is not None:
            return reason  # here CPUs represent the scarcest resource
        short = round(self.queue.item(number, _CPUS) - self.queue.item(number, _FREE))
        if short <= 0:
            return f"{reason}; enough CPUs are free"
        fits_in_s = self.fits_in_s.item(number)
        limits = f", by time limits within {duration(fits_in_s)}" if fits_in_s < NEVER_S / 2 else ""
        return f"{reason}; {counted(short, 'more CPU')} must become free{limits}"


class QueueReader:
    """Takes snapshots of queued jobs.

    Args:
        order: simulates the schedule.
        boosted: computes the features of a job that is submitted now.
    """

    def __init__(self, order: LearntOrder, boosted: Boosted) -> None:
        self._order, self._boosted = order, boosted

    def starts(self, jobs: Sequence[Job], context: SiteContext, now: float) -> Floats:
        """Return the seconds until the jobs start in the simulated schedule, (jobs,); nan: missing, or never."""
        ordered = self._order.ordered(context, now)
        places, first = np.unique(ordered.simulated, return_index=True)
        known = dict(zip(ordered.sight.rows[places].tolist(), ordered.starts_s[first].tolist(), strict=True))
        found = np.array([known.get(context.state.table.row(job.key), np.nan) for job in jobs])
        return np.where(np.isfinite(found), found, np.nan)

    def read(self, jobs: Sequence[Job], bounds_s: Floats, context: SiteContext, now: float) -> QueueSnapshot:
        """Take a snapshot of jobs whose first predictions had these bounds, (jobs, 4) in seconds."""
        table, seen = context.state.table, context.state.table.visible_rows()
        ages_s = np.array([max(now - job.ready, 0.0) for job in jobs])
        conditional_s = waits_after(ages_s, _PROBABILITIES, bounds_s, _PROBABILITIES) - ages_s[:, None]
        queue, rows = np.zeros((len(jobs), len(OF_QUEUE))), np.array([table.row(job.key) for job in jobs])
        queue_features(table.records, seen.rows, seen.stands_for, rows, float(context.cpus), queue)
        submissions = self._boosted.queued(SUBMISSION, jobs, rows, context, now)
        found = rows_of(ages_s, conditional_s, bounds_s, queue, submissions, float(context.cpus))
        return QueueSnapshot(ages_s, conditional_s, queue, submissions[:, _FITS_IN], found)
