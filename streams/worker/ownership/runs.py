"""Share the event loop between the partitions of a worker: each processes a run of messages without interruption."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

RUNS_S = 0.006
"""Time for one run of each partition with messages, seconds; then the other tasks of the loop have their turn."""

MAX_MESSAGES = 64  # maximum number of messages of one run of each partition


class RunBudget:
    """Limit on the runs of a worker's partitions, which share `RUNS_S` and `MAX_MESSAGES`.

    Successive messages of one partition use the same data, and share the cost of a turn of the event loop. A run has at
    least one message.

    Args:
        clock: Monotonic clock, seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._active = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Count a partition in the block, in which it has messages."""
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    def run(self) -> Iterator[None]:
        """Iterate until the run of a partition must end."""
        active = max(self._active, 1)
        end = self._clock() + RUNS_S / active
        for _ in range(max(MAX_MESSAGES // active, 1)):
            yield
            if self._clock() >= end:
                return
