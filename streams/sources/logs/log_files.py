"""The files of one log, in time order.

A log is one file with its rotated files, a folder with a file a day, or a pattern such as `/var/log/condor/EventLog*`.
Compressed files count by their content.
"""

import bz2
import gzip
import hashlib
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from streams.errors import UserError, file_error

HEAD_BYTES = 1024
"""Number of first bytes that identify a file, or fewer if less was read of it."""

LOOK_BYTES = 1 << 16  # first bytes of a file that are searched for its first time

BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""Exceptions of reading a file, including a damaged or truncated compressed one."""

_Unzipped = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile

_ZIPPED: tuple[tuple[bytes, Any], ...] = ((b"\x1f\x8b", gzip.open), (b"BZh", bz2.open), (b"\xfd7zXZ", lzma.open))

FirstTime = Callable[[bytes], float | None]
"""The time (Unix seconds) of the first record in a file that begins so; None where there is none, or no such log."""


class LogFile(NamedTuple):
    """A file of a log: its path and inode, and the time of its first record if it has one yet."""

    path: Path
    inode: int
    begin: float | None


def open_log(path: Path) -> IO[bytes]:
    """Open a file, decompressed if its first bytes are those of a compressed file.

    Raises:
        OSError: it cannot be opened.
    """
    file = path.open("rb", buffering=0)
    first = os.pread(file.fileno(), 6, 0)
    for magic, unzipped in _ZIPPED:
        if first.startswith(magic):
            return cast(IO[bytes], _DecompressedFile(unzipped(file), file))
    return file


@contextmanager
def open_text(path: Path, newline: str | None = None) -> Iterator[IO[str]]:
    """Open a file as text, unzipped likewise; bytes that are no text are replaced. It may be a pipe. Raises OSError: it
    cannot be opened.
    """
    with path.open("rb") as file:
        first = file.peek(6)
        plain: Any = next((unzipped(file) for magic, unzipped in _ZIPPED if first.startswith(magic)), file)
        with TextIOWrapper(plain, encoding="utf-8-sig", errors="replace", newline=newline) as text:
            yield text


class _DecompressedFile:
    """A decompressed file that also closes the compressed one; `read` returns at most the requested bytes."""

    def __init__(self, unzipped: _Unzipped, file: IO[bytes]) -> None:
        self.read, self.seek, self.fileno = unzipped.read1, unzipped.seek, file.fileno
        self._unzipped, self._file = unzipped, file

    def close(self) -> None:
        self._unzipped.close()
        self._file.close()


def is_zipped(file: IO[bytes]) -> bool:
    """Check if a file of `open_log` is decompressed while it is read; no data is appended to such a file."""
    return isinstance(file, _DecompressedFile)


def fingerprint(head: bytes) -> str:
    """Return a hash of a file's first bytes, to recognise the file."""
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def fingerprint_of_all(path: Path) -> str:
    """Return a hash of a whole file, decompressed.

    Raises:
        UserError: the file cannot be read.
    """
    content = hashlib.blake2b(digest_size=8)
    try:
        with closing(open_log(path)) as file:
            for block in iter(lambda: file.read(LOOK_BYTES), b""):
                content.update(block)
    except BROKEN as error:
        raise file_error(path, error) from None
    return content.hexdigest()


class LogFiles:
    """The files of one log: a file with its rotated files (`is_file`), a folder, or a pattern.

    A file that cannot be read, or has no record of this log in its first `LOOK_BYTES`, is ignored.
    """

    def __init__(self, location: str, first_time: FirstTime) -> None:
        """Look whether there is something. Raises UserError: there is no such file or folder, or it cannot be read."""
        self.location = Path(location)
        self._first_time = first_time
        self._known: dict[tuple[str, int], float] = {}
        self.is_file = self.location.is_file()
        self.folder = self.location if self.location.is_dir() else self.location.parent
        try:
            if self.is_file:
                open_log(self.location).close()
            elif self.location.is_dir():
                next(self.location.iterdir(), None)
            elif not list(self._names()):
                raise UserError(f"{location}: there is no such file, folder or pattern of files")
        except OSError as error:
            raise file_error(location, error) from None

    def listed(self) -> list[LogFile]:
        """Return the current files, in the order of their first records.

        Of files that began in the same second, the file at the location is the last one. Only new files are opened; O(n
        log n) in the files.
        """
        found: dict[tuple[str, int], float] = {}
        for path, inode in self._names():
            begin = self._known.get((path, inode))
            if begin is None or path == str(self.location):  # a truncated file has a new beginning
                begin = self._begin(Path(path))
            if begin is not None:
                found[path, inode] = begin
        self._known = found
        live = str(self.location)
        ordered = sorted(found.items(), key=lambda item: (item[1], item[0][0] == live, written(item[0][0]), item[0]))
        return [LogFile(Path(path), inode, begin) for (path, inode), begin in ordered]

    def named(self) -> LogFile:
        """The file that the location names, whatever is in it."""
        return LogFile(self.location, 0, self._begin(self.location))

    def _names(self) -> list[tuple[str, int]]:
        try:
            with os.scandir(self.folder) as entries:
                return [(str(self.folder / entry.name), entry.inode()) for entry in entries if self._may_be(entry)]
        except FileNotFoundError:
            return []

    def _may_be(self, entry: os.DirEntry[str]) -> bool:
        name, mine = entry.name, self.location.name
        if self.location.is_dir():
            fits = not name.startswith(".")
        elif self.is_file:
            fits = name == mine or name.startswith((f"{mine}.", f"{mine}-"))
        else:
            fits = Path(name).match(mine)
        return fits and entry.is_file()

    def first_head(self) -> bytes:
        """Return the first `LOOK_BYTES` of the log's first file; empty if there is no file yet."""
        files = [self.named()] if self.is_file else self.listed()
        return self.head(files[0].path) if files else b""

    def head(self, path: Path) -> bytes:
        """Return the first `LOOK_BYTES` of a file, decompressed; empty if it cannot be read."""
        try:
            file = open_log(path)
        except OSError:
            return b""
        with closing(file):
            return first_bytes(file, LOOK_BYTES)

    def _begin(self, path: Path) -> float | None:
        head = self.head(path)
        begin = self._first_time(head)
        if begin is None and path == self.location and len(head) == LOOK_BYTES:
            return written(str(path)) / 1e9  # it is the log, whatever is wrong with it
        return begin


def first_bytes(file: IO[bytes], most: int) -> bytes:
    """Return the first bytes of a file that was just opened; of a damaged one the readable part."""
    head = b""
    with suppress(*BROKEN):
        while len(head) < most and (block := file.read(most - len(head))):
            head += block
    return head


def written(path: str) -> int:
    """Return when a file was last written, in nanoseconds; 0 if it is gone."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0
