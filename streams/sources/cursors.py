"""Cursor files: where a source resumes at its next start."""

import fcntl
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Self
from urllib.parse import quote

import msgspec
from msgspec import Meta

from streams.errors import UserError
from streams.sources.contract import Cursor, Source

SECONDS_PER_WRITE = 1.0  # minimum interval between two writes of a file, which is also written on close
MAX_NAME = 120  # maximum length of the sites in a file name; longer ones are cut and get a hash
RESTART_HINT = "remove the file to send from the beginning"


class _Head(msgspec.Struct, kw_only=True):
    """First line of a cursor file: the source, and the topic whose broker has acknowledged the events."""

    v: Annotated[int, Meta(ge=1, le=1)] = 1
    source: str
    sites: tuple[str, ...]
    topic: str


class CursorFile:
    """One source's cursor in a file of a directory, for one process at a time.

    The file has a line of JSON (`_Head`), then the cursor as it is. It is written to another file, forced to the disk
    and renamed, so that a crash leaves the old cursor or the new one. A lock file beside it, which the kernel releases
    when the process ends in whatever way, keeps a second process from using it. As a context manager it has, when
    entered, the lock and the cursor of last time (None before the first), and is written when left.
    """

    def __init__(
        self, directory: Path, source: Source, topic: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare the file; it is not opened yet.

        The directory is created if it is missing. A topic that was deleted and created again must have another name
        here.
        """
        self.path = directory / f"{file_name(source)}.cursor"
        self.cursor: Cursor | None = None
        self._head = _Head(source=source.name, sites=source.sites, topic=topic)
        self._acknowledged: Cursor | None = None
        self._clock = clock
        self._due = 0.0
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Self:
        """Acquire the lock and read the cursor.

        Raises:
            UserError: another process has the lock, or the file is invalid or of another source, site or topic.
            OSError: the directory or the file cannot be used.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self.path.with_suffix(".lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.cursor = self._acknowledged = self._read()
        except BlockingIOError:
            self._lock.close()
            raise UserError(
                f"{self.path}: another process is using it; a site can have only one sender at a time"
            ) from None
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        with self._lock:
            self.write()

    def keep(self, cursor: Cursor) -> None:
        """Keep a cursor: the broker has acknowledged every event up to it. It is written when that is due."""
        self._acknowledged = cursor
        if self._clock() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the newest cursor that was kept, where it is not written yet."""
        if self._acknowledged is None or self._acknowledged == self.cursor:
            return
        other = self.path.with_suffix(".new")
        with other.open("wb") as file:
            file.write(msgspec.json.encode(self._head) + b"\n" + self._acknowledged)
            file.flush()
            os.fsync(file.fileno())
        other.replace(self.path)
        _sync_directory(self.path.parent)
        self.cursor = self._acknowledged
        self._due = self._clock() + SECONDS_PER_WRITE

    def _read(self) -> Cursor | None:
        try:
            line, _, cursor = self.path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return None
        try:
            head = msgspec.json.decode(line, type=_Head)
        except ValueError as error:  # msgspec's, and of bytes that are no UTF-8
            raise UserError(f"{self.path}: not a cursor file: {error}; {RESTART_HINT}") from None
        for field in ("source", "sites", "topic"):
            there, expected = getattr(head, field), getattr(self._head, field)
            if there != expected:
                raise UserError(f"{self.path}: its {field} is {there!r}, not {expected!r}; {RESTART_HINT}")
        return cursor


def file_name(source: Source) -> str:
    """A name from the source and its sites, without an ending: `swf-kth`.

    Characters that a file's name cannot have are written as in URLs.
    """
    name = f"{source.name}-{','.join(quote(site, safe='') for site in source.sites)}"
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:MAX_NAME]}-{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
