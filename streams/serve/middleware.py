"""What goes round every answer: headers for browsers' safety, and the counting of requests."""

import time
from collections.abc import MutableMapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector

SAFETY = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Nothing from elsewhere, nothing in a frame, nothing taken for what it is not, nothing kept."""

OTHER = "other"
"""The route of a request to no path that there is."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_safety = [(name.encode(), value.encode()) for name, value in SAFETY.items()]


class Requests:
    """This process's counters of requests, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._count = Counter(
            "queuecast_http_requests",
            "Requests answered, by route and status.",
            ["route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "queuecast_http_request_seconds",
            "From a request to the end of its answer.",
            ["route"],
            buckets=BUCKETS,
            registry=self.registry,
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request has been answered."""
        self._count.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class Around:
    """An ASGI app, with safe headers on every answer, and every request counted."""

    def __init__(self, app: Any, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_on(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_safety]
            await send(message)

        try:
            await self._app(scope, receive, send_on)
        finally:
            if status:  # else whoever asked has hung up
                route = scope.get("path_template") or OTHER
                self._requests.answered(route, status, time.perf_counter() - began)
