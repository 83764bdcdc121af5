"""The estimates in force of queued jobs: the latest published ones, adjusted while the jobs wait."""

from collections.abc import Iterable
from itertools import chain
from typing import Final

import numpy as np

from models.arrays import Floats
from models.method import SiteContext
from models.site.job import Estimate, Job
from models.site.seen import VisibleRows
from models.site.table import QUEUED
from models.waits.blend.conditional import in_force
from models.waits.blend.mixture_snapshot import BOUNDS, MEDIAN, PROBABILITIES, QUANTILES

_PROBABILITIES: Final = np.array(PROBABILITIES)
_UNKNOWN: Final = (np.nan,) * QUANTILES


class QueuedEstimates:
    """Reader of the published estimates of queued jobs.

    Args:
        method: the name of the method that made the estimates.
    """

    def __init__(self, method: str) -> None:
        self._method = method
        self._read: tuple[VisibleRows | None, Floats] = (None, np.empty((0, QUANTILES)))

    def forget(self) -> None:
        """Drop the cached bounds: some are about to change."""
        self._read = None, self._read[1]

    def latest(self, job: Job) -> Estimate | None:
        """Return the latest published estimate of a job."""
        return job.estimates.get(self._method) if job.later is None else job.later.estimate

    def in_force(self, job: Job, now: float) -> Estimate | None:
        """Return the estimate in force `now` (Unix seconds); None without bounds of this method."""
        latest = self.latest(job)
        if latest is None or latest.wait_s is None or latest.bounds is None or len(latest.bounds) != QUANTILES:
            return None
        waited_s, bounds_s = max(now - job.ready, 0.0), np.array([[*latest.bounds.values()]])
        waits_s: list[float] = in_force(np.array([waited_s]), _PROBABILITIES, bounds_s, MEDIAN)[0].tolist()
        late = "" if latest.wait_s > waited_s else "; it was expected to have started by now"
        return Estimate(waits_s[MEDIAN], latest.reason + late, dict(zip(BOUNDS, waits_s, strict=True)))

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the start times of the jobs in `seen`, Unix seconds; nan where a job has no bounds."""
        rows, ready = context.state.table.visible_rows().rows, context.state.table.columns().ready
        waited_s = np.maximum(now - ready[rows], 0.0)
        waits_s = in_force(waited_s, _PROBABILITIES, self._bounds(context), MEDIAN)
        return np.asarray(ready[rows] + waits_s[:, MEDIAN])

    def _bounds(self, context: SiteContext) -> Floats:
        """Return the bounds of the jobs in `seen`, (seen, QUANTILES), cached until a job changes."""
        table, jobs = context.state.table, context.all_live_jobs.jobs
        seen = table.visible_rows()
        if self._read[0] is not seen:
            bounds: list[Iterable[float]] = []
            for row, phase in zip(seen.rows.tolist(), table.columns().phase[seen.rows].tolist(), strict=True):
                key = table.keys[row] if phase == QUEUED else None
                latest = None if key is None else self.latest(jobs[key])
                known = None if latest is None else latest.bounds
                bounds.append(_UNKNOWN if known is None or len(known) != QUANTILES else known.values())
            flat = np.fromiter(chain.from_iterable(bounds), np.float64, QUANTILES * len(bounds))
            self._read = seen, flat.reshape(-1, QUANTILES)
        return self._read[1]
