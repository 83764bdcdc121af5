"""Signatures of webhook notices, and their verification by the receiver.

The body is the notice as JSON. `Queuecast-Id` repeats its id, `Queuecast-Timestamp` is when it was sent (Unix seconds),
`Queuecast-Signature` is `v1=` and the HMAC-SHA256 of timestamp, a point and body, in hexadecimal digits.
"""

import hmac
import time
from collections.abc import Mapping

import msgspec

from models.records import Notice

ID, TIMESTAMP, SIGNATURE = "Queuecast-Id", "Queuecast-Timestamp", "Queuecast-Signature"


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a request.

    >>> signature("a secret", "1767000000", b"{}")[:11]
    'v1=a99c0d2b'
    """
    return f"v1={hmac.digest(secret.encode(), timestamp.encode() + b'.' + body, 'sha256').hex()}"


def verify_notice(secret: str, headers: Mapping[str, str], body: bytes, tolerance_s: float = 300.0) -> Notice:
    """Verify a received request and return its notice.

    Args:
        secret: the shared secret.
        headers: headers of the request; names in any case.
        body: body of the request.
        tolerance_s: maximum age in seconds, which limits replay attacks.

    Raises:
        ValueError: the signature is missing or wrong, or the request is too old.
    """
    named = {name.lower(): value for name, value in headers.items()}
    timestamp, signed = named.get(TIMESTAMP.lower(), ""), named.get(SIGNATURE.lower(), "")
    if not hmac.compare_digest(signature(secret, timestamp, body).encode(), signed.encode()):
        raise ValueError("the signature is missing or wrong")
    if abs(time.time() - float(timestamp)) > tolerance_s:
        raise ValueError("the request is too old")
    return msgspec.json.decode(body, type=Notice)
