"""The fields of a line of LSF's files: strings in double quotes, which are doubled inside, and numbers."""

import csv
from collections.abc import Sequence

from streams.sources.logs.fields import MAX_SECONDS, BadRecord

csv.register_dialect("lsf", delimiter=" ", skipinitialspace=True)
_DIALECT = csv.get_dialect("lsf")  # made once: it takes as long as a short line


class LineFields:
    """The fields of a line, one after the other; what is missing or of another kind is told by number and name."""

    __slots__ = ("_next", "_tokens")

    def __init__(self, line: str) -> None:
        try:
            self._tokens: list[str] = next(csv.reader((line,), _DIALECT))
        except (csv.Error, StopIteration):
            raise BadRecord(None, repr(line[:40]), "fields of less than 128 KiB, parted by blanks") from None
        self._next = 0

    def skip(self, count: int = 1) -> None:
        """Pass over some."""
        self._next += count

    def text(self, name: str) -> str:
        """A string."""
        place = self._next
        self._next = place + 1
        try:
            return self._tokens[place]
        except IndexError:
            raise self._cut_short(place, name) from None

    def named(self, *names: str) -> dict[str, str]:
        """So many strings, by their names."""
        return {name: self.text(name) for name in names}

    def number(self, name: str) -> int:
        """A whole number."""
        place = self._next
        self._next = place + 1
        try:
            return int(self._tokens[place])
        except IndexError:
            raise self._cut_short(place, name) from None
        except ValueError:
            raise BadRecord(f"field {place + 1} ({name})", self._tokens[place], "a whole number") from None

    def numbers(self, names: Sequence[str]) -> list[int]:
        """So many whole numbers."""
        begin, count = self._next, len(names)
        try:
            values = list(map(int, self._tokens[begin : begin + count]))
        except ValueError:
            values = []
        if len(values) < count:
            return [self.number(name) for name in names]  # which tells the one that is wrong
        self._next = begin + count
        return values

    def count(self, name: str, most: int = 1_000_000) -> int:
        """How many of something follow."""
        value = self.number(name)
        if 0 <= value <= most:
            return value
        raise BadRecord(f"field {self._next} ({name})", value, f"a number of 0 to {most}")

    def time(self, name: str) -> float:
        """Unix seconds, 0 where it is unknown."""
        value = self.number(name)
        if 0 <= value <= MAX_SECONDS:
            return float(value)
        raise BadRecord(f"field {self._next} ({name})", value, "Unix seconds")

    def texts(self, name: str) -> list[str]:
        """Strings, after the number of them."""
        count, begin = self.count(name), self._next
        self._next += count
        if self._next > len(self._tokens):
            raise self._cut_short(self._next - 1, name)
        return self._tokens[begin : self._next]

    def is_text_next(self) -> bool:
        """Whether the next field is a string."""
        token = self._tokens[self._next] if self._next < len(self._tokens) else "0"
        return not token.lstrip("-").isdecimal()

    def skip_texts(self, most: int) -> None:
        """Pass over the strings that come next, so many at most."""
        for token in self._tokens[self._next : self._next + most]:
            if token.lstrip("-").isdecimal():
                return
            self._next += 1

    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self._next >= len(self._tokens)

    def _cut_short(self, place: int, name: str) -> BadRecord:
        return BadRecord(f"field {place + 1} ({name})", "", "this field; the line is cut short")
