"""Turns of slow work on the event loop."""

import asyncio
import time
from collections.abc import Callable

TURN_S = 0.01  # maximum duration of a turn, seconds
SHARE = 0.25  # fraction of the event loop for the work while events of other sites wait


class Pacer:
    """Divides one piece of slow work into turns, between which other tasks run.

    Args:
        is_busy: Returns whether events of other sites wait. Meanwhile the work uses only `SHARE` of the time.
    """

    def __init__(self, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self.begin_turn()

    def begin_turn(self) -> None:
        """Start a turn now; call it after a wait that is not part of the work."""
        self._began_s = time.perf_counter()

    async def pause(self) -> None:
        """End the turn if it is long enough, and return at the start of the next one."""
        turn_s = time.perf_counter() - self._began_s
        if turn_s >= TURN_S:
            await asyncio.sleep(turn_s * (1 / SHARE - 1) if self._is_busy() else 0)
            self.begin_turn()
