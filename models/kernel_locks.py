"""Let one process at a time compile a kernel; another one that needs it waits, and then loads it from the cache.

Two processes compile at a first start, and need many of the same kernels at the same time. numba's cache has no lock:
each process would compile them, and signatures stored at the same time could overwrite each other.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_held: set[Path] = set()


@contextmanager
def compiling_once(kernel: Any) -> Iterator[None]:
    """Hold the lock of a kernel in the block, if it is cached in a folder where files can be created.

    The caller holds numba's compiler lock. Kernels do not call each other in cycles, so no two processes wait for each
    other.

    Args:
        kernel: Its dispatcher.
    """
    folder = kernel._cache.cache_path
    path = Path(folder or "", f"{kernel.py_func.__qualname__}.lock")
    if folder is None or path in _held:
        yield
        return
    descriptor = _locked(path)
    _held.add(path)
    try:
        yield
    finally:
        _held.discard(path)
        if descriptor is not None:
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    descriptor = None
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor
