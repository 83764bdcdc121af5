"""Some of the features that queued jobs would have if they were submitted now, for many jobs in one call."""

from collections.abc import Sequence

import numpy as np

from models.arrays import Floats, Ints
from models.durations import DAY_S
from models.method import SiteContext
from models.site.job import Job, Phase
from models.site.state import MICRO, SITE
from models.waits.boosted import live_features, recent
from models.waits.boosted.recent import Recent, codes_of
from models.waits.boosted.submit_features import THURSDAY, WEEK_DAYS

_OF_SITE = ("running_ert", "running_elapsed", "hour", "weekday")
_OF_JOB = ("ert", "run", "walltime", "user_queued_work")
_FIRST = (*live_features.NAMES, *_OF_SITE, *_OF_JOB)


class QueuedFeatures:
    """Reads chosen features of queued jobs, without the others. O(jobs · live jobs).

    >>> QueuedFeatures(("hour", "free", "recent_wait_user_last")).names
    ('hour', 'free', 'recent_wait_user_last')

    Args:
        names: some of the features of a submission; of its summaries and its request those that are named here.

    Raises:
        ValueError: a feature is not among those that can be read for many jobs at once.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._parts, of_recent = recent.selection(names)
        columns = (*_FIRST, *of_recent)
        if missing := {*names}.difference(columns):
            raise ValueError(f"cannot read {', '.join(sorted(missing))} for many jobs in one call")
        self._columns = len(columns)
        self._picked = np.array([columns.index(name) for name in names])
        self.names = tuple(names)

    def read(
        self, jobs: Sequence[Job], rows: Ints, context: SiteContext, waits: Recent, noted: int, now: float
    ) -> Floats:
        """Return the features of queued jobs, (jobs, names), neither scaled nor rounded.

        Args:
            jobs: as they are seen in their area.
            rows: where they are in the area's table, (jobs,).
            context: the area.
            waits: the recent waits.
            noted: how many rows of notes there are.
            now: Unix seconds.
        """
        state, running = context.state, context.state.totals(SITE, Phase.RUNNING)
        found = np.zeros((len(jobs), self._columns))
        live_features.queued_features(rows, state.table, now, context.cpus, found)
        waits.features_of([codes_of(job) for job in jobs], self._parts, now, noted, found, len(_FIRST))
        of_site = (
            running.planned_run_us / MICRO,
            running.elapsed_s(now),
            now % DAY_S / 3600.0,
            (now // DAY_S + THURSDAY) % WEEK_DAYS,
        )
        found[:, len(live_features.NAMES) : len(_FIRST)] = [(*of_site, *_of_job(job, context)) for job in jobs]
        return found.take(self._picked, axis=1)


def _of_job(job: Job, context: SiteContext) -> tuple[float, float, float, float]:
    own = 0.0 if job.user is None else context.state.totals(("user", job.user), Phase.QUEUED).work / MICRO
    return job.planned_run_s, -1.0 if job.run_s is None else job.run_s, job.walltime or 0.0, own
