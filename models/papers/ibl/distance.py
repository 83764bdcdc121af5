"""The extended HEOM distance (Li, Groep and Wolters 2005, section 4.1.1), and the nearest jobs by it.

As printed, overlap(x, y) is 0 for values that differ, and the sum of the vectors' distance lacks the absolute value;
both are put right here. Two vectors without any job in them are equal. Ranges of scalars are those of the jobs compared
with, the new one included, so that every distance is within 0 and 1.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from models.arrays import Floats

Ints = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

UNKNOWN = -1
"""Number of a nominal value, or of a state's categories, that is not known."""

UNSEEN = -2
"""Number of a nominal value that no job compared with has."""


class Point(NamedTuple):
    """A job to compare: its nominal (a) and numeric (b) attributes, free processors (0 or 1), and vectors.

    `vectors` is (categories, s); `totals` (s) are sums over the categories, also those that no job compared with has.
    Unknown numbers are NaN.
    """

    nominal: Ints
    numeric: Floats
    free: Floats
    known: bool
    vectors: Floats
    totals: Floats


class Columns(NamedTuple):
    """n jobs to compare with: as `Point`, with the n jobs along the first axis.

    The vectors of job i are `vectors[begin[i]:begin[i] + entries[i]]`, of the categories in `category` there;
    `entries[i]` is `UNKNOWN` where its state is. `value` (n) is what is predicted, in seconds.
    """

    nominal: Ints
    numeric: Floats
    free: Floats
    begin: Places
    entries: Ints
    category: Ints
    vectors: Floats
    value: Floats


@njit(cache=True, nogil=True)
def nearest(
    point: Point, columns: Columns, first: int, last: int, most: int, job_share: float, above: float
) -> tuple[Places, Floats]:
    """The places of the `most` nearest jobs, the nearest first, and their distances; of equals the latest.

    Parameters:
        first, last: numbers of the oldest job compared with and of the one after the latest; number i is at place
            i modulo n.
        job_share: the paper's WA: the distance is job_share · (jobs' distance) + (1 - job_share) · (states').
        above: only jobs whose value is greater count.
    """
    size = len(columns.value)
    span = _extents(point.numeric, columns.numeric, first, last)
    free_span = _extents(point.free, columns.free, first, last)
    difference, amount = np.empty(len(point.totals)), np.empty(len(point.totals))
    places, found = np.empty(most, np.int64), np.empty(most)
    count = 0
    for number in range(last - 1, first - 1, -1):
        i = number % size
        if columns.value[i] <= above:
            continue
        distance = job_share * _job_distance(point, columns, i, span)
        if count == most and distance >= found[count - 1]:
            continue
        if job_share < 1.0:
            distance += (1.0 - job_share) * _state_distance(point, columns, i, free_span, difference, amount)
            if count == most and distance >= found[count - 1]:
                continue
        at = count if count < most else most - 1
        while at > 0 and found[at - 1] > distance:
            found[at], places[at] = found[at - 1], places[at - 1]
            at -= 1
        found[at], places[at] = distance, i
        count = min(count + 1, most)
    return places[:count], found[:count]


@njit(cache=True)
def _extents(point: Floats, columns: Floats, first: int, last: int) -> Floats:
    """The range of each column's known values, those of `point` among them."""
    low, high = point.copy(), point.copy()
    for column in range(len(point)):
        for number in range(first, last):
            value = columns[number % len(columns), column]
            if not low[column] <= value:  # also where there is none yet
                low[column] = value if not math.isnan(value) else low[column]
            if not high[column] >= value:
                high[column] = value if not math.isnan(value) else high[column]
    return high - low


@njit(cache=True)
def _scalar(x: float, y: float, extent: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return 1.0
    return abs(x - y) / extent if extent > 0.0 else 0.0


@njit(cache=True)
def _job_distance(point: Point, columns: Columns, i: int, span: Floats) -> float:
    """HEOM over the job attributes; 0 where there is none."""
    total = 0.0
    for a in range(len(point.nominal)):
        if point.nominal[a] < 0 or point.nominal[a] != columns.nominal[i, a]:
            total += 1.0
    for a in range(len(point.numeric)):
        total += _scalar(point.numeric[a], columns.numeric[i, a], span[a]) ** 2
    attributes = len(point.nominal) + len(point.numeric)
    return math.sqrt(total / attributes) if attributes else 0.0


@njit(cache=True)
def _state_distance(point: Point, columns: Columns, i: int, span: Floats, difference: Floats, amount: Floats) -> float:
    """HEOM over the state attributes; 0 where there is none. `difference` and `amount` (s) are overwritten."""
    vectors = len(point.totals)
    total = 0.0
    for a in range(len(point.free)):
        total += _scalar(point.free[a], columns.free[i, a], span[a]) ** 2
    if not point.known or columns.entries[i] < 0:
        total += vectors
    else:
        for a in range(vectors):
            difference[a] = amount[a] = point.totals[a]
        begin = columns.begin[i]
        for entry in range(begin, begin + columns.entries[i]):
            category = columns.category[entry]
            for a in range(vectors):
                x, y = point.vectors[category, a], columns.vectors[entry, a]
                difference[a] += abs(x - y) - x  # the totals have x already
                amount[a] += y
        for a in range(vectors):
            if amount[a] > 0.0:
                total += (difference[a] / amount[a]) ** 2
    attributes = len(point.free) + vectors
    return math.sqrt(total / attributes) if attributes else 0.0
