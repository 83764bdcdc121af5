"""A webhook at a real HTTP receiver: signature, retries, and time limit."""

import asyncio
import time
from collections.abc import Iterator

import aiohttp
import pytest

from queuecast import verify_notice
from streams.notify import notifier
from streams.notify.notifier import Webhook
from streams.notify.signing import signature
from tests.support.receiver import NOTICE, Receiver, received

SECRET = "0123456789abcdef"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with received() as found:
        yield found


def delivered(url: str, patience_s: float = 60.0, secret: str | None = SECRET) -> str | None:
    async def deliver() -> str | None:
        async with aiohttp.ClientSession() as session:
            return await Webhook(session, url, secret, patience_s).deliver(NOTICE)

    return asyncio.run(deliver())


def test_webhook_notification_is_signed_and_verified(receiver: Receiver) -> None:
    assert delivered(receiver.url) is None
    ((headers, body),) = receiver.requests
    assert headers["Queuecast-Id"] == "n1"
    assert verify_notice(SECRET, headers, body) == NOTICE
    with pytest.raises(ValueError, match="signature is missing or wrong"):
        verify_notice("another secret 1", headers, body)
    with pytest.raises(ValueError, match="signature is missing or wrong"):
        verify_notice(SECRET, headers, body + b" ")
    with pytest.raises(ValueError, match="signature is missing or wrong"):
        verify_notice(SECRET, {}, body)
    old = str(int(time.time()) - 3600)
    late = {"Queuecast-Timestamp": old, "Queuecast-Signature": signature(SECRET, old, body)}
    with pytest.raises(ValueError, match="too old"):
        verify_notice(SECRET, late, body)


def test_webhook_retries_until_success(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "MAX_PAUSE_S", 0.01)
    receiver.statuses = [500, 429, 503, 204]
    assert delivered(receiver.url) is None
    assert len(receiver.requests) == 4


def test_webhook_rejection_is_not_retried(receiver: Receiver) -> None:
    receiver.statuses = [410]
    assert delivered(receiver.url) == "status 410"
    assert len(receiver.requests) == 1


def test_webhook_stops_retrying_after_time_limit(receiver: Receiver) -> None:
    receiver.statuses = [500]
    assert delivered(receiver.url, patience_s=0.0) == "status 500"
    assert (delivered("http://127.0.0.1:1/", patience_s=0.0) or "").startswith("ClientConnector")


def test_webhook_without_secret_sends_no_signature(receiver: Receiver) -> None:
    assert delivered(receiver.url, secret=None) is None
    assert "Queuecast-Signature" not in receiver.requests[0][0]
