"""A directory for a while, which does not stay either where the process that has it is killed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir

PREFIX = "queuecast-scratch-"
_LOCK = ".lock"  # a file in it, which its process has locked


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that is gone afterwards; what this user's killed processes left goes now. Raises OSError: no room."""
    for left in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_left(left)
    with TemporaryDirectory(prefix=PREFIX) as name, (directory := Path(name)).joinpath(".new").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (directory / ".new").rename(directory / _LOCK)  # from now on it is known, and locked
        yield directory


def _remove_if_left(directory: Path) -> None:
    if directory.lstat().st_uid == os.geteuid() and not directory.is_symlink():
        with (directory / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(directory)
