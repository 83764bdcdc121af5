"""A webhook: notices as signed POST requests, tried again where nobody takes them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
import msgspec
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from models.records import Notice
from streams.notify.signing import ID, SIGNATURE, TIMESTAMP, signature

TIMEOUT_S = 10.0
"""How long a receiver may take."""

MAX_PAUSE_S = 60.0
"""The longest pause between two tries."""

PASSING = (408, 425, 429)
"""Statuses below 500 that may pass."""


class NotTaken(Exception):
    """The receiver did not take it; it may later."""


class RefusedForGood(Exception):
    """The receiver did not take it, and would not later."""


@dataclass(eq=False)
class Webhook:
    """Sends notices to an address, signed with `secret` if there is one; tries each again for `patience_s` seconds.

    `on_try` is told of each request whether it was taken, and whether it was not the first of its notice.
    """

    session: aiohttp.ClientSession
    url: str
    secret: str | None
    patience_s: float
    on_try: Callable[[bool, bool], None] = lambda taken, again: None

    async def deliver(self, notice: Notice) -> str | None:
        """Send a notice until it is taken; gives None, or why it was not."""
        again = AsyncRetrying(
            stop=stop_after_delay(self.patience_s),
            wait=wait_random_exponential(0.5, MAX_PAUSE_S),
            retry=retry_if_exception_type(NotTaken),
            reraise=True,
        )
        body = msgspec.json.encode(notice)
        try:
            async for attempt in again:
                with attempt:
                    await self._try(notice.id, body, attempt.retry_state.attempt_number > 1)
        except (NotTaken, RefusedForGood) as error:
            return str(error)
        return None

    async def _try(self, notice_id: str, body: bytes, again: bool) -> None:
        try:
            await self._post(notice_id, body)
        except (NotTaken, RefusedForGood):
            self.on_try(False, again)
            raise
        self.on_try(True, again)

    async def _post(self, notice_id: str, body: bytes) -> None:
        timestamp = str(int(time.time()))
        headers = {"Content-Type": "application/json", ID: notice_id, TIMESTAMP: timestamp}
        if self.secret is not None:
            headers[SIGNATURE] = signature(self.secret, timestamp, body)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        try:
            request = self.session.post(self.url, data=body, headers=headers, timeout=timeout, allow_redirects=False)
            async with request as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotTaken(f"{type(error).__name__}: {error}") from None
        if status >= 500 or status in PASSING:
            raise NotTaken(f"status {status}")
        if status >= 300:
            raise RefusedForGood(f"status {status}")
