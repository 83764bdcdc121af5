"""Browser sessions, and the one-time login links that start them.

A link and a session both consist of a token's name, an expiry time, and a signature made with the token. Neither is
stored. A token that is changed or removed ends the sessions that came from it.
"""

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from urllib.parse import quote, unquote, urlsplit

from streams.settings.sections import ServeToken

SESSION = "queuecast"  # the name of the session's cookie
LINK_S = 600  # seconds for which a link is valid
SESSION_S = 7 * 86_400  # seconds for which a session is valid


def signed(kind: str, name: str, token: str, until: float) -> str:
    """Return a link or session (`kind`) of the token of this name, valid until `until` (Unix seconds)."""
    text = f"{quote(name, safe='')}.{int(until * 1000)}.{secrets.token_urlsafe(9)}"
    return f"{text}.{_signature(kind, text, token).decode()}"


def name_in(kind: str, given: str, tokens: Mapping[str, ServeToken], now: float) -> str | None:
    """Return the name of the token that signed `given`; None if no token did, or if it has expired."""
    text, _, signature = given.rpartition(".")
    name, until = [*text.rsplit(".", 2), "", ""][:2]
    token = tokens.get(unquote(name))
    if token is None or not hmac.compare_digest(_signature(kind, text, token.token), signature.encode()):
        return None
    return unquote(name) if now <= float(until) / 1000 else None


def _signature(kind: str, text: str, token: str) -> bytes:
    return hmac.digest(token.encode(), f"queuecast {kind} {text}".encode(), "sha256").hex().encode()


class OneTimeLinks:
    """Accept each login link at most once.

    The links that were used are kept in memory alone. A process therefore accepts only links that were made while it
    ran: after a restart it cannot distinguish an earlier link that was used from one that was not. A link from the
    future is refused for the same reason: it would look new to the next process.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._started_ms = int(clock() * 1000)
        self._used: dict[str, float] = {}  # the links that were used, and until when they would be valid

    def name_in(self, link: str, tokens: Mapping[str, ServeToken]) -> str | None:
        """Return the name of the token that signed this link; None if the link is invalid or was used."""
        now = self._clock()
        name = name_in("link", link, tokens, now)
        if name is None or link in self._used:
            return None
        made_ms = int(link.rsplit(".", 3)[1]) - LINK_S * 1000
        return name if self._started_ms <= made_ms <= now * 1000 else None

    def use(self, link: str, tokens: Mapping[str, ServeToken]) -> str | None:
        """Return the same name, and reject the link from now on."""
        now = self._clock()
        self._used = {used: until for used, until in self._used.items() if until > now}
        name = self.name_in(link, tokens)
        if name is not None:
            self._used[link] = now + LINK_S
        return name


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Check if a request that changes the session comes from a page of this service, or not from a browser.

    Browsers send `Sec-Fetch-Site` over TLS and to loopback, and `Origin` with every POST.
    """
    if (site := headers.get("sec-fetch-site")) is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or (urlsplit(origin).netloc.lower() == headers.get("host", "").lower() != "")
