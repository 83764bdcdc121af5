"""Keeps the processes of a machine from compiling at the same time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from models import registry


@contextmanager
def compiling_alone() -> Iterator[None]:
    """Keep other processes on this machine from compiling meanwhile, where the file system can.

    numba's cache has no lock: of two processes that compile different signatures of one function at once, each may
    store its own under the other's name.
    """
    folder = os.open(Path(registry.__file__).parent, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
