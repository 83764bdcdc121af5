"""Who may write what is of a partition: whoever has a token of it that is not void."""

from collections.abc import Callable


class Revoked(Exception):
    """The partition is another worker's from now on, which sees again what was not acknowledged. This is no fault."""


class Token:
    """The right to write what is of one partition: made when it is assigned, void once it is revoked.

    Whoever writes (the table, Redis, an offset) is given it and asks it right before each write, so again after each
    `await` in between.

    Parameters:
        alive: raises where this process may write nothing any more, whatever it holds (`Pulse.check`).
    """

    def __init__(self, partition: int, alive: Callable[[], None] = lambda: None) -> None:
        self.partition = partition
        self.void = False
        self._alive = alive

    def check(self) -> None:
        """Make sure that the partition is this worker's.

        Raises:
            Revoked: it is not any more.
        """
        if self.void:
            raise Revoked(f"partition {self.partition} has been revoked")
        self._alive()

    def revoke(self) -> None:
        """Nothing may be written any more."""
        self.void = True
