"""The trivial rule that every job starts at once."""

from models.method import SiteContext, WaitMethod
from models.site.job import Estimate, Job

ALWAYS = Estimate(0.0, "always zero")


class Zero(WaitMethod):
    """Says 0 s, always. On a machine that is seldom full it is hard to beat."""

    name = "zero"
    learns = False

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """No wait."""
        return ALWAYS
