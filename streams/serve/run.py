"""Runs the service in this process."""

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
from streams.client.client import Asker
from streams.errors import UserError
from streams.serve.middleware import Around, Requests
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 1000
"""At once; further ones are told 503."""


def run_serve(settings: Settings) -> None:
    """Serve until told to stop (SIGTERM, SIGINT); while Kafka is away that is what is said.

    Raises:
        UserError: the port cannot be had.
        SystemExit: the same, which the log has told where it is in JSON; or told to stop.
    """
    serve = settings.serve
    name = f"serve-{serve.web_port}"
    logs.configure(
        msgspec.structs.replace(settings.worker, instance=name, log_format=serve.log_format, log_level=serve.log_level)
    )
    if serve.log_level == "info":
        logging.getLogger("aiokafka").setLevel("WARNING")  # what it reads says nothing to anybody
    signal.signal(signal.SIGTERM, _stopped)
    try:
        _run(settings, listen(serve))
    except UserError as error:
        if serve.log_format == "text":
            raise
        log.critical("%s", error)
        raise SystemExit(1) from None


def _stopped(*_: Any) -> None:
    """In good order; while it serves it is the server's to be told, which tells it on when it has ended."""
    raise SystemExit(0)


def listen(settings: ServeSettings) -> socket.socket:
    """The socket to serve at.

    Raises:
        UserError: the port is taken, or none of this machine's.
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
    """Whether others than this machine's may ask without a token."""
    if settings.token is not None or settings.web_host == "localhost":
        return False
    with suppress(ValueError):
        return not ip_address(settings.web_host).is_loopback
    return True


def _run(settings: Settings, listening: socket.socket) -> None:
    serve = settings.serve
    asker, requests = Asker(settings), Requests()

    @asynccontextmanager
    async def connected(_: Litestar) -> AsyncIterator[None]:
        trying = asyncio.create_task(asker.keep_trying())
        try:
            yield
        finally:
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)
            await asker.stop()

    app = build_app(Service(asker, settings), settings, requests, [connected])
    log.info("serves http://%s:%d", serve.web_host, serve.web_port)
    if is_open(serve):
        log.warning(
            "whoever reaches %s:%d may ask, about users' jobs too: set a token with QUEUECAST_SERVE_TOKEN",
            serve.web_host,
            serve.web_port,
        )
    config = uvicorn.Config(
        Around(app, requests),
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=math.ceil(serve.answer_seconds) + 1,
    )
    uvicorn.Server(config).run(sockets=[listening])
