"""Keeps the processes of a machine from compiling at the same time, and tells who waits that one compiles."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from numba.core import event

from models import registry

TOLD_S = 3.0  # compiling that takes longer than this in all is told
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


class _Listener(event.TimingListener):  # type: ignore[misc]  # numba is untyped
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell: Callable[[str], None] | None = tell

    def on_end(self, one: event.Event) -> None:
        super().on_end(one)
        if self._tell is not None and self.done and self.duration > TOLD_S:
            self._tell(COMPILES)
            self._tell = None


def told_of_compiling(tell: Callable[[str], None]) -> AbstractContextManager[object]:
    """Tell once if this process compiles for long meanwhile: what it does instead stands still."""
    found: AbstractContextManager[object] = event.install_listener("numba:compile", _Listener(tell))
    return found
