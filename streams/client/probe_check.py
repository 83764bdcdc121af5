"""Slow checks of a readiness probe, which must answer within a second: the default timeout in Kubernetes."""

import asyncio
import time
from collections.abc import Awaitable, Callable

MAX_WAIT_S = 0.4  # for one check; a probe has two
FRESH_S = 1.0  # minimum time between the begins of two checks


class ProbeCheck:
    """A check that continues in the background if it takes long. The next probe has its result.

    Args:
        check: stores its result itself.
    """

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._running: asyncio.Future[None] | None = None
        self._begun_at = float("-inf")  # monotonic time

    async def refresh(self) -> None:
        """Start the check, unless it runs or is recent, and wait at most `MAX_WAIT_S` for it."""
        if self._running is None and time.monotonic() - self._begun_at > FRESH_S:
            self._begun_at = time.monotonic()
            self._running = asyncio.ensure_future(self._check())
        if self._running is None:
            return
        done, _ = await asyncio.wait([self._running], timeout=MAX_WAIT_S)
        for check in done:
            if check is self._running:
                self._running = None
            check.result()

    def stop(self) -> None:
        """Cancel a running check."""
        if self._running is not None:
            self._running.cancel()
