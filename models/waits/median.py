"""The trivial rule that a job waits as jobs did lately."""

import sys

from models.method import SiteContext, WaitMethod
from models.site.job import Estimate, Job


class Median(WaitMethod):
    """Says the (upper) median wait of the last 1000 jobs that started, whatever the job asks for; 1 µs."""

    name = "median"
    learns = False

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """The recent median; nothing where no job has started yet."""
        waits = context.history.latest
        if not waits:
            return Estimate(None, "no history")
        return Estimate(waits[len(waits) // 2], sys.intern(f"median of the last {len(waits)} jobs to start"))
