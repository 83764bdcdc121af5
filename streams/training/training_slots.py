"""Slots for trainings that the processes of a worker share: the waiting training with the lowest rank goes first.

A slot is a file that the training process locks, so the system frees it if the process dies. The waiting processes
write their ranks to one file. A rank counts only while its process renews it, so a dead process delays no other one.
No result depends on the order: a model is in force from a fixed event on.
"""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path

Rank = tuple[bool, float]
"""Order of the trainings: retraining before first models, then by the end of the site's last training."""

POLL_S = 0.1  # interval in which a waiting process renews its rank, seconds
STALE_S = 1.0  # age from which on a rank does not count, seconds

_RECORD = struct.Struct("<?dd")  # the rank, and the time of writing by the clock of the machine
_NOTHING = bytes(_RECORD.size)


class TrainingSlots:
    """The slots as one process uses them.

    Args:
        directory: Directory of the files, the same for all processes.
        number: Number of this process, from 0.
        count: Number of slots.
    """

    def __init__(self, directory: Path, number: int, count: int) -> None:
        self._directory, self._number, self._count = directory, number, count

    @contextmanager
    def take(self, rank: Callable[[], Rank], ending: threading.Event) -> Iterator[None]:
        """Hold a slot, after the waiting processes with lower ranks got one.

        Args:
            rank: Returns the present rank of this process.
            ending: Set when this process ends.

        Raises:
            CancelledError: This process ends.
            OSError: The files cannot be used.
        """
        slot = self._wait(rank, ending)
        try:
            yield
        finally:
            os.close(slot)

    def _wait(self, rank: Callable[[], Rank], ending: threading.Event) -> int:
        """Wait for a slot; return its locked file."""
        ranks = self._open("ranks")
        try:
            while True:
                if self._is_lowest(ranks, rank()) and (slot := self._free_slot()) is not None:
                    return slot
                if ending.wait(POLL_S):
                    raise CancelledError
        finally:
            self._write(ranks, _NOTHING)
            os.close(ranks)

    def _open(self, name: str) -> int:
        return os.open(self._directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _write(self, ranks: int, record: bytes) -> None:
        os.pwrite(ranks, record, self._number * _RECORD.size)

    def _is_lowest(self, ranks: int, own: Rank) -> bool:
        """Write the rank of this process, and compare it with those of the others; equal ranks count as lowest."""
        now = time.monotonic()
        self._write(ranks, _RECORD.pack(*own, now))
        found = os.pread(ranks, os.fstat(ranks).st_size, 0)
        others = _RECORD.iter_unpack(found[: len(found) // _RECORD.size * _RECORD.size])
        return all(own <= (first, last) for first, last, written in others if now - written < STALE_S)

    def _free_slot(self) -> int | None:
        """Lock a free slot; return its file, which unlocks it when it is closed."""
        for number in range(self._count):
            slot = self._open(f"slot-{number}")
            try:
                fcntl.flock(slot, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(slot)
            except OSError:
                os.close(slot)
                raise
            else:
                return slot
        return None
