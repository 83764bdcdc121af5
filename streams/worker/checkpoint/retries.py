"""Trying again while a server is away."""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_chain, wait_fixed

from streams.worker.checkpoint.client import AWAY

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts at a server that is away; the last one is repeated."""


class Retries:
    """Tries until a server has done it: nothing may be left out, and nothing else can be done meanwhile.

    Parameters:
        before: called before each attempt; what it raises ends the attempts.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self.obstacle: str | None = None
        """The server that is being waited for, and its error; None while there is none."""
        self._before = before

    async def until_done(self, what: str, attempt: Callable[[], Awaitable[T]], site: str | None = None) -> T:
        """Do it, however often that takes; returns what it gives."""

        def failed(state: RetryCallState) -> None:
            error = state.outcome and state.outcome.exception()
            self.obstacle = f"{what} failed: {error}" if site is None else f"{what} {site} failed: {error}"
            log.warning("%s failed (%s); again in %.1f s", what, error, state.upcoming_sleep, extra={"site": site})

        attempts = AsyncRetrying(
            retry=retry_if_exception_type(AWAY),
            wait=wait_chain(*map(wait_fixed, RETRY_S)),
            before=lambda _: self._before(),
            before_sleep=failed,
        )
        done: T = await attempts(attempt)
        self.obstacle = None
        return done
