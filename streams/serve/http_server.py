"""Run the HTTP service in this process, with limits on connections."""

import asyncio
import logging
import math
import re
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import prometheus_client
import uvicorn
from litestar import Litestar
from uvicorn.protocols.http.h11_impl import H11Protocol

from streams.client.client import QuestionClient
from streams.errors import UserError
from streams.process import program_log
from streams.process.scraping import bound
from streams.serve.access import Access, address_of, follow
from streams.serve.middleware import forget_counts
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings, load_settings

MAX_PIPELINED = 10  # requests that may wait in a connection behind the one that is being answered
MAX_PIPELINED_BYTES = 32 << 10  # their bytes
MAX_CONNECTIONS = 800  # open connections of all clients; below the 1024 files that a process may usually have open

DROPPED = prometheus_client.Counter(
    "queuecast_http_dropped_connections_total",
    "Connections that were closed: their request did not come (slow), nobody read the answer (unread), too many "
    "requests waited behind the one being answered (pipelined), or their client or all clients had too many (many).",
    labelnames=["why"],
)
for _why in ("slow", "unread", "pipelined", "many"):  # shown from the beginning, so that the first ones are an increase
    DROPPED.labels(_why)


class Connections:
    """The open connections of a service, limited per address and in total.

    uvicorn 0.54 waits for a request's headers without a timeout, and its own connection limit rejects all new clients.
    Here idle connections are closed, the oldest first: those of the client if it exceeds its limit, those of any client
    if the total is exceeded. A client that sends its request immediately is served, however many others are half open.
    If none is idle, a connection whose client does not read its answer is closed.

    Args:
        of_client: maximum number of connections per address.
        header_s: timeout for a request's headers in seconds.
        answer_s: timeout for reading an answer in seconds.
        most: maximum number of connections in total.
    """

    def __init__(self, of_client: int, header_s: float, answer_s: float, most: int = MAX_CONNECTIONS) -> None:
        self.header_s = header_s
        self.answer_s = answer_s
        self._of_client = of_client
        self._most = most
        self._open: dict[LimitedProtocol, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, connection: "LimitedProtocol", address: str) -> None:
        """Add a connection; above a limit, close one that is idle or not read, else this one.

        O(open connections).
        """
        self._open[connection] = address
        own = [other for other, of in self._open.items() if of == address]
        if len(own) > self._of_client or len(self._open) > self._most:
            others = [one for one in (own if len(own) > self._of_client else self._open) if one is not connection]
            waiting = min((one for one in others if not one.answering), key=lambda one: one.since, default=None)
            dropped = waiting or next((one for one in others if one.unread), connection)
            self.closed(dropped)
            dropped.drop("many")

    def closed(self, connection: "LimitedProtocol") -> None:
        """Remove a connection."""
        self._open.pop(connection, None)


class LimitedProtocol(H11Protocol):
    """A connection that is closed when its request, or the reading of its answer, takes too long.

    It is also closed if it sends many requests without waiting for answers (pipelining). Browsers do not do this. A
    client that never reads could exhaust its address's rate limit with a few packets, and block other clients of that
    address.
    """

    limits: Connections
    answering = False  # whether a request is being answered; else one is waited for
    since = 0.0  # since when, by the loop's clock
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection and wait for its request."""
        super().connection_made(transport)
        self._give(self.limits.header_s, "slow")
        self.limits.opened(self, address_of({"client": self.client}))

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        super().data_received(data)
        self._follow()
        if self.answering and self._has_pipelined_too_much():
            self.drop("pipelined")

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the connection."""
        self._stop_timer()
        self.limits.closed(self)
        super().connection_lost(exc)

    @property
    def unread(self) -> bool:
        """True if a part of an answer waits for the client to read it."""
        return self.transport.get_write_buffer_size() > 0

    def _has_pipelined_too_much(self) -> bool:
        behind = self.conn.trailing_data[0]
        return len(behind) > MAX_PIPELINED_BYTES or len(_HEAD_END.findall(behind)) > MAX_PIPELINED

    def drop(self, why: str) -> None:
        """Close the connection immediately."""
        DROPPED.labels(why).inc()
        self._stop_timer()
        self.transport.abort()

    def _follow(self) -> None:
        """Record whether a request is being answered, and start the timeout of this or the next request."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering != self.answering and not self.transport.is_closing():
            self.answering = answering
            self._give(self.limits.answer_s, "unread") if answering else self._give(self.limits.header_s, "slow")

    def _give(self, seconds: float, why: str) -> None:
        self._stop_timer()
        self.since = self.loop.time()
        self._timer = self.loop.call_later(seconds, self.drop, why)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


_HEAD_END = re.compile(rb"\n\r?\n")


def limited(limits: Connections) -> type[LimitedProtocol]:
    """Return the protocol of a service with these limits."""
    attributes: dict[str, Any] = {"limits": limits}
    return type("LimitedProtocol", (LimitedProtocol,), attributes)


log = logging.getLogger(__name__)
READ_S = 30.0  # seconds within which a client must have read an answer, beside the time that workers have for theirs


def run_serve(settings: Settings, config: Path | None = None) -> None:
    """Serve until a SIGTERM or SIGINT; while Kafka is unreachable, requests get status 503 with the reason.

    Args:
        settings: of the deployment.
        config: the settings file, whose tokens are reloaded when it changes.

    Raises:
        UserError: the port cannot be used, or other machines could connect without a token.
        SystemExit: the same errors after they were logged, with JSON logs; or a signal arrived.
    """
    serve = settings.serve
    program_log.configure(serve, f"serve-{serve.web_port}")
    signal.signal(signal.SIGTERM, _stopped)
    with program_log.exit_on_errors(serve.log_format):
        access = Access(serve.all_tokens(), serve.user_header, serve.user_header_from)
        check_closed(serve, access.requires_token)
        _run(settings, bound(serve.web_host, serve.web_port), access, config)


def _stopped(*_: Any) -> None:
    """Exit with status 0. While uvicorn runs, it handles the signal itself and raises it again when it has ended."""
    raise SystemExit(0)


def on_loopback(host: str) -> bool:
    """Check if only this machine can reach a service that listens there."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def check_closed(settings: ServeSettings, requires_token: bool) -> None:
    """Refuse to serve other machines without authentication.

    Args:
        settings: settings of the service.
        requires_token: True if clients must authenticate.

    Raises:
        UserError: other machines could query users' jobs without a token.
    """
    if not requires_token and not on_loopback(settings.web_host):
        raise UserError(
            f"any client of {settings.web_host}:{settings.web_port} could query users' jobs: set a token with "
            "QUEUECAST_SERVE_TOKEN (is a Secret or an .env file missing?) or [serve.tokens], or listen on 127.0.0.1"
        )


def _run(settings: Settings, listening: socket.socket, access: Access, config: Path | None) -> None:
    serve = settings.serve
    client = QuestionClient(settings)
    files = [Path(file) for file in (config, serve.tokens_file) if file is not None]

    @asynccontextmanager
    async def connected(app: Litestar) -> AsyncIterator[None]:
        following = follow(access, files, lambda: load_settings(config).serve.all_tokens())
        tasks = [asyncio.create_task(task) for task in (client.keep_trying(), following, forget_counts(app))]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.stop()

    app = build_app(Service(client, settings), settings, [connected], access)
    log.info("Serving http://%s:%d", serve.web_host, serve.web_port)
    limits = Connections(serve.client_connections, serve.header_timeout_seconds, serve.answer_timeout_seconds + READ_S)
    uvicorn.Server(_uvicorn(app, serve, limits)).run(sockets=[listening])


def _uvicorn(app: Litestar, serve: ServeSettings, limits: Connections) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=limited(limits),
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(serve.answer_timeout_seconds) + 1,
    )
