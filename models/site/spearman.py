"""Spearman's rank correlation of features with a target over a sliding window, exact and incremental.

Murali & Vadhiyar 2015, section 3.2.3, weigh a feature by the absolute value of its rank correlation with the wait. They
recompute it whenever a job enters the history and the oldest leaves it. Sorting all columns each time is slow; this
module updates them row by row, with the same result.

**The idea.** A rank is a sum of comparisons. Among n values let

    s_i = Σ_j sign(x_i - x_j) = (number of smaller values) - (number of greater values)

Then s_i = 2·rank_i - (n + 1), where ties share their average rank: twice the rank less twice the mean rank. When v
enters the window and u leaves it, every other s_i changes by sign(x_i - v) - sign(x_i - u). That is -2, -1, 0, 1 or 2:
four comparisons and no sorting. The s_i sum to zero, so the s_i of the new value follows from the others. With t_i the
same for the target, Spearman's coefficient is Pearson's of the ranks, and factor and mean cancel:

    ρ = Σ s_i·t_i / √(Σ s_i² · Σ t_i²)

**The cost.** A push passes over n rows for each of d features and the target: O(d·n), in contiguous memory and without
branches, so it is vectorised. If the only minimum or maximum of a column leaves, the column is searched for the next
one. At worst, with all columns rising or falling, this doubles the cost. Memory: 12 bytes per value. Rebuilding from
stored rows sorts: O(d·n·log n).

**Why it is exact.** The s_i and the three sums are integers, which neither round nor drift: after a million rows they
are identical to those of a fresh sort. Only the last formula rounds, once per operation. Σ s_i² is largest without
ties, n(n² - 1)/3, and is an upper bound for |Σ s_i·t_i| and every partial sum. A window for which it might not fit into
64 bits is refused (`MAX_WINDOW_ROWS`).

>>> window = RollingSpearman(features=2, size=3)
>>> for wait, (queued, hour) in enumerate([(9, 9), (1, 9), (1, 7), (4, 5)]):
...     window.push([queued, hour], wait)
>>> window.correlations.round(3)  # of the last three: the queue grows with the wait (with a tie), the hour falls
array([ 0.866, -1.   ])
"""

from typing import Final, Self

import numpy as np
import numpy.typing as npt

from models.arrays import Floats, Ints
from models.kernels import njit

Ranks = npt.NDArray[np.int32]

UNREAD_ROWS = 600
"""Number of rows pushed without a read, after which pushes no longer update the ranks; the next read sorts instead.
This speeds up ingesting a history."""

MAX_WINDOW_ROWS = 3_024_616  # the most rows for which n(n² - 1)/3 fits into a signed 64-bit integer


class RollingSpearman:
    """Rank correlation of each of `features` columns with a target, over the last `size` rows.

    Values must be finite; -0.0 is stored as 0.0. An invalid row raises ValueError and leaves the window unchanged.
    `from_rows` rebuilds a window from stored rows, with identical correlations.
    """

    def __init__(self, features: int, size: int = 6000) -> None:
        """Create an empty window; 6000 rows is the history of the paper's section 5.

        Raises:
            ValueError: there are no features, or the size is not within 2 and `MAX_WINDOW_ROWS`.
        """
        if features < 1:
            raise ValueError(f"{features} features; expected at least one")
        if not 2 <= size <= MAX_WINDOW_ROWS:
            raise ValueError(f"window size {size}; expected 2 to {MAX_WINDOW_ROWS} rows")
        self.features: Final = features
        self.size: Final = size
        # One array row per column, the target last; the system allocates memory as the slots are filled.
        self._columns: Floats = np.empty((features + 1, size))
        self._ranks: Ranks = np.zeros((features + 1, size), np.int32)
        self._sums: Ints = np.zeros((2, features + 1), np.int64)  # Σ s_i·t_i and Σ s_i²
        self._extremes: Floats = np.full((2, features + 1), np.nan)  # minimum and maximum
        self._count = 0
        self._next = 0
        self._unread = 0  # rows pushed since the last read

    @classmethod
    def from_rows(cls, x: npt.ArrayLike, y: npt.ArrayLike, size: int = 6000, pushed: int | None = None) -> Self:
        """Create the window that pushing each row of x (n, features) with its y (n) would give, in O(d·n·log n).

        Args:
            size: the window size; of more rows the last ones are used.
            pushed: the total number of rows ever pushed, if x holds only the last of them; each gets the same slot.

        Raises:
            ValueError: as in `push`.
        """
        rows, targets = np.asarray(x, np.float64), np.asarray(y, np.float64)
        if rows.ndim != 2 or targets.shape != rows.shape[:1]:
            raise ValueError(f"shapes {rows.shape} and {targets.shape}; expected rows (n, features) and targets (n)")
        window = cls(rows.shape[1], size)
        columns = _checked(np.vstack((rows.T, targets)))[:, -size:]
        count = columns.shape[1]
        total = len(targets) if pushed is None else pushed
        if count != min(total, size):
            raise ValueError(f"{count} rows; expected {min(total, size)}")
        columns = np.roll(columns, total - count, axis=1)
        if not count:
            return window
        window._count, window._next = count, total % size
        window._columns[:, :count] = columns
        window._sort()
        return window

    def _sort(self) -> None:
        """Recompute ranks, sums and extremes from the columns. O(d·n·log n)."""
        for feature in reversed(range(len(self._columns))):  # the target first: the sums of the others need its ranks
            column, ranks = self._columns[feature, : self._count], self._ranks[feature, : self._count]
            ordered = np.sort(column)
            self._extremes[:, feature] = ordered[0], ordered[-1]
            ranks[:] = ordered.searchsorted(column, "left") + ordered.searchsorted(column, "right") - self._count
            self._sums[:, feature] = _moments(ranks, self._ranks[-1, : self._count])

    def _read(self) -> None:
        """Prepare the results for reading: sort first if ranks were not updated."""
        if self._unread > UNREAD_ROWS:
            self._sort()
        self._unread = 0

    def push(self, x: npt.ArrayLike, y: float) -> None:
        """Add a row, features x (features) and target y, in place of the oldest if the window is full.

        Raises:
            ValueError: x has another shape, or a value is not finite; the message contains the feature's index.
        """
        if np.shape(x) != (self.features,):
            raise ValueError(f"a row of shape {np.shape(x)}; expected {self.features} features")
        row = np.empty(self.features + 1)
        row[:-1], row[-1] = x, y
        if not _settle(row):
            _checked(row)
        count = min(self._count + 1, self.size)
        self._unread += 1
        if self._unread > UNREAD_ROWS:
            self._columns[:, self._next] = row
        else:
            if count > self._count:
                self._columns[:, self._next] = np.nan
            _push(self._columns, self._ranks, self._sums, self._extremes, row, self._next, count)
        self._count, self._next = count, (self._next + 1) % self.size

    def __len__(self) -> int:
        return self._count

    @property
    def correlations(self) -> Floats:
        """ρ of each feature with the target, within -1 and 1; NaN where either is constant or rows are fewer than 2."""
        self._read()
        return np.asarray(_correlations(self._sums))

    @property
    def weights(self) -> Floats:
        """|ρ| of each feature, within 0 and 1; 0 without a correlation, for example for a constant."""
        self._read()
        return np.asarray(_weights(self._sums))

    @property
    def minimum(self) -> Floats:
        """The least value of each feature; NaN in an empty window. Kept up to date by `push`, so free to read."""
        self._read()
        return self._extremes[0, :-1].copy()

    @property
    def maximum(self) -> Floats:
        """The greatest value of each feature; NaN in an empty window. Kept up to date by `push`, so free to read."""
        self._read()
        return self._extremes[1, :-1].copy()

    @property
    def columns(self) -> Floats:
        """The features (features, size); only as many slots as there are rows are filled: a live, read-only view."""
        return _read_only(self._columns[:-1])

    @property
    def values(self) -> Floats:
        """The features (n, features) in ring order, the new row in the slot of the oldest: a live, read-only view.

        The values of each feature are contiguous: `values.T` is the layout to compute with.
        """
        return _read_only(self._columns[:-1, : self._count].T)

    @property
    def targets(self) -> Floats:
        """The targets (n) in the order of `values`: a live, read-only view."""
        return _read_only(self._columns[-1, : self._count])


def _checked(columns: Floats) -> Floats:
    """Return a row or columns of rows, the target last, with 0.0 for -0.0.

    Raises:
        ValueError: a value is not finite.
    """
    finite = np.isfinite(columns)
    if not finite.all():
        where = tuple(np.argwhere(~finite)[0])
        name = "the target" if where[0] == len(columns) - 1 else f"feature {where[0]}"
        raise ValueError(f"{name} is {columns[where]}; expected a finite value")
    return columns + 0.0


def _read_only(view: Floats) -> Floats:
    view.flags.writeable = False
    return view


@njit(cache=True)
def _settle(row: Floats) -> bool:
    """Replace -0.0 by 0.0 in a row, as `_checked` does; return whether all values are finite."""
    for place in range(len(row)):
        if not np.isfinite(row[place]):
            return False
        row[place] += 0.0
    return True


@njit(cache=True)
def _push(columns: Floats, ranks: Ranks, sums: Ints, extremes: Floats, row: Floats, slot: int, count: int) -> None:
    """Write a row into a slot, among `count` rows including it, and update ranks, sums and extremes."""
    for feature in range(len(columns) - 1, -1, -1):  # the target first: the sums of the others need its ranks
        column, entering, leaving = columns[feature][:count], row[feature], ranks[feature, slot]
        _rerank(column, ranks[feature][:count], slot, entering)
        sums[0, feature], sums[1, feature] = _moments(ranks[feature][:count], ranks[-1][:count])
        # Search for a new extreme only if the only minimum or maximum left, or the window was empty.
        least, greatest = extremes[0, feature], extremes[1, feature]
        extremes[0, feature] = column.min() if leaving == 1 - count else min(least, entering)
        extremes[1, feature] = column.max() if leaving == count - 1 else max(greatest, entering)


@njit(cache=True)
def _rerank(column: Floats, ranks: Ranks, slot: int, entering: float) -> None:
    """Write a value into a slot and update every s_i."""
    leaving = column[slot]  # NaN in an empty slot: neither less nor greater than any value, so no rank changes
    column[slot] = entering
    missing = 0
    for i in range(len(column)):
        x = column[i]
        ranks[i] += (x > entering) - (x < entering) - (x > leaving) + (x < leaving)
        missing -= ranks[i]
    ranks[slot] += missing


@njit(cache=True)
def _correlations(sums: Ints) -> Floats:
    """Return the correlation of each feature from Σ s_i·t_i and Σ s_i²."""
    features = sums.shape[1] - 1
    found = np.full(features, np.nan)
    for feature in range(features):
        both = np.float64(sums[1, feature]) * np.float64(sums[1, features])
        if both > 0.0:
            found[feature] = min(max(np.float64(sums[0, feature]) / np.sqrt(both), -1.0), 1.0)
    return found


@njit(cache=True)
def _weights(sums: Ints) -> Floats:
    found: Floats = _correlations(sums)
    for feature in range(len(found)):
        found[feature] = 0.0 if np.isnan(found[feature]) else abs(found[feature])
    return found


@njit(cache=True)
def _moments(ranks: Ranks, target: Ranks) -> tuple[np.int64, np.int64]:
    products = squares = np.int64(0)
    for i in range(len(ranks)):
        s = np.int64(ranks[i])
        products += s * target[i]
        squares += s * s
    return products, squares
