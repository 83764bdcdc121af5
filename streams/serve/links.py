"""Links by which a browser is let in, and the sessions that they are exchanged for.

Both are a token's name, until when they count, and a signature that the token makes. So nothing of them is stored, and
a token that is changed or taken away ends the sessions that came from it.
"""

import hmac
import secrets
from collections.abc import Mapping
from urllib.parse import quote, unquote

from streams.settings.tokens import ServeToken

LINK_S = 600
"""Seconds for which a link counts."""

SESSION_S = 7 * 86_400
"""Seconds for which a session does."""


def signed(kind: str, name: str, token: str, until: float) -> str:
    """What lets in, as `kind` (link or session), whom the token of this name lets in, until then (Unix seconds)."""
    text = f"{quote(name, safe='')}.{int(until)}.{secrets.token_urlsafe(9)}"
    return f"{text}.{_signature(kind, text, token)}"


def name_in(kind: str, given: str, tokens: Mapping[str, ServeToken], now: float) -> str | None:
    """The name of the token that has signed this; None where none has, or where its time is over."""
    text, _, signature = given.rpartition(".")
    name, until = [*text.rsplit(".", 2), "", ""][:2]
    token = tokens.get(unquote(name))
    if token is None or not hmac.compare_digest(_signature(kind, text, token.token), signature):
        return None
    return unquote(name) if now <= float(until) else None


def _signature(kind: str, text: str, token: str) -> str:
    return hmac.digest(token.encode(), f"queuecast {kind} {text}".encode(), "sha256").hex()
