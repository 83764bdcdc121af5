"""Keeps the processes of a machine from compiling at the same time, and tells who waits that one compiles."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from numba.core import event

from models import registry

TOLD_S = 3.0
"""Compiling that takes longer than this in all is told."""

COMPILES = "compiling, the first time on this machine, which takes a minute or two"


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


class _Listener(event.Listener):  # type: ignore[misc]  # numba is untyped
    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell: Callable[[str], None] | None = tell
        self._depth, self._begun, self._took_s = 0, 0.0, 0.0

    def on_start(self, _: event.Event) -> None:
        self._begun = self._begun if self._depth else time.monotonic()
        self._depth += 1

    def on_end(self, _: event.Event) -> None:
        self._depth -= 1
        if not self._depth:
            self._took_s += time.monotonic() - self._begun
        if self._took_s > TOLD_S and self._tell is not None:
            self._tell(COMPILES)
            self._tell = None


@contextmanager
def told_of_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Tell once if this process compiles for long meanwhile: what it does instead stands still."""
    listener = _Listener(tell)
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)
