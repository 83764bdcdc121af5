"""Middleware for all requests: allowed host names, rate limits, paths, headers and metrics."""

import asyncio
import socket
import time
from collections.abc import Callable
from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from litestar import Litestar, Request
from litestar.exceptions import HTTPException
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.plugins.prometheus import PrometheusConfig, PrometheusMiddleware
from litestar.stores.memory import MemoryStore
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from streams.serve.access import Access
from streams.settings import ServeSettings

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
    """Count requests, including those that inner middleware rejects; Litestar itself would count these as 200."""

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

_headers = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]


async def add_security_headers(message: Message, _: Scope) -> None:
    """Add the security headers that an answer does not have yet."""
    if message["type"] == "http.response.start":
        own = list(message.get("headers", ()))
        names = {name.lower() for name, _ in own}
        message["headers"] = [*own, *(header for header in _headers if header[0] not in names)]


OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""Paths for supervisors and Prometheus, allowed under any host name; they contain no jobs and no users."""


class CheckHost:
    """Middleware that rejects requests for other host names.

    A malicious page can let its own name resolve to this machine (DNS rebinding); the browser would then let it read
    the answers. The browser's Host header has that name. A Host header with an address is allowed.

    Litestar's own `AllowedHostsConfig` compares the whole header: with its port, its last dot, and the case of its
    letters. It cannot allow all addresses, and does not reject a second Host header.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it with status 421."""
        if scope["path"] not in OPEN_PATHS:
            given = [value for name, value in scope["headers"] if name == b"host"]
            if len(given) != 1 or not is_ours(given[0].decode("latin-1"), self._names):
                detail = "the Host header names another host; add it to serve.hosts if this one goes by that name"
                raise HTTPException(status_code=421, detail=detail)
        await self._app(scope, receive, send)


def names_of(settings: ServeSettings) -> frozenset[str]:
    """Return the host names of the service."""
    names = ("localhost", settings.web_host, socket.gethostname(), *settings.hosts)
    return frozenset(name.lower().rstrip(".") for name in names if name)


def is_ours(host: str, names: frozenset[str]) -> bool:
    """Check if a Host header, with or without a port, is one of our names or an address."""
    name, _, port = host.partition(":")
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
    if port and not port.isdecimal():
        return False
    try:
        ip_address(name)
    except ValueError:
        return name.lower().rstrip(".") in names
    return True


STAND_IN = "\x00"  # what no name has


def keeping_slashes(app: ASGIApp) -> ASGIApp:
    """Wrap the app so that escaped slashes stay within a segment: `/v1/sites/a%2Fb` is the site `a/b`.

    Servers unescape the path, after which such a slash looks like a separator. So the path is parsed again from the raw
    path, with a placeholder for slashes within a segment; `restore_slashes` gives handlers the original names.
    """

    async def with_segments(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")  # the app's lifespan has none
        if raw and b"%2f" in raw.lower():
            segments = raw.decode("latin-1").partition("?")[0].split("/")
            scope["path"] = "/".join(unquote(segment).replace("/", STAND_IN) for segment in segments)
        await app(scope, receive, send)

    return with_segments


def answering_head(app: ASGIApp) -> ASGIApp:
    """Wrap the app so that it answers HEAD as GET; the server omits the body, since its scope stays unchanged."""

    async def as_get(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}  # type: ignore[assignment]
        await app(scope, receive, send)

    return as_get


async def restore_slashes(request: Request[Any, Any, Any]) -> None:
    """Restore the original names in a request's path parameters."""
    given = request.scope["path_params"]
    restored = {key: value.replace(STAND_IN, "/") if isinstance(value, str) else value for key, value in given.items()}
    request.scope["path_params"] = restored


STORE = "rate_limit"  # the name under which the app keeps the counts
CLEAN_S = 60.0  # seconds between two times that the counts of clients who have gone are dropped


def rate_limit(access: Access, per_minute: int) -> RateLimitConfig:
    """Limit the requests a minute for each token, or for each address without one; further requests get status 429."""
    return RateLimitConfig(rate_limit=("minute", per_minute), identifier_for_request=access.identify, store=STORE)


async def forget_counts(app: Litestar) -> None:
    """Delete expired counters periodically, without end; Litestar's store alone would keep each client forever."""
    while True:
        await asyncio.sleep(CLEAN_S)
        store = app.stores.get(STORE)
        assert isinstance(store, MemoryStore)
        await store.delete_expired()
