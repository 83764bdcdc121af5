"""Names with a slash in paths: `/v1/sites/a%2Fb` is about the site `a/b`.

Servers hand on a path with all its escapes undone, in which such a slash looks like one between segments. So the path
is read again from what the client sent, with a stand-in for slashes within a segment, and handlers are given the name.
"""

from typing import Any
from urllib.parse import unquote

from litestar import Request
from litestar.types import ASGIApp, Receive, Scope, Send

STAND_IN = "\x00"
"""What no name has."""


def keeping_slashes(app: ASGIApp) -> ASGIApp:
    """The app, given paths whose segments are those that the client sent."""

    async def with_segments(scope: Scope, receive: Receive, send: Send) -> None:
        raw = scope.get("raw_path")  # the app's lifespan has none
        if raw and b"%2f" in raw.lower():
            segments = raw.decode("latin-1").partition("?")[0].split("/")
            scope["path"] = "/".join(unquote(segment).replace("/", STAND_IN) for segment in segments)
        await app(scope, receive, send)

    return with_segments


def answering_head(app: ASGIApp) -> ASGIApp:
    """The app, which answers HEAD as GET; the server leaves the body out, since its scope stays as it is.

    Not so for a login link, which counts once: who only looks whether it is there must not use it.
    """

    async def as_get(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("method") == "HEAD" and scope["path"] != "/login":
            scope = {**scope, "method": "GET"}  # type: ignore[assignment]
        await app(scope, receive, send)

    return as_get


async def restore_slashes(request: Request[Any, Any, Any]) -> None:
    """Give the handler of a request the names as they are."""
    given = request.scope["path_params"]
    restored = {key: value.replace(STAND_IN, "/") if isinstance(value, str) else value for key, value in given.items()}
    request.scope["path_params"] = restored
