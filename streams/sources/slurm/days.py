"""Which rows of sacct's text are of jobs that were over long ago: told by the days in them, before they are read.

A file without them is what `sacct` prints when it is asked for a later span of time; but all rows of a job, and of an
array, are there or none: the sooner ones tell how often it was requeued, or which of its tasks have left.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from streams.sources.slurm.text import ColumnLayout

_DAY = re.compile(rb"\d{4}-\d\d-\d\d", re.ASCII)
_LENGTH = len("2024-05-01")
_NUMBER = re.compile(rb"\d+", re.ASCII)
_NO_DAY = b"~"  # of a row of a job that has not ended, or is no plain one: later than any day
MORE_NUMBERS = 10_000  # so many more numbers are noted before those are dropped that turned out to be of old jobs


class DayCounts(NamedTuple):
    """How many jobs were submitted on each day, and of the jobs that may be needed their numbers with the last day in
    their rows.
    """

    days: Counter[bytes]
    last: dict[bytes, bytes]


class OldRows(NamedTuple):
    """Rows that are passed over: those with days before this one alone, but of jobs and arrays of these numbers."""

    before: bytes = b""
    kept: frozenset[bytes] = frozenset()


NO_ROWS = OldRows()


class RowDays:
    """The days of a file's rows, of which `first` is the first line."""

    def __init__(self, first: bytes) -> None:
        layout = ColumnLayout(None)
        self._is_header = layout.read_header(first.decode("utf-8-sig", "replace").rstrip("\r\n"))
        columns = layout.columns
        self._separator, self._width = layout.separator.encode(), len(columns)
        self._has_both = "submit" in columns and "end" in columns
        if self._has_both:
            self._submit, self._end = columns.index("submit"), columns.index("end")
            self._job = columns.index("jobid" if "jobid" in columns else "jobidraw")

    def count(self, lines: Iterable[bytes], jobs: int) -> DayCounts:
        """The jobs of each day, where the last so many are needed; an array counts once. 2 µs a line.

        Memory is that of the jobs that are needed: the day since which they were submitted only moves on.
        """
        days, last, most = Counter[bytes](), dict[bytes, bytes](), MORE_NUMBERS
        for line in lines:
            fields = line.split(self._separator)
            if not self._has_both or len(fields) != self._width or b"." in fields[self._job]:
                continue
            submit, end = _day(fields[self._submit][:_LENGTH]), _day(fields[self._end][:_LENGTH])
            number = _number(fields[self._job])
            if submit != _NO_DAY and number not in last:
                days[submit] += 1
            last[number] = max(submit, end, last.get(number, b""))
            if len(last) > most:
                before = first_needed(days, jobs)
                last = {number: day for number, day in last.items() if day >= before}
                most = 2 * len(last) + MORE_NUMBERS
        return DayCounts(days, last)

    def is_old(self, line: bytes, old: OldRows) -> bool:
        """Whether a row is passed over. What is not surely a row with both days is not. 1 µs."""
        fields = line.split(self._separator)
        if not self._has_both or len(fields) != self._width:
            return False
        last = max(_day(fields[self._submit][:_LENGTH]), _day(fields[self._end][:_LENGTH]))
        return last < old.before and _number(fields[self._job]) not in old.kept


@lru_cache(MORE_NUMBERS)
def _day(text: bytes) -> bytes:
    return text if _DAY.fullmatch(text) else _NO_DAY


def _number(job: bytes) -> bytes:
    """The number that a job has, its array, and its steps: 20 of `20_[1-9]` and `20.batch`."""
    found = _NUMBER.match(job)
    return job if found is None else found[0]


def first_needed(days: Mapping[bytes, int], jobs: int) -> bytes:
    """The day since which the last so many jobs were submitted, or more; empty where these are all."""
    left = jobs
    for day in sorted(days, reverse=True)[:-1]:
        left -= days[day]
        if left <= 0:
            return day
    return b""


def old_rows(found: Iterable[DayCounts], jobs: int) -> tuple[OldRows, int]:
    """Which rows of files that may overlap are old, where the last so many jobs are needed; and how many there are.

    Of a day, the file counts that tells of most jobs.
    """
    found, most = list(found), Counter[bytes]()
    for one in found:
        most |= one.days
    before = first_needed(most, jobs)
    kept = frozenset(number for one in found for number, day in one.last.items() if day >= before)
    return OldRows(before, kept), most.total()
