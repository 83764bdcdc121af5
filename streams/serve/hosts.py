"""The names under which the service may be asked.

A page of a stranger's can have its own name lead to this machine (DNS rebinding), and would then be allowed to read
what the service says to the browser. The browser's Host header says that name, so other names than ours are refused. An
address is no name, so it is let through.

Litestar's own `AllowedHostsConfig` compares the header as a whole: with its port, its last dot, and the case of its
letters. It cannot let every address through, and does not refuse a second Host header.
"""

import socket
from collections.abc import Iterable
from ipaddress import ip_address

from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive, Scope, Send

from streams.settings import ServeSettings

OPEN_PATHS = ("/healthz", "/readyz", "/metrics")
"""What supervisors and Prometheus ask for, under whatever name; there are no jobs and no users in it."""


class CheckHost:
    """A middleware that refuses requests under names that are not ours."""

    def __init__(self, app: ASGIApp, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it with status 421."""
        if scope["path"] not in OPEN_PATHS:
            given = [value for name, value in scope["headers"] if name == b"host"]
            if len(given) != 1 or not is_ours(given[0].decode("latin-1"), self._names):
                detail = "the Host header names another host; add it to serve.hosts if this one goes by that name"
                raise HTTPException(status_code=421, detail=detail)
        await self._app(scope, receive, send)


def names_of(settings: ServeSettings) -> frozenset[str]:
    """The names by which the service goes."""
    return _lowered(("localhost", settings.web_host, socket.gethostname(), *settings.hosts))


def _lowered(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.lower().rstrip(".") for name in names if name)


def is_ours(host: str, names: frozenset[str]) -> bool:
    """Whether a Host header, with or without a port, names us or is an address."""
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
