"""The metrics defined in the code: names, kinds, labels and help texts."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

from streams.notify.metrics import NotifyCounts
from streams.process.scraping import Families
from streams.serve.http_server import DROPPED
from streams.sources.live_source import Watch
from streams.worker.metrics.process_metrics import Metrics
from streams.worker.metrics.site_metrics import SiteFamilies
from streams.worker.supervisor import FAMILIES


class MetricText(NamedTuple):
    """A metric: `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str


_REQUEST = ("method", "path", "status_code", "app_name")
LITESTARS = [
    MetricText("queuecast_http_requests_total", "counter", _REQUEST, "Requests answered."),
    MetricText("queuecast_http_request_duration_seconds", "histogram", _REQUEST, "From a request to its answer's end."),
]
"""Metrics of Litestar; their names derive from `METRICS` in `streams/serve/middleware.py`."""


def metrics_by_process() -> dict[str, list[MetricText]]:
    """Return the metrics of each process, sorted by name."""
    found = {
        "Worker": [
            *map(_own, Metrics(1).registry._collector_to_names),
            *map(_family, [*SiteFamilies().collect(), *Families("queuecast", FAMILIES).collect()]),
        ],
        "HTTP service": [_own(DROPPED), *LITESTARS],
        "Notifier": map(_family, NotifyCounts([]).collect()),
        "Source": _of_sources(),
    }
    return {process: sorted(filter(None, of)) for process, of in found.items()}


def _own(metric: Any) -> MetricText | None:
    """Return a metric of prometheus_client, or None for a collector of other metrics."""
    named = hasattr(metric, "_documentation")
    return _metric(metric._name, metric._type, metric._labelnames, metric._documentation) if named else None


def _family(family: Any) -> MetricText:
    return _metric(family.name, family.type, tuple(family._labelnames), family.documentation)


def _metric(name: str, kind: str, labels: tuple[str, ...], text: str) -> MetricText:
    ended = name if kind != "counter" or name.endswith("_total") else f"{name}_total"
    return MetricText(ended, kind, labels, text)


def _of_sources() -> Iterator[MetricText]:
    """Yield the metrics of a source after one scheduler call, one record and one skipped record."""
    watch, one = Watch(lambda _: None), {"": 1.0}
    call: Any = SimpleNamespace(count=1, failed=0, seconds=1.0, last_s=1.0)
    watch.source = SimpleNamespace(name="", sites=(), records=1, calls={"": call}, lag=one, left_out=one)  # type: ignore[assignment]
    watch.sent.update(one)
    watch.newest = 1.0
    for metric in watch.collect():
        yield _metric(metric.name, metric.type, tuple(metric.samples[0].labels), metric.documentation)
