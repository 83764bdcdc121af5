"""Which rows of sacct's text are of jobs that were over long ago: told by the days in them, before they are read.

A file without them is what `sacct` prints when it is asked for a later span of time.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping

from streams.sources.slurm.text import ColumnLayout

_DAY = re.compile(rb"\d{4}-\d\d-\d\d", re.ASCII)
_LENGTH = len("2024-05-01")


class RowDays:
    """The days of a file's rows. What is not surely a row with both is of no day. 1 µs a line.

    Parameters:
        first: the file's first line.
    """

    def __init__(self, first: bytes) -> None:
        layout = ColumnLayout(None)
        self._is_header = layout.read_header(first.decode("utf-8-sig", "replace").rstrip("\r\n"))
        columns = layout.columns
        self._separator, self._width = layout.separator.encode(), len(columns)
        self._has_both = "submit" in columns and "end" in columns
        if self._has_both:
            self._submit, self._end = columns.index("submit"), columns.index("end")
            self._job = columns.index("jobid" if "jobid" in columns else "jobidraw")

    def count(self, lines: Iterable[bytes]) -> Counter[bytes]:
        """How many jobs were submitted on each day; steps of jobs do not count."""
        days = Counter[bytes]()
        for line in lines:
            fields = line.split(self._separator)
            if self._has_both and len(fields) == self._width and b"." not in fields[self._job]:
                day = fields[self._submit][:_LENGTH]
                if day in days or _DAY.fullmatch(day):
                    days[day] += 1
        return days

    def is_within(self, line: bytes, days: Container[bytes]) -> bool:
        """Whether a job was submitted and has ended on some of these days."""
        fields = line.split(self._separator)
        if not self._has_both or len(fields) != self._width:
            return False
        return fields[self._submit][:_LENGTH] in days and fields[self._end][:_LENGTH] in days


def days_before(days: Mapping[bytes, int], jobs: int) -> frozenset[bytes]:
    """The days before those on which the last so many jobs, or more, were submitted."""
    left, old = jobs, set[bytes]()
    for day in sorted(days, reverse=True):
        if left <= 0:
            old.add(day)
        left -= days[day]
    return frozenset(old)
