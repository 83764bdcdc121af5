"""Share the progress of compiling with other processes of the machine, in a file in the folder of the kernels.

The process that compiles holds a lock on the folder. So a file that a killed process left is not read.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from models.kernel_folder import folder

FILE = "progress"


def compile_progress() -> str | None:
    """Return the latest report of the process that compiles kernels on this machine; None if none does."""
    with suppress(OSError):
        report = (folder() / FILE).read_text(encoding="utf-8")
        if is_locked():
            return report or None
    return None


def discard_progress() -> None:
    """Remove the report that a killed process left. The caller holds the lock."""
    with suppress(OSError):  # also where the folder cannot be created
        (folder() / FILE).unlink()


@contextmanager
def published(report: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yield a function that also publishes each report, until the end of the block. The caller holds the lock."""
    file = folder() / FILE

    def publish(line: str) -> None:
        with suppress(OSError):
            draft = file.with_name(f"{FILE}.{os.getpid()}")
            draft.write_text(line, encoding="utf-8")
            draft.replace(file)
        report(line)

    try:
        yield publish
    finally:
        discard_progress()


def is_locked() -> bool:
    """Return whether a process compiles kernels on this machine.

    Raises:
        OSError: the folder of the kernels cannot be read.
    """
    descriptor = os.open(folder(), os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
