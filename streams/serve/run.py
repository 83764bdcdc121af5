"""Runs the HTTP service in this process."""

import asyncio
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from litestar import Litestar

from streams.client.client import QuestionClient
from streams.errors import UserError
from streams.process import program_log
from streams.process.scraping import bound
from streams.serve.access import Access, follow
from streams.serve.connections import Connections, limited
from streams.serve.middleware import forget_counts
from streams.serve.service import Service
from streams.serve.web import build_app
from streams.settings import ServeSettings, Settings, load_settings

log = logging.getLogger(__name__)

READ_S = 30.0
"""Seconds within which a client must have read an answer, beside the time that workers have for theirs."""


def run_serve(settings: Settings, config: Path | None = None) -> None:
    """Serve until a SIGTERM or SIGINT. While Kafka is away, requests get status 503 with this reason.

    Parameters:
        config: the file that the settings come from, whose tokens are read again when it changes.

    Raises:
        UserError: the port cannot be used, or others could ask without a token.
        SystemExit: the same where the log is JSON, after the reason was logged; or a signal came.
    """
    serve = settings.serve
    program_log.configure(serve, f"serve-{serve.web_port}")
    signal.signal(signal.SIGTERM, _stopped)
    with program_log.telling_errors(serve.log_format):
        access = Access(serve.all_tokens(), serve.user_header, serve.user_header_from)
        check_closed(serve, access.asks)
        _run(settings, bound(serve.web_host, serve.web_port), access, config)


def _stopped(*_: Any) -> None:
    """Exit with status 0. While uvicorn runs, it handles the signal itself and raises it again when it has ended."""
    raise SystemExit(0)


def on_loopback(host: str) -> bool:
    """Whether only this machine reaches a service that listens there."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def check_closed(settings: ServeSettings, asks: bool) -> None:
    """Raises UserError where other machines could ask about users' jobs without a token; `asks`: one is asked for."""
    if not asks and not on_loopback(settings.web_host):
        raise UserError(
            f"whoever reaches {settings.web_host}:{settings.web_port} could ask about users' jobs: set a token with "
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
    log.info("serves http://%s:%d", serve.web_host, serve.web_port)
    limits = Connections(serve.client_connections, serve.header_seconds, serve.answer_seconds + READ_S)
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
        timeout_graceful_shutdown=math.ceil(serve.answer_seconds) + 1,
    )
