"""Folder of the compiled kernels: its place, and the removal of kernels without use.

This module does not import numba, so a process without kernels can use it.
"""

import os
import re
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

MAX_UNUSED_S = 30 * 86_400.0
"""Seconds after which the kernels of a source file are removed if no process has started with them."""

MARK_EVERY_S = 86_400.0  # resolution of the time of the last use, seconds
_KERNELS = re.compile(r"\w+-[0-9a-f]{16}")  # name of the folder of one source file's kernels


def folder() -> Path:
    """Return the folder of all compiled kernels: in $NUMBA_CACHE_DIR, else in the user's cache folder."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given) / "kernels"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "queuecast" / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "queuecast" / "kernels"


def mark_used(place: Path) -> None:
    """Store that a process uses these kernels now, as the folder's modification time."""
    with suppress(OSError):  # not there yet, or not ours
        if time.time() - place.stat().st_mtime > MARK_EVERY_S:
            os.utime(place)


def remove_unused(max_unused_s: float = MAX_UNUSED_S) -> list[str]:
    """Remove kernels that no process has started with for a time, and return the names of their folders.

    A process that has loaded them keeps them in memory. A process that reads them at the same time compiles them again.

    Args:
        max_unused_s: Time without use, in seconds.
    """
    removed = []
    with suppress(OSError):
        for place in folder().iterdir():
            if _KERNELS.fullmatch(place.name) and time.time() - place.stat().st_mtime > max_unused_s:
                shutil.rmtree(place, ignore_errors=True)
                removed.append(place.name)
    return removed
