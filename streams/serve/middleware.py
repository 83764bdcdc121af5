"""What applies to every request: security headers on its answer, and Prometheus metrics about it."""

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import prometheus_client
from litestar.exceptions import HTTPException
from litestar.plugins.prometheus import PrometheusConfig, PrometheusMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send

SECURITY_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Browsers load nothing from other hosts, show nothing in a frame, guess no content types and store nothing."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper limits of the histogram of request durations, in seconds."""

_span: ContextVar[dict[str, float]] = ContextVar("span")  # what is measured of the request that is being answered


class CountingMiddleware(PrometheusMiddleware):
    """Counts a request also where middleware within refuses it by an error, which Litestar itself takes for a 200."""

    def __init__(self, app: ASGIApp, config: PrometheusConfig) -> None:
        async def noting_errors(scope: Scope, receive: Receive, send: Send) -> None:
            try:
                await app(scope, receive, send)
            except HTTPException as error:
                span = _span.get()
                span["status_code"] = error.status_code
                span["duration"] = time.perf_counter() - span["start_time"]
                raise

        super().__init__(noting_errors, config)

    def _get_wrapped_send(self, send: Send, request_span: dict[str, float]) -> Callable[..., Any]:
        _span.set(request_span)
        return super()._get_wrapped_send(send, request_span)


METRICS = PrometheusConfig(
    app_name="queuecast",
    prefix="queuecast_http",
    group_path=True,
    buckets=list(BUCKETS),
    middleware_class=CountingMiddleware,
)
"""Counts requests by path template and status, and measures how long they take."""

REFUSED = prometheus_client.Counter(
    "queuecast_http_refused_requests_total",
    "Requests that were refused: without a right token (401), without the right to it (403), under the name of another "
    "host (421), too many in a minute (429).",
    labelnames=["status_code"],
)
REFUSALS = (401, 403, 421, 429)
for _status in REFUSALS:  # so that none is shown too
    REFUSED.labels(_status)

_headers = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


async def add_security_headers(message: Message, _: Scope) -> None:
    """Put the security headers on an answer before it is sent."""
    if message["type"] == "http.response.start":
        message["headers"] = [*message.get("headers", ()), *_headers]


async def count_refused(message: Message, _: Scope) -> None:
    """Count an answer that refuses."""
    if message["type"] == "http.response.start" and message["status"] in REFUSALS:
        REFUSED.labels(message["status"]).inc()
