"""Prevent concurrent numba compilation by the processes of one machine, and report long compilation to the user."""

import fcntl
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from numba.core import event
from numba.core.registry import CPUDispatcher

from models import kernels, method_registry
from streams.process.compile_progress import discard_progress

MIN_WARNED_S = 3.0  # total compilation time from which it is reported
COMPILES = "compiling, the first time on this machine, which takes a minute or two"
REPORT_EVERY_S = 5.0
PROGRESS = "compiling {done} of {total} kernels{remaining}; first start only"
INDEX = f"*.py{sys.version_info.major}{sys.version_info.minor}*.nbi"  # numba's file of a kernel for this Python
MIN_SHARE = 0.05  # share of the kernels from which the time left is estimated

_MODELS = method_registry.__name__.removesuffix("method_registry")


def _lockable() -> Path:
    """Return the folder of the kernels, or the sources where it cannot be created: numba then caches elsewhere."""
    try:
        kernels.folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        return kernels.ROOT
    return kernels.folder()


@contextmanager
def compiling_alone() -> Iterator[None]:
    """Prevent other processes on this machine from compiling in the block, if the file system supports locks.

    numba's cache has no lock: if two processes compile different signatures of one function at once, each may store its
    own under the other's name.
    """
    folder = os.open(_lockable(), os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        discard_progress()
        yield
    finally:
        os.close(folder)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Run Python's garbage collector rarely in the block, without the objects that exist now.

    Compiling creates many objects, and few of them are garbage in cycles. Each collection scans all that are left.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def progress_line(done: int, total: int, spent_s: float) -> str:
    """Return a report of progress; the time left assumes that the other kernels take as long as those before."""
    if done < MIN_SHARE * total:
        return PROGRESS.format(done=done, total=total, remaining="")
    remaining_s = spent_s * (total - done) / max(done, 1)
    remaining = f"{math.ceil(remaining_s / 60)} min" if remaining_s > 60 else f"{10 * math.ceil(remaining_s / 10)} s"
    return PROGRESS.format(done=done, total=total, remaining=f", about {remaining} left")


def _kernels() -> list[CPUDispatcher]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_MODELS)]
    found = (one for module in modules for one in vars(module).values() if isinstance(one, CPUDispatcher))
    return list({id(one): one for one in found}.values())


def _ready(every: Sequence[CPUDispatcher]) -> int:
    """Return how many of these kernels are compiled: here, or in the cache, also by another process."""
    folders = {Path(folder) for kernel in every if (folder := kernel.stats.cache_path)}
    stored = sum(len([*folder.glob(INDEX)]) for folder in folders)
    return max(stored, sum(bool(kernel.overloads) for kernel in every))


class _Progress(event.Listener):  # type: ignore[misc]  # numba is untyped
    """Reports at the first compilation, then every `REPORT_EVERY_S` seconds, how many of the missing kernels are ready.

    Kernels that were in the cache before do not count.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._before: int | None = None
        self._begin = time.monotonic()
        self._latest = -math.inf

    def on_start(self, one: event.Event) -> None:
        self._show()

    def on_end(self, one: event.Event) -> None:
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._latest < REPORT_EVERY_S:
            return
        self._latest, every = now, _kernels()
        ready = _ready(every)
        if self._before is None:
            self._before = ready
        missing = max(len(every) - self._before, 1)
        self._report(progress_line(min(ready - self._before, missing), missing, now - self._begin))


def reported_progress(report: Callable[[str], None]) -> AbstractContextManager[object]:
    """Report the progress of compiling meanwhile; nothing where all kernels are in numba's cache."""
    found: AbstractContextManager[object] = event.install_listener("numba:compile", _Progress(report))
    return found


class _Listener(event.TimingListener):  # type: ignore[misc]  # numba is untyped
    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__()
        self._warn: Callable[[str], None] | None = warn

    def on_end(self, one: event.Event) -> None:
        super().on_end(one)
        if self._warn is not None and self.done and self.duration > MIN_WARNED_S:
            self._warn(COMPILES)
            self._warn = None


def compilation_warning(warn: Callable[[str], None]) -> AbstractContextManager[object]:
    """Report once if compilation in the block takes long, as other work in this process stops meanwhile."""
    found: AbstractContextManager[object] = event.install_listener("numba:compile", _Listener(warn))
    return found
