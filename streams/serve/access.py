"""Access control: tokens and their rights, reload of tokens at run time, and the access log."""

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2s
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from litestar.connection import ASGIConnection
from litestar.exceptions import NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.types import Message, Scope

from streams.client.pending_questions import on_behalf_of
from streams.errors import InvalidInput, UserError
from streams.serve.sessions import SESSION, SESSION_S, OneTimeLinks, name_in, signed
from streams.serve.sight import VisibleJobs, sight
from streams.settings.sections import ServeToken

log = logging.getLogger(__name__)
LOOK_S = 1.0  # seconds between two looks whether the tokens' files have changed
MAX_SHOWN = 200  # characters of a path that the log shows
CLIENT = "queuecast_client"  # key of the authenticated client in a request's scope
Connection = ASGIConnection[Any, Any, Any, Any]


class Access:
    """The tokens in force by name; without tokens and without a user header, all requests are allowed.

    In `user_header` a reverse proxy names the authenticated user, who may then see that user's jobs; the header is
    accepted only from the `trusted` networks.
    """

    def __init__(
        self, tokens: Mapping[str, ServeToken], user_header: str | None = None, trusted: Sequence[str] = ()
    ) -> None:
        self._tokens = dict(tokens)
        self._user_header = user_header
        self._trusted = networks(trusted)
        self._links = OneTimeLinks()
        self._key = secrets.token_bytes(16)

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        # Litestar copies handlers with their guards; a copy would keep the tokens of the start.
        return self

    @property
    def requires_token(self) -> bool:
        """True if clients must authenticate."""
        return bool(self._tokens) or self._user_header is not None

    def replace(self, tokens: Mapping[str, ServeToken]) -> None:
        """Replace the tokens in force."""
        self._tokens = dict(tokens)

    def authenticate(self, connection: Connection) -> tuple[str, ServeToken] | None:
        """Return the client's name and rights, by token, session or trusted proxy; None if not authenticated."""
        if (given := connection.headers.get("authorization")) is not None:
            return self.find(given)
        session = connection.cookies.get(SESSION, "")
        name = name_in("session", session, self._tokens, time.time())
        return self._named_by_proxy(connection) if name is None else (name, self._tokens[name])

    def find(self, authorization: str) -> tuple[str, ServeToken] | None:
        """Return the name and rights of the token in this header; None if there is no such token.

        All tokens are compared, each in constant time, so that timing reveals nothing about any of them.
        """
        scheme, _, given = authorization.partition(" ")
        given_bytes = given.strip().encode("latin-1", "replace")
        found = None
        for name, token in self._tokens.items():
            if hmac.compare_digest(given_bytes, token.token.encode()):
                found = name, token
        return found if scheme.lower() == "bearer" else None

    def _named_by_proxy(self, connection: Connection) -> tuple[str, ServeToken] | None:
        user = connection.headers.get(self._user_header or "", "").strip()
        if not user or not _within(connection.client.host if connection.client else "", self._trusted):
            return None
        return f"user {user}", ServeToken(token="", rights="own", user=user)

    def name_in_link(self, link: str) -> str | None:
        """Return the name of the token that signed this login link; None if the link is invalid or was used."""
        return self._links.name_in(link, self._tokens)

    def session_by_link(self, link: str) -> str | None:
        """Exchange a login link for a session, once; None if the link is invalid or was used."""
        name = self._links.use(link, self._tokens)
        return None if name is None else self._session(name)

    def session_by_token(self, authorization: str) -> str | None:
        """Return a session for the token in this header; None if the token is invalid."""
        found = self.find(authorization)
        return None if found is None else self._session(found[0])

    def _session(self, name: str) -> str:
        return signed("session", name, self._tokens[name].token, time.time() + SESSION_S)

    def identify(self, connection: Connection) -> str:
        """Return the identity for rate limits: the token's name, else the address."""
        found = self.authenticate(connection)
        return f"token {found[0]}" if found else f"address {address_of(connection.scope)}"

    def sight_of(self, connection: Connection) -> VisibleJobs:
        """Return the jobs that this request may see."""
        found = self.authenticate(connection)
        if found is None:
            return VisibleJobs(everybody=not self.requires_token)
        return VisibleJobs(everybody=found[1].rights == "all", user=found[1].user)

    async def note_client(self, connection: Connection, _: BaseRouteHandler) -> None:
        """Record the client of this request and its visible jobs; the address is hashed for the workers.

        It is a coroutine, because a function would run in another thread and its context variables would be lost.
        """
        hidden = blake2s(self.identify(connection).encode(), key=self._key, digest_size=8).hexdigest()
        on_behalf_of.set(f"http {hidden}")
        sight.set(self.sight_of(connection))

    def guard(self, connection: Connection, handler: BaseRouteHandler) -> None:
        """Allow the request if its token has the right.

        Raises:
            NotAuthorizedException: the client is not authenticated.
            PermissionDeniedException: the token lacks the right.
        """
        if not self.requires_token:
            return
        found = self.authenticate(connection)
        if found is None:
            detail = "the token is missing or wrong; expected the header `Authorization: Bearer TOKEN`"
            raise NotAuthorizedException(detail=detail, headers={"WWW-Authenticate": "Bearer"})
        name, token = found
        connection.scope[CLIENT] = name  # type: ignore[literal-required]
        _check_rights(token, connection, handler)


def networks(addresses: Sequence[str]) -> list[IPv4Network | IPv6Network]:
    """Parse addresses and networks.

    Raises:
        UserError: one is invalid.
    """
    try:
        return [ip_network(address) for address in addresses]
    except ValueError as error:
        raise InvalidInput(f"serve.user_header_from: {error}; expected addresses, or networks as 10.0.0.0/8") from None


def _within(host: str, trusted: Iterable[IPv4Network | IPv6Network]) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in trusted)


def _check_rights(token: ServeToken, connection: Connection, handler: BaseRouteHandler) -> None:
    if token.rights == "all":
        return
    needs = handler.opt.get("rights", "all")
    if needs == "all" or (needs == "own" and token.rights == "rank"):
        raise PermissionDeniedException(detail=f"the rights of this token, {token.rights!r}, do not allow this")
    users = [connection.path_params.get("user"), connection.query_params.get("user")]
    if token.rights == "own" and any(user not in (None, "", token.user) for user in users):
        raise PermissionDeniedException(detail=f"this token is limited to the user {token.user!r}")


def address_of(scope: Mapping[str, Any]) -> str:
    """Return the client's address; for IPv6 its network, because a client can use many addresses there."""
    client = scope.get("client")
    try:
        address = ip_address(client[0] if client else "")
    except ValueError:
        return str(client[0]) if client else ""
    if isinstance(address, IPv6Address):
        return str(address.ipv4_mapped or ip_network((address, 64), strict=False))
    return str(address)


async def log_request(message: Message, scope: Scope) -> None:
    """Log a request with its client, including refused ones."""
    path = scope.get("path", "")
    if message["type"] != "http.response.start" or not path.startswith("/v1/"):
        return
    users: list[Any] = [scope.get("path_params", {}).get("user"), *_users_queried(scope)]
    about = {
        "client": scope.get(CLIENT),
        "address": client[0] if (client := scope.get("client")) else None,
        "path": path[:MAX_SHOWN],
        "user": next((str(user)[:MAX_SHOWN] for user in users if user), None),
        "status": message["status"],
    }
    log.info("http_request", extra={name: value for name, value in about.items() if value is not None})


def _users_queried(scope: Scope) -> Iterable[str]:
    query = scope.get("query_string", b"")
    return parse_qs(query.decode("latin-1")).get("user", []) if b"user=" in query else []


async def follow(access: Access, files: Iterable[Path], load: Callable[[], Mapping[str, ServeToken]]) -> None:
    """Reload the tokens with `load` whenever their files change, without end; invalid files change nothing."""
    watched = list(files)
    known = _versions(watched)
    while True:
        await asyncio.sleep(LOOK_S)
        if (found := _versions(watched)) == known:
            continue
        known = found
        try:
            tokens = load()
        except UserError as error:
            log.warning("Kept the current tokens: %s", error)
            continue
        if access.requires_token and not tokens:
            log.warning("Ignored empty token file: it would disable authentication")
            continue
        access.replace(tokens)
        log.info("Reloaded tokens: %s", ", ".join(sorted(tokens)) or "none")


def _versions(files: Iterable[Path]) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
    return found
