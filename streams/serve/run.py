"""Runs the HTTP service in this process."""

import asyncio
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar

from streams import logs
from streams.client.client import QuestionClient
from streams.errors import UserError
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 1000
"""Open connections; a further one gets status 503."""


def run_serve(settings: Settings) -> None:
    """Serve until a SIGTERM or SIGINT. While Kafka is away, requests get status 503 with this reason.

    Raises:
        UserError: the port cannot be used.
        SystemExit: the same where the log is JSON, after the reason was logged; or a signal came.
    """
    serve = settings.serve
    name = f"serve-{serve.web_port}"
    logs.configure(
        msgspec.structs.replace(settings.worker, instance=name, log_format=serve.log_format, log_level=serve.log_level)
    )
    if serve.log_level == "info":
        logging.getLogger("aiokafka").setLevel("WARNING")  # at info it logs every assignment of partitions
    signal.signal(signal.SIGTERM, _stopped)
    try:
        _run(settings, listen(serve))
    except UserError as error:
        if serve.log_format == "text":
            raise
        log.critical("%s", error)
        raise SystemExit(1) from None


def _stopped(*_: Any) -> None:
    """Exit with status 0. While uvicorn runs, it handles the signal itself and raises it again when it has ended."""
    raise SystemExit(0)


def listen(settings: ServeSettings) -> socket.socket:
    """The socket to serve on.

    Raises:
        UserError: the port is in use, or the host is not an address of this machine.
    """
    host, port = settings.web_host, settings.web_port
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        raise UserError(f"web port {port} of {host}: {error.strerror}; choose another with --web-port") from None
    return found


def is_open(settings: ServeSettings) -> bool:
    """Whether other machines can ask without a token."""
    if settings.token is not None or settings.web_host == "localhost":
        return False
    with suppress(ValueError):
        return not ip_address(settings.web_host).is_loopback
    return True


def _run(settings: Settings, listening: socket.socket) -> None:
    serve = settings.serve
    client = QuestionClient(settings)

    @asynccontextmanager
    async def connected(_: Litestar) -> AsyncIterator[None]:
        trying = asyncio.create_task(client.keep_trying())
        try:
            yield
        finally:
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)
            await client.stop()

    app = build_app(Service(client, settings), settings, [connected])
    log.info("serves http://%s:%d", serve.web_host, serve.web_port)
    if is_open(serve):
        log.warning(
            "whoever reaches %s:%d may ask, about users' jobs too: set a token with QUEUECAST_SERVE_TOKEN",
            serve.web_host,
            serve.web_port,
        )
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(serve.answer_seconds) + 1,
    )
    uvicorn.Server(config).run(sockets=[listening])
