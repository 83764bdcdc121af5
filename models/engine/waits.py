"""How long a site's jobs waited, by queue and by account, counted for Prometheus."""

import msgspec

from models.measures import ERROR_BUCKETS, Histogram
from models.site.job import Job

OTHER = "other"
"""The name of all queues, and of all accounts, beyond those that are counted by name."""


class ActualWaits(msgspec.Struct, array_like=True):
    """Histograms of the waits of the jobs that started, of those alone that are scored; the edges are ERROR_BUCKETS.

    `queues` are by queue or partition, `accounts` by account; `before` is of the time before jobs became eligible: by a
    dependency, a begin time or a hold.
    """

    queues: dict[str, Histogram] = {}
    accounts: dict[str, Histogram] = {}
    before: Histogram = msgspec.field(default_factory=lambda: Histogram.over(ERROR_BUCKETS))

    def add(self, job: Job, wait_s: float, most: int) -> None:
        """A job has started after `wait_s` seconds.

        Parameters:
            most: so many names, the first ones, have a histogram of their own: one that moved out of `other` later
                would have that count backwards.
        """
        for known, name in ((self.queues, job.queue), (self.accounts, job.account)):
            if name is not None:
                place = name if name in known or len(known) < most else OTHER
                known.setdefault(place, Histogram.over(ERROR_BUCKETS)).add(wait_s, ERROR_BUCKETS)
        if job.before_eligible_s:
            self.before.add(job.before_eligible_s, ERROR_BUCKETS)

    def save(self) -> "ActualWaits":
        """It is stored as it is."""
        return self

    def restore(self, saved: "ActualWaits") -> None:
        """Take back what was saved."""
        self.queues, self.accounts, self.before = saved.queues, saved.accounts, saved.before
