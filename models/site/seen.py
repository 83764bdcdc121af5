"""Select the visible live jobs: all of them, or a sample of a long queue, so that the cost is bounded."""

from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from models.arrays import Floats, Ints
from models.kernels import njit
from models.records import JobKey

MOST_WAITING: Final = 4096  # maximum number of pending and held jobs without sampling

FIRST, LAST, MIDDLE = 512, 256, 1024
"""Sample of a longer queue: the first jobs, the last ones, and about `MIDDLE` random ones in between."""

PHASE: Final = 3
"""Mask of the phase (`models.site.table`) in a mark, the `PHASE_BITS` lowest bits; the others are the level."""

PHASE_BITS: Final = 2

_RUNNING: Final = 3
_GOLDEN: Final = 0x9E3779B1
_LEVELS: Final = 31


class VisibleRows(NamedTuple):
    """The visible rows of a table in their order, and the number of jobs that each represents.

    The sampled rows represent, all together, exactly the number of jobs between the first and the last ones.
    """

    rows: Ints
    stands_for: Floats
    whole: bool  # whether all jobs are visible

    @property
    def bound(self) -> str:
        """A note that this is a sample, to append to a reason; empty if all jobs are visible."""
        return "" if self.whole else f"; {len(self.rows):,} of {self.stands_for.sum():,.0f} live jobs used"


def level_of(key: JobKey) -> int:
    """Return the sampling level of a job; each level has half as many jobs as the one below.

    It is a hash of the job's key, so the same jobs are selected after a restart.
    """
    mixed = (crc32(key[0].encode()) + key[1]) * _GOLDEN & 0xFFFF_FFFF
    return min(32 - mixed.bit_length(), _LEVELS)


def see(marks: npt.NDArray[np.uint8], waiting: int) -> VisibleRows:
    """Select the visible rows by their phases and levels. O(rows).

    Args:
        marks: the phase and level of each row.
        waiting: number of rows that are pending or held.
    """
    if waiting <= MOST_WAITING:
        rows, stands_for = _all(marks)
        return VisibleRows(rows, stands_for, whole=True)
    middle = waiting - FIRST - LAST
    level = max((middle - 1).bit_length() - (MIDDLE - 1).bit_length(), 0)
    rows, stands_for = _see(marks, waiting, FIRST, LAST, level)
    return VisibleRows(rows, stands_for, whole=False)


def warm_up() -> None:
    """Compile the functions for long queues; the first event compiles those for short ones."""
    _see(np.ones(1, np.uint8), 1, 0, 0, 0)


@njit(cache=True, nogil=True)
def _all(marks: npt.NDArray[np.uint8]) -> tuple[Ints, Floats]:
    rows, count = np.empty(len(marks), np.int64), 0
    for row in range(len(marks)):
        rows[count] = row
        count += (marks[row] & PHASE) != 0
    return rows[:count].copy(), np.ones(count)


@njit(cache=True, nogil=True)
def _see(marks: npt.NDArray[np.uint8], waiting: int, first: int, last: int, level: int) -> tuple[Ints, Floats]:
    rows, middle = np.empty(len(marks), np.int64), np.zeros(len(marks), np.bool_)
    count, place, chosen = 0, 0, 0
    for row in range(len(marks)):
        phase = marks[row] & PHASE
        if phase == 0:
            continue
        between = phase != _RUNNING and first <= place < waiting - last
        place += phase != _RUNNING
        if between and (marks[row] >> PHASE_BITS) < level:
            continue
        rows[count], middle[count] = row, between
        chosen += between
        count += 1
    stands_for = np.ones(count)
    for number in range(count):
        if middle[number]:
            stands_for[number] = (waiting - first - last) / chosen
    return rows[:count].copy(), stands_for
