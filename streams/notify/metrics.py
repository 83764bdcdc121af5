"""What a process that tells notices shows Prometheus: what it told, what it could not tell, how far it has read."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sized
from typing import get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.notify.rules import Kind

GONE, OUTDATED = "gone", "outdated"
"""Why a notice that was due was not told: its job queues no longer; its start is not what it seemed."""


_COUNTER, _GAUGE = CounterMetricFamily, GaugeMetricFamily

FAMILIES = (
    (_COUNTER, "sent", "Notices that were delivered, by kind.", "kind"),
    (_COUNTER, "failed", "Notices that the webhook did not take and that were given up.", "kind"),
    (
        _COUNTER,
        "dropped",
        "Notices that were due and were not told, as the worker said: the job is gone, or its start another one.",
        "reason",
    ),
    (_COUNTER, "retries", "Requests to the webhook after a first one.", ""),
    (_COUNTER, "unanswered", "Times that no worker said anything of a job; it is asked again.", ""),
    (_GAUGE, "waiting", "Notices that are due and not told yet.", ""),
    (_GAUGE, "jobs", "Jobs that queue of which notices may come.", ""),
    (_GAUGE, "lag", "Messages of a topic that are still to be read.", "topic"),
    (_GAUGE, "last_sent_age_seconds", "Since the last notice was delivered.", ""),
    (
        _GAUGE,
        "webhook_failing_seconds",
        "For how long the webhook has taken nothing that was sent to it; 0 where it took the last notice.",
        "",
    ),
)
"""Each family: its kind, its name without `queuecast_notify_`, what it is, and its label."""


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
        now = self._clock()
        sent_age = None if self._sent_at is None else now - self._sent_at
        failing_s = 0.0 if self._failing_since is None else now - self._failing_since
        read: list[Mapping[str, float] | float | None] = [self.sent, self.failed, self.dropped, self.retried]
        read += [self.unanswered, self.waiting, len(self._jobs), self.lag, sent_age, failing_s]
        for (kind, name, text, label), values in zip(FAMILIES, read, strict=True):
            family = kind(f"queuecast_notify_{name}", text, labels=[label] if label else [])
            for key, value in dict(values).items() if isinstance(values, Mapping) else [(None, values)]:
                if value is not None:
                    family.add_metric([] if key is None else [key], value)
            yield family
