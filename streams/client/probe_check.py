"""Slow checks of a readiness probe, which must answer within a second: the default timeout in Kubernetes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

MAX_WAIT_S = 0.4  # for one check; a probe has two
FRESH_S = 1.0  # minimum time between the begins of two checks


class ProbeCheck:
    """A check that continues in the background if it takes long. Its result replaces that of the check before.

    Args:
        check: stores its result itself.
    """

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._latest: asyncio.Future[None] | None = None
        self._begun_at = 0.0  # monotonic time of its begin

    async def refresh(self) -> None:
        """Start the check, unless it runs or is recent, and wait at most `MAX_WAIT_S` for it."""
        latest = self._latest
        if latest is None or (latest.done() and time.monotonic() - self._begun_at > FRESH_S):
            self._begun_at = time.monotonic()
            latest = self._latest = asyncio.ensure_future(self._check())
        if not latest.done():
            await asyncio.wait([latest], timeout=MAX_WAIT_S)
        if latest.done() and not latest.cancelled():  # it is cancelled by `stop`
            latest.result()

    def stop(self) -> None:
        """Cancel a running check."""
        if self._latest is not None:
            self._latest.cancel()
