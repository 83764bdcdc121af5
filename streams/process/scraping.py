"""Web ports and Prometheus metrics: families filled at each scrape, and a metrics page for processes without another
server.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from streams.errors import UserError

_KINDS: dict[str, Any] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class Families(Collector):
    """Metric families by name without the prefix.

    Args:
        table: One line per family, `kind name label,label: description`.

    >>> families = Families("queuecast", "counter events site: Events applied.")
    >>> families.add("events", ["ctc"], 3)
    >>> next(families.collect()).samples[0].name
    'queuecast_events_total'
    """

    def __init__(self, prefix: str, table: str) -> None:
        self._found: dict[str, Any] = {}
        for line in table.strip().splitlines():
            head, _, text = line.partition(": ")
            kind, name, *labels = head.replace(",", " ").split()
            self._found[name] = _KINDS[kind](f"{prefix}_{name}", text, labels=labels)

    def add(self, name: str, labels: Sequence[str], *value: Any) -> None:
        """Add a value; for a histogram, its cumulative buckets and its sum."""
        self._found[name].add_metric(labels, *value)

    def collect(self) -> Iterator[Metric]:
        """Yield the families with the added values."""
        yield from self._found.values()


def port_error(host: str, port: int, error: OSError) -> UserError:
    """Return the error for a web port on which the process cannot listen."""
    return UserError(f"web port {port} of {host}: {error.strerror}; choose another with --web-port")


def bound(host: str, port: int) -> socket.socket:
    """Return a socket bound to a web port.

    Raises:
        UserError: The port is in use, or the host is not an address of this machine.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise port_error(host, port, error) from None
    return found


def serve_metrics(collector: Collector, host: str, port: int) -> Callable[[], None]:
    """Serve `/metrics` from a thread, and return a function that stops it.

    Raises:
        UserError: The process cannot listen on this port.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise port_error(host, port, error) from None

    def end() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    return end
