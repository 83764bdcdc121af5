"""The baselines, which every other method must beat: no wait, and the recent median wait."""

import sys

from models.method import SiteContext, WaitMethod
from models.site.job import Estimate, Job

ALWAYS = Estimate(0.0, "always zero")


class Zero(WaitMethod):
    """Predict 0 s for every job. On a machine that is seldom full it is hard to beat."""

    name = "zero"
    learns = False

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """No wait."""
        return ALWAYS


class Median(WaitMethod):
    """Predict the (upper) median wait of the last 1000 jobs that started, for every job."""

    name = "median"
    learns = False

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the recent median; none if no job has started yet."""
        waits = context.history.latest
        if not waits:
            return Estimate(None, "no history")
        return Estimate(waits[len(waits) // 2], sys.intern(f"median of the last {len(waits)} jobs to start"))
