"""A temporary directory that is removed even if its process was killed."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir

PREFIX = "queuecast-scratch-"
_LOCK = ".lock"  # a file in the directory, locked by its process


@contextmanager
def scratch() -> Iterator[Path]:
    """Provide a temporary directory and remove it afterwards; also remove those left by killed processes of this user.

    Raises:
        OSError: The directory cannot be created.
    """
    for abandoned in Path(gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):
            _remove_if_abandoned(abandoned)
    with TemporaryDirectory(prefix=PREFIX) as name, (directory := Path(name)).joinpath(".new").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (directory / ".new").rename(directory / _LOCK)  # visible to other processes only when it is locked
        yield directory


def _remove_if_abandoned(directory: Path) -> None:
    if directory.lstat().st_uid == os.geteuid() and not directory.is_symlink():
        with (directory / _LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(directory)
