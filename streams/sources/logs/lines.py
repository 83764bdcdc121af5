"""The lines of a log, read to its end or followed while it grows.

Handling of a log that is followed:

- **Incomplete line.** The reader waits for its end. In a rotated file it counts as it is.
- **Rotation.** A file is read to its end, then the one that began after it, until the newest. So reading resumes at the
  right place under any file name, compressed or not, and after any number of rotations.
- **Truncation.** A file that is shorter than the part already read, or begins differently, is a new one. The unread
  rest is searched in a copy, as `copytruncate` of logrotate leaves it; without a copy the loss is reported.
- **Overlong line.** A line longer than `MAX_LINE_BYTES` is reported and not kept in memory.
"""

import os
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Annotated

import msgspec
from msgspec import Meta

from streams.errors import BROKEN_ZIP, UserError
from streams.sources.contract import OnSkipped, SkippedPart
from streams.sources.logs.log_files import (
    BROKEN,
    HEAD_BYTES,
    LogFile,
    LogFiles,
    fingerprint,
    first_bytes,
    is_zipped,
    open_log,
)

MAX_LINE_BYTES = 4 << 20  # the longest line; the processors of a job on a large machine can make some megabytes
BLOCK_BYTES = 1 << 18

_TOO_LONG = (f"a line of more than {MAX_LINE_BYTES} bytes", "a record")


class LinePosition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place in a log: `byte` of a file, uncompressed, after line `line`.

    The file is identified by its inode, and by the fingerprint `head` of the first bytes that were read. `begin` is the
    time of its first record. `cut` is True in the middle of an overlong line.
    """

    file: str
    inode: Annotated[int, Meta(ge=0)]
    head: str
    begin: float | None = None
    byte: Annotated[int, Meta(ge=0)] = 0
    line: Annotated[int, Meta(ge=0)] = 0
    cut: bool = False


class LineReader:
    """One pass over a log, line by line; `line` is the number of the last yielded line, from 1."""

    def __init__(self, files: LogFiles, on_skipped: OnSkipped, follow: bool, pause_s: float = 1.0) -> None:
        """Prepare reading; no file is opened yet.

        Args:
            files: the files of the log.
            on_skipped: receives each skipped part.
            follow: follow the log without end; otherwise read to its present end, of one file if the location is a
                file.
            pause_s: seconds between two polls.
        """
        self._files, self._on_skipped, self._follow, self._pause_s = files, on_skipped, follow, pause_s
        self._at = LogFile(files.location, 0, None)
        self._open: IO[bytes] | None = None
        self._zipped = False
        self._head, self._rest = b"", b""
        self._fingerprint: str | None = None
        self._byte = 0
        self._cut = self._broken = False
        self.line = 0

    @property
    def path(self) -> Path:
        """The current file."""
        return self._at.path

    def place(self) -> LinePosition:
        """Return the place after the last yielded line."""
        head = self._fingerprint
        if head is None:
            head = fingerprint(self._head[: self._byte])
            self._fingerprint = head if self._byte >= HEAD_BYTES else None
        path, inode, begin = self._at
        return LinePosition(
            file=path.name, inode=inode, head=head, begin=begin, byte=self._byte, line=self.line, cut=self._cut
        )

    def read(self, place: LinePosition | None = None) -> Iterator[bytes | None]:
        """Yield the lines after a place, without their ends; None if there is nothing new now.

        A reader that follows a log without a place gets None first, to save the place of the beginning.

        Raises:
            UserError: a file can no longer be read.
        """
        try:
            self._begin(place)
            if place is None and self._follow:
                yield None  # with the place of the beginning, which is known again after a rotation
            while True:
                yield from self._whole_lines()
                if self._truncated():
                    self._restart()
                    continue
                later = self._later()
                if later is not None or not self._follow or self._zipped:
                    yield from self._whole_lines()  # what came between the two looks
                    yield from self._last_line()
                if later is not None:
                    self._enter(later)
                elif not self._follow:
                    return
                else:
                    yield None
                    time.sleep(self._pause_s)
        finally:
            self._close()

    def _whole_lines(self) -> Iterator[bytes]:
        if self._open is not None and not self._zipped:
            self._rest = b""
            self._open.seek(self._byte)
        while block := self._block():
            *whole, self._rest = (self._rest + block).split(b"\n")
            for raw in whole:
                self._byte += len(raw) + 1
                self.line += 1
                if self._cut:
                    self._cut = False
                elif len(raw) > MAX_LINE_BYTES:
                    self._report_loss(self.line, *_TOO_LONG)
                else:
                    yield raw
            if self._cut or len(self._rest) > MAX_LINE_BYTES:
                self._drop_rest()

    def _drop_rest(self) -> None:
        """Drop the beginning of an overlong line; the rest of it is skipped when it arrives."""
        if not self._cut:
            self._report_loss(self.line + 1, *_TOO_LONG)
        self._cut = True
        self._byte += len(self._rest)
        self._rest = b""

    def _last_line(self) -> Iterator[bytes]:
        """Yield the unterminated last line of a file that is complete."""
        rest, self._rest = self._rest, b""
        if rest or self._cut:
            self._byte += len(rest)
            self.line += 1
            if not self._cut and not self._broken:
                yield rest
            self._cut = False

    def _block(self) -> bytes:
        if self._open is None or self._truncated():
            return b""
        try:
            block = self._open.read(BLOCK_BYTES)
        except BROKEN as error:
            if not self._zipped:
                raise UserError(f"{self.path}: can no longer be read: {error}") from None
            if not self._broken:
                self._report_loss(self.line + 1, BROKEN_ZIP, "a whole one")
            self._broken = True
            return b""
        if len(self._head) < HEAD_BYTES:
            self._head = (self._head[: self._byte + len(self._rest)] + block)[:HEAD_BYTES]
        return block

    def _begin(self, place: LinePosition | None) -> None:
        if place is not None and place.inode:  # else nothing was there yet
            self._reopen(place)
        elif self._files.is_file:
            self._enter(self._files.named())
        elif first := next(iter(self._files.listed()), None):
            self._enter(first)

    def _reopen(self, place: LinePosition) -> None:
        """Open the file of a place and seek there; if it is gone, report it and start with the oldest later file."""
        files = self._files.listed()
        if self._files.is_file:
            files.append(self._files.named())
        files.sort(key=lambda file: (file.inode != place.inode, file.path.name != place.file))
        if any(self._found_in(file, place) for file in files):
            return
        self._at = LogFile(self._files.folder / place.file, 0, place.begin)
        self._report_loss(place.line, "the file is gone, and there is no copy of it", "its unread rest")
        later = self._later()
        if later is None and self._files.is_file:
            later = self._files.named()
        if later is not None:
            self._enter(later)

    def _found_in(self, file: LogFile, place: LinePosition) -> bool:
        """Resume in a file at a place, if the place is of this file."""
        if place.byte == 0 and file.inode != place.inode and (place.begin is None or file.begin != place.begin):
            return False  # nothing of it was read that it could be known by
        try:
            found = open_log(file.path)
        except OSError:
            return False
        head = first_bytes(found, min(place.byte, HEAD_BYTES))
        with suppress(*BROKEN):
            if fingerprint(head) == place.head and _has(found, place.byte):
                self._take(file, found)
                self._head, self._byte, self.line, self._cut = head, place.byte, place.line, place.cut
                return True
        found.close()
        return False

    def _enter(self, file: LogFile) -> None:
        """Continue with the beginning of another file, unless it has been moved since it was listed."""
        with suppress(OSError):
            found = open_log(file.path)
            if file.inode in (0, os.fstat(found.fileno()).st_ino):
                self._take(file, found)
            else:
                found.close()

    def _take(self, file: LogFile, found: IO[bytes]) -> None:
        self._close()
        self._open, self._zipped = found, is_zipped(found)
        self._at = file._replace(inode=os.fstat(found.fileno()).st_ino)
        self._at_beginning()

    def _at_beginning(self) -> None:
        self._head, self._rest, self._fingerprint = b"", b"", None
        self._byte, self.line, self._cut, self._broken = 0, 0, False, False

    def _truncated(self) -> bool:
        """Check if the file now has other content under the same inode."""
        read = self._byte + len(self._rest)
        if self._open is None or self._zipped or not read:
            return False
        head = self._head[:read]
        return not _has(self._open, read) or os.pread(self._open.fileno(), len(head), 0) != head

    def _restart(self) -> None:
        """Continue in a copy of the file made before its truncation, else at its new beginning."""
        before = self.place()
        if any(file.inode != before.inode and self._found_in(file, before) for file in self._files.listed()):
            return
        self._at_beginning()
        self._report_loss(before.line, "the file was truncated, and there is no copy of it", "its unread rest")

    def _later(self) -> LogFile | None:
        files = self._files.listed()
        places = [place for place, file in enumerate(files) if file.inode == self._at.inode]
        if places and self._open is not None:
            self._at = files[places[-1]]
            files = files[places[-1] + 1 :]
        elif self._at.begin is None:
            files = files[-1:] if self._files.is_file else files
        else:
            files = [file for file in files if file.begin is not None and file.begin >= self._at.begin]
        return next((file for file in files if not self._is_copy(file)), None)

    def _is_copy(self, file: LogFile) -> bool:
        """Check if a file is a copy of the current one: it was compressed, and the original is not removed yet."""
        head = self._head[: self._byte]
        if not head or file.begin != self._at.begin:
            return False
        try:
            other = open_log(file.path)
        except OSError:
            return True  # gone again
        with closing(other):
            return first_bytes(other, len(head)) == head

    def _report_loss(self, line: int, found: str, expected: str) -> None:
        self._on_skipped(SkippedPart(str(self.path), line, None, found, expected))

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _has(file: IO[bytes], byte: int) -> bool:
    """Check that a file has at least this many bytes, and seek there."""
    if not is_zipped(file):
        return os.fstat(file.fileno()).st_size >= byte and file.seek(byte) == byte
    return bool(file.seek(byte) == byte)
