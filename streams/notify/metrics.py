"""Prometheus metrics of a notification process: notices sent, failed and dropped, and the consumer lag."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sized
from typing import get_args

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from models.notices import Kind
from streams.process.scraping import Families

GONE, OUTDATED = "gone", "outdated"
"""Reasons to drop a due notice: its job is no longer pending, or its expected start has changed."""

FAMILIES = """
counter sent kind: Notices that were delivered, by kind.
counter failed kind: Notices that the webhook rejected and that were given up.
counter dropped reason: Due notices that were dropped: the job is gone, or its expected start has changed (outdated).
counter retries: Retried webhook requests.
gauge waiting: Due notices that are not sent yet.
gauge jobs: Pending jobs that may get notices.
gauge lag topic: Consumer lag by topic, in messages.
gauge webhook_failing_seconds: Time since the webhook started to fail; 0 if it accepted the last notice.
"""


class NotifyCounts(Collector):
    """Counts of notices for these jobs; a collector that another thread reads at each scrape."""

    def __init__(self, jobs: Sized, clock: Callable[[], float] = time.monotonic) -> None:
        self.sent: Counter[str] = Counter(dict.fromkeys(get_args(Kind), 0))
        self.failed: Counter[str] = Counter(dict.fromkeys(get_args(Kind), 0))
        self.dropped: Counter[str] = Counter({GONE: 0, OUTDATED: 0})
        self.retried = 0
        self.waiting = 0
        self.lag: Counter[str] = Counter()
        self._jobs = jobs
        self._clock = clock
        self._failing_since: float | None = None

    def count_sent(self, kind: Kind, undelivered: str | None) -> None:
        """Count a notice that was delivered, or given up."""
        if undelivered is not None:
            self.failed[kind] += 1
            return
        self.sent[kind] += 1

    def tried(self, taken: bool, again: bool) -> None:
        """Record the result of a webhook request; `again` marks a retry."""
        self.retried += again
        if taken:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self._clock()

    def collect(self) -> Iterator[Metric]:
        """Return the current metrics."""
        now, found = self._clock(), Families("queuecast_notify", FAMILIES)
        by_label = {"sent": self.sent, "failed": self.failed, "dropped": self.dropped, "lag": self.lag}
        for name, counts in by_label.items():
            for label, count in dict(counts).items():
                found.add(name, [label], count)
        values = {"retries": self.retried, "waiting": self.waiting}
        for name, value in (values | {"jobs": len(self._jobs)}).items():
            found.add(name, [], value)
        found.add("webhook_failing_seconds", [], 0.0 if self._failing_since is None else now - self._failing_since)
        return found.collect()
