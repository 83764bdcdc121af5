"""Detection of rows in sacct's text whose jobs ended long ago, from their dates, before the rows are parsed.

A file without these rows equals the output of `sacct` for a later time span, with one exception. The rows of a job or
array are kept or skipped together: the earlier rows show the number of requeues, or the tasks that have left.
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
MORE_NUMBERS = 10_000  # additional job numbers stored before those of old jobs are dropped


class DayCounts(NamedTuple):
    """Number of jobs submitted on each day, and the last day in the rows of each job that may be needed."""

    days: Counter[bytes]
    last: dict[bytes, bytes]


class OldRows(NamedTuple):
    """Rows to skip: those whose dates are all before this day, except jobs and arrays with these numbers."""

    before: bytes = b""
    kept: frozenset[bytes] = frozenset()


NO_ROWS = OldRows()


class RowDays:
    """The dates of a file's rows, whose first line is `first`."""

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
        """Count the jobs of each day if the last `jobs` are needed; an array counts once.

        Memory grows with the needed jobs only: the first needed submission day never moves back.
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
        """Check if a row is to be skipped. A row without two valid dates is kept."""
        fields = line.split(self._separator)
        if not self._has_both or len(fields) != self._width:
            return False
        last = max(_day(fields[self._submit][:_LENGTH]), _day(fields[self._end][:_LENGTH]))
        return last < old.before and _number(fields[self._job]) not in old.kept


@lru_cache(MORE_NUMBERS)
def _day(text: bytes) -> bytes:
    return text if _DAY.fullmatch(text) else _NO_DAY


def _number(job: bytes) -> bytes:
    """Return the number of a job, its array, and its steps: 20 of `20_[1-9]` and `20.batch`."""
    found = _NUMBER.match(job)
    return job if found is None else found[0]


def first_needed(days: Mapping[bytes, int], jobs: int) -> bytes:
    """Return the day since which at least the last `jobs` jobs were submitted; empty if all are needed."""
    remaining = jobs
    for day in sorted(days, reverse=True)[:-1]:
        remaining -= days[day]
        if remaining <= 0:
            return day
    return b""


def old_rows(found: Iterable[DayCounts], jobs: int) -> tuple[OldRows, int]:
    """Return the old rows of files that may overlap if the last `jobs` jobs are needed, and the number of all jobs.

    For each day, the file with the most jobs counts.
    """
    found, most = list(found), Counter[bytes]()
    for one in found:
        most |= one.days
    before = first_needed(most, jobs)
    kept = frozenset(number for one in found for number, day in one.last.items() if day >= before)
    return OldRows(before, kept), most.total()
