"""Rows of a table that belong together: several attempts at one job, and the steps of one.

A table has a row for each attempt where its jobs were requeued, and a row for each step where sacct wrote it. Which
rows these are shows only when all were read, so the table is read twice.
"""

import re
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_STEP = re.compile(r"(.+)\.(batch|extern|interactive|\d+)")
_NAMED_STEPS = frozenset({"batch", "extern", "interactive"})


class RowKey(NamedTuple):
    """One row of a job: the cell that names it as it stands, the name, and its times in Unix seconds."""

    raw: str
    job: str
    submit: float
    start: float | None
    end: float | None


class Place(NamedTuple):
    """Place of a row among those of its job.

    Attributes:
        job: the name of the job in events.
        attempt: number of the attempt.
        since: when the previous attempt ended, Unix seconds; 0 for the first.
    """

    job: str
    attempt: int = 0
    since: float = 0.0


class Attempts:
    """Places of the rows whose jobs have several; 8 bytes a row, and more for these."""

    def __init__(self, keys: Iterable[RowKey], again: Iterable[RowKey]) -> None:
        """Read the rows twice: `keys` shows which jobs repeat, `again` contains their rows."""
        names = array("q")
        cells = array("q")
        for key in keys:
            names.append(hash(key.job))
            cells.append(hash(key.raw))
        self._cells = np.unique(np.frombuffer(cells, np.int64))
        found, counts = np.unique(np.frombuffer(names, np.int64), return_counts=True)
        repeated = frozenset(found[counts > 1].tolist())
        rows: dict[str, list[RowKey]] = {}
        for key in again if repeated else ():
            if hash(key.job) in repeated and not self.is_step(key.raw):
                rows.setdefault(key.job, []).append(key)
        self._places: dict[RowKey, Place] = {}
        for job, those in rows.items():
            self._places.update(_placed(job, sorted(set(those), key=_turn)))

    def is_step(self, raw: str) -> bool:
        """Check if a row is a job step: `7.batch`, or `7.0` if the table has the job `7` too."""
        found = _STEP.fullmatch(raw)
        if found is None:
            return False
        if found[2] in _NAMED_STEPS:
            return True
        place = np.searchsorted(self._cells, hash(found[1]))
        return bool(place < len(self._cells) and self._cells[place] == hash(found[1]))

    def place(self, key: RowKey) -> Place:
        """Return the place of a row."""
        return self._places.get(key) or Place(key.job)


def _turn(key: RowKey) -> tuple[float, float]:
    return (key.submit, key.start or key.end or 0.0)


def _placed(job: str, rows: list[RowKey]) -> Iterable[tuple[RowKey, Place]]:
    """Rows that follow each other are attempts; one that overlaps those before it is a job of its own."""
    others, attempt, since, seen = 0, 0, 0.0, False
    for row in rows:
        first_time = row.start or row.end or row.submit
        if seen and first_time < since:
            others += 1
            yield row, Place(f"{job}#{others}")
            continue
        yield row, Place(job, attempt, since)
        attempt, since, seen = attempt + 1, row.end or row.start or row.submit, True
        if row.end is None:
            since = float("inf")  # it runs on: what else there is of this name is another job
