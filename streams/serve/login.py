"""The paths by which browsers sign in and out.

Opening a link changes nothing: it shows a page with a button. Otherwise another site's page could sign its visitors in
as another user (login CSRF), and programs that preview links in messages would use them up.
"""

from html import escape
from typing import Any
from urllib.parse import quote

from litestar import MediaType, Request, Response, delete, get, post
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie, State
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromQuery

from streams.serve.pages import framed
from streams.serve.sessions import SESSION, SESSION_S, is_same_origin

NOT_VALID = (
    "this link was used, is older than ten minutes, or was made before the service started; "
    "`queuecast credentials --link` prints another"
)


def refuse_other_sites(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
    """Guard against cross-site requests."""
    if connection.scope.get("method") != "GET" and not is_same_origin(connection.headers):
        raise PermissionDeniedException(detail="cross-site request; expected a request from a page of this service")


@get("/", media_type=MediaType.HTML)
async def show_link(state: State, key: FromQuery[str] = "") -> Response[bytes]:
    """Show the page with the button that exchanges a link for a session."""
    name = state.access.name_in_link(key)
    if name is None:
        raise PermissionDeniedException(detail=NOT_VALID)
    action = f"login?key={quote(key, safe='')}"
    content = (
        '    <section id="sign-in"><h1>Sign in to queuecast</h1>\n'
        f"      <p>This link signs this browser in with the token <b>{escape(name)}</b> for a week.</p>\n"
        f'      <form method="post" action="{action}"><button>Sign in</button></form></section>'
    )
    page = framed("Sign in – queuecast", content, "Skip to the button").encode()
    # Without a referrer policy of its own, the browser would send "Origin: null" with the form.
    return Response(page, media_type=MediaType.HTML, headers={"referrer-policy": "same-origin"})


@post("/")
async def log_in(state: State, request: Request[Any, Any, State], key: FromQuery[str] = "") -> Response[None]:
    """Exchange a link (`key`), or the token in the header Authorization, for a session."""
    if key:
        session = state.access.session_by_link(key)
        if session is None:
            raise PermissionDeniedException(detail=NOT_VALID)
        return Response(None, status_code=303, headers={"Location": "./"}, cookies=[_session_cookie(request, session)])
    session = state.access.session_by_token(request.headers.get("authorization", ""))
    if session is None:
        raise NotAuthorizedException(detail="the token is missing or wrong")
    return Response(None, status_code=204, cookies=[_session_cookie(request, session)])


@delete("/", status_code=204)
async def log_out() -> Response[None]:
    """End the session in this browser."""
    over = Cookie(SESSION, value="", max_age=0, httponly=True, samesite="strict")
    return Response(None, status_code=204, cookies=[over])


def _session_cookie(request: Request[Any, Any, State], session: str) -> Cookie:
    secure = "https" in (request.url.scheme, request.headers.get("x-forwarded-proto"))
    return Cookie(SESSION, value=session, max_age=SESSION_S, httponly=True, samesite="strict", secure=secure)
