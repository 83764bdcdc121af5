"""How long a site's jobs waited, by queue and by account, counted for Prometheus."""

import msgspec

from models.measures import ERROR_BUCKETS, Histogram
from models.site.job import Job

OTHER = "other"
"""The name of all queues, and of all accounts, beyond those that are counted by name."""

Waits = dict[str, Histogram]


class SavedWaits(msgspec.Struct, array_like=True):
    """What is stored of `ActualWaits`: the attributes of these names."""

    queues: Waits = {}
    accounts: Waits = {}
    before: Histogram = msgspec.field(default_factory=lambda: Histogram.over(ERROR_BUCKETS))


class ActualWaits:
    """Histograms of the waits of the jobs that started, of those alone that are scored; the edges are ERROR_BUCKETS.

    `queues` are by queue or partition, `accounts` by account. The first `most` names have a histogram of their own: a
    later one that moved out of `other` would have that count backwards. `before` is of the time before jobs became
    eligible: by a dependency, a begin time or a hold.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._saved = SavedWaits()

    def add(self, job: Job, wait_s: float) -> None:
        """A job has started after `wait_s` seconds."""
        saved = self._saved
        for known, name in ((saved.queues, job.queue), (saved.accounts, job.account)):
            if name is not None:
                place = name if name in known or len(known) < self._most else OTHER
                known.setdefault(place, Histogram.over(ERROR_BUCKETS)).add(wait_s, ERROR_BUCKETS)
        if job.before_eligible_s:
            saved.before.add(job.before_eligible_s, ERROR_BUCKETS)

    def save(self) -> SavedWaits:
        """What is stored."""
        return self._saved

    def restore(self, saved: SavedWaits) -> None:
        """Take back what was saved."""
        self._saved = saved
