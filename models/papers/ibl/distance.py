"""Attributes of jobs and states (Li, Groep and Wolters 2005, section 3), and their extended HEOM distance (4.1.1).

As printed, overlap(x, y) is 0 for values that differ, and the sum of the vectors' distance lacks the absolute value;
both are corrected here. Two vectors without any job in them are equal. Ranges of scalars are those of the jobs compared
with, the new one included, so that every distance is within 0 and 1.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from models.arrays import Floats
from models.durations import DAY_S
from models.kernels import njit
from models.method import SiteContext
from models.site.job import Job, Phase

Ints = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]
UNKNOWN = -1  # number of a nominal value, or of a state's categories, that is missing
UNSEEN = -2  # number of a nominal value that no job compared with has


class Point(NamedTuple):
    """A job to compare: its nominal (a) and numeric (b) attributes, free CPUs (0 or 1), and vectors.

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

    Args:
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
    """Return the range of each column's values that are not NaN, `point` included."""
    low, high = point.copy(), point.copy()
    for column in range(len(point)):
        for number in range(first, last):
            value = columns[number % len(columns), column]
            if not low[column] <= value:  # also if there is none yet
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
                difference[a] += abs(x - y) - x  # the totals contain x already
                amount[a] += y
        for a in range(vectors):
            if amount[a] > 0.0:
                total += (difference[a] / amount[a]) ** 2
    attributes = len(point.free) + vectors
    return math.sqrt(total / attributes) if attributes else 0.0


JobAttribute = Literal["group", "user", "executable", "queue", "cpus", "walltime", "time_of_day"]
PolicyAttribute = Literal["group", "user", "queue"]
StateAttribute = Literal[
    "free_cpus",
    "running_jobs",
    "queued_jobs",
    "running_elapsed",
    "running_remaining",
    "queued_elapsed",
    "queued_demand",
]

JOB: tuple[JobAttribute, ...] = get_args(JobAttribute)  # Table 1, and the queue. All are nominal but the last two.
POLICY: tuple[PolicyAttribute, ...] = get_args(PolicyAttribute)  # table 2

STATE: tuple[StateAttribute, ...] = get_args(StateAttribute)
"""Table 3, in its order: all but the first are vectors by category; the last four are CPU-seconds."""

NOMINAL = JOB[:5]
NUMERIC = JOB[5:]
VECTORS = STATE[1:]

MAX_EXACT_INTEGER = 2**53  # values are whole and at most this, so that floats represent them, and sums of them, exactly
Category = tuple[str | None, ...]  # a job's values of the policy attributes, in the order of `POLICY`


class Request(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job by its own attributes; `walltime` and `time_of_day` (UTC) are in seconds."""

    group: str | None
    user: str | None
    executable: str | None
    queue: str | None
    cpus: int
    walltime: float | None
    time_of_day: float


class CategoryState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The running and queued jobs at a submission, by category; `values` has `VECTORS` of each of `categories`."""

    policy: tuple[PolicyAttribute, ...]
    free_cpus: int | None
    categories: list[Category]
    values: list[list[int]]

    def merged(self, policy: tuple[PolicyAttribute, ...]) -> "CategoryState":
        """The same state by fewer policy attributes.

        >>> values = [[1, 0, 9, 9, 0, 0], [1, 2, 1, 1, 8, 8]]
        >>> state = CategoryState(("group", "user"), 3, [("g", "ada"), ("g", "bob")], values)
        >>> state.merged(("group",)).values
        [[2, 2, 10, 10, 8, 8]]
        """
        places = [self.policy.index(attribute) for attribute in policy]
        sums: dict[Category, list[int]] = {}
        for category, values in zip(self.categories, self.values, strict=True):
            fewer = tuple(category[place] for place in places)
            sums[fewer] = [a + b for a, b in zip(sums.get(fewer, [0] * len(VECTORS)), values, strict=True)]
        return CategoryState(policy, self.free_cpus, list(sums), list(sums.values()))


class Instance(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A job to compare: its request and, for waits, the site's state at its submission."""

    request: Request
    state: CategoryState | None = None


def request_of(job: Job) -> Request:
    """The job's own attributes."""
    walltime = job.walltime or None
    return Request(job.group, job.user, job.executable, job.queue, job.cpus, walltime, job.submit % DAY_S)


def state_of(context: SiteContext, now: float, policy: Sequence[PolicyAttribute] = POLICY) -> CategoryState:
    """Return the state at `now`, categorised by `policy`; O(live jobs).

    The run times of live jobs are those that the site's method for run times predicted.
    """
    by = tuple(attribute for attribute in POLICY if attribute in policy)
    sums: dict[Category, list[int]] = {}
    busy = 0
    for job in context.state.jobs.values():
        if job.phase is not Phase.RUNNING and job.phase is not Phase.QUEUED:
            continue
        category = tuple([getattr(job, attribute) for attribute in by])
        values = sums.get(category)
        if values is None:
            values = sums[category] = [0] * len(VECTORS)
        cpus = job.counted_cpus
        expected_s = job.planned_run_s if job.run_s is None else job.run_s
        if job.start is not None:
            elapsed_s = job.ran_s(now)
            busy += cpus
            values[0] += 1
            values[2] += round(cpus * elapsed_s)
            values[3] += round(cpus * max(expected_s - elapsed_s, 0.0))
        else:
            values[1] += 1
            values[4] += round(cpus * max(now - job.submit, 0.0))
            values[5] += round(cpus * expected_s)
    free = max(context.cpus - busy, 0) if context.cpus else None
    return CategoryState(
        by, free, list(sums), [[min(value, MAX_EXACT_INTEGER) for value in values] for values in sums.values()]
    )
