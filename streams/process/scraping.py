"""A page of metrics for Prometheus, in a process that serves nothing else."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.registry import Collector

from streams.errors import UserError


def serve_metrics(collector: Collector, host: str, port: int) -> Callable[[], None]:
    """Serve `/metrics` from a thread of its own; gives what ends it.

    Raises:
        UserError: the port cannot be listened at.
    """
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    registry.register(collector)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise UserError(f"web port {port} of {host}: {error.strerror}; choose another with --web-port") from None

    def end() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    return end
