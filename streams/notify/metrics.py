"""What a process that tells notices shows Prometheus: what it told, what it could not tell, how far it has read."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import TypeVar, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.notify.rules import Kind

GONE, OUTDATED = "gone", "outdated"
"""Why a notice that was due was not told: its job queues no longer; its start is not what it seemed."""


Family = TypeVar("Family", CounterMetricFamily, GaugeMetricFamily)


class NotifyCounts(Collector):
    """What was told and what was not. A collector of Prometheus, which reads it at each scrape from another thread.

    Parameters:
        jobs: the jobs that queue of which notices may come.
        clock: a time that only goes forward, in seconds.
    """

    def __init__(self, jobs: Sized, clock: Callable[[], float] = time.monotonic) -> None:
        self.sent: Counter[str] = Counter(dict.fromkeys(get_args(Kind), 0))
        self.failed: Counter[str] = Counter(dict.fromkeys(get_args(Kind), 0))
        self.dropped: Counter[str] = Counter({GONE: 0, OUTDATED: 0})
        self.retried = 0
        self.unanswered = 0
        self.waiting = 0
        self.lag: Counter[str] = Counter()
        self._jobs = jobs
        self._clock = clock
        self._sent_at: float | None = None
        self._failing_since: float | None = None

    def told(self, kind: Kind, undelivered: str | None) -> None:
        """Count a notice that was delivered, or given up."""
        if undelivered is not None:
            self.failed[kind] += 1
            return
        self.sent[kind] += 1
        self._sent_at = self._clock()

    def tried(self, taken: bool, again: bool) -> None:
        """Take what became of a request to the webhook; `again`: it was not the first for its notice."""
        self.retried += again
        if taken:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self._clock()

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        sent = CounterMetricFamily("queuecast_notify_sent", "Notices that were delivered, by kind.", labels=["kind"])
        yield _filled(sent, self.sent)
        failed = CounterMetricFamily(
            "queuecast_notify_failed", "Notices that the webhook did not take and that were given up.", labels=["kind"]
        )
        yield _filled(failed, self.failed)
        dropped = CounterMetricFamily(
            "queuecast_notify_dropped",
            "Notices that were due and were not told, as the worker said: the job is gone, or its start another one.",
            labels=["reason"],
        )
        yield _filled(dropped, self.dropped)
        yield CounterMetricFamily(
            "queuecast_notify_retries", "Requests to the webhook after a first one.", self.retried
        )
        yield CounterMetricFamily(
            "queuecast_notify_unanswered",
            "Times that no worker said anything of a job; it is asked again.",
            self.unanswered,
        )
        yield GaugeMetricFamily("queuecast_notify_waiting", "Notices that are due and not told yet.", self.waiting)
        yield GaugeMetricFamily("queuecast_notify_jobs", "Jobs that queue of which notices may come.", len(self._jobs))
        lag = GaugeMetricFamily(
            "queuecast_notify_lag", "Messages of a topic that are still to be read.", labels=["topic"]
        )
        yield _filled(lag, self.lag)
        now = self._clock()
        if self._sent_at is not None:
            yield GaugeMetricFamily(
                "queuecast_notify_last_sent_age_seconds", "Since the last notice was delivered.", now - self._sent_at
            )
        yield GaugeMetricFamily(
            "queuecast_notify_webhook_failing_seconds",
            "For how long the webhook has taken nothing that was sent to it; 0 where it took the last notice.",
            0.0 if self._failing_since is None else now - self._failing_since,
        )


def _filled(family: Family, values: Mapping[str, float]) -> Family:
    for key, value in dict(values).items():
        family.add_metric([key], value)
    return family
