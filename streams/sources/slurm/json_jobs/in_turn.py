"""The jobs of an answer as JSON one after the other: it may be too long for memory, or break off."""

import json
import re
from collections.abc import Iterable, Iterator

import msgspec

MAX_BYTES = 16 << 20
"""What stands before, between and after the jobs, and a job itself, are not longer."""

_JOBS = re.compile(r'"jobs"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*+")
_decode = json.JSONDecoder(strict=False).raw_decode


class JobsInTurn:
    """Gives each whole job as JSON; 50 µs a job of 6 KB.

    Parameters:
        parts: the document.

    Attributes:
        jobs: how many were given.
        end, lines: the bytes and the line ends before the place up to which it is whole.
        is_whole: whether that is its end.
    """

    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = iter(parts)
        self._text, self._place = "", 0  # a character is a byte, whatever it is: JSON's own are ASCII
        self._before, self._lines_before = 0, 0
        self.jobs = 0
        self.is_whole = False

    @property
    def end(self) -> int:
        """See above."""
        return self._before + self._place

    @property
    def lines(self) -> int:
        """See above."""
        return self._lines_before + self._text.count("\n", 0, self._place)

    def __iter__(self) -> Iterator[bytes]:
        while (begun := _JOBS.search(self._text)) is None:
            if not self._grow():
                self._place = len(self._text)
                return
        self._place = begun.end()
        while (job := self._next()) is not None:
            self.jobs += 1
            yield job
        self.is_whole = self._ends()

    def _next(self) -> bytes | None:
        """The next job; None where there is no further one that is whole."""
        while True:
            found = _BETWEEN.match(self._text, self._place)
            assert found is not None  # nothing matches too
            self._place = found.end()
            if self._place < len(self._text) or not self._grow():
                break
        while self._text.startswith("{", self._place):
            try:
                _, end = _decode(self._text, self._place)
            except (ValueError, RecursionError):
                if self._grow():
                    continue
                return None
            begin, self._place = self._place, end
            return self._text[begin:end].encode("latin-1")
        return None

    def _ends(self) -> bool:
        """Whether what comes after the jobs is the end of a document."""
        while self._grow():
            pass
        try:
            msgspec.json.decode(f'{{"jobs":[{self._text[self._place :]}'.encode("latin-1"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        return True

    def _grow(self) -> bool:
        """Read on, unless there is nothing more, or too much that nothing was found in."""
        if len(self._text) - self._place > MAX_BYTES or (part := next(self._parts, None)) is None:
            return False
        self._before, self._lines_before = self.end, self.lines
        self._text, self._place = self._text[self._place :] + part.decode("latin-1"), 0
        return True
