"""Recent waits of similar jobs: the last waits by user, queue, size and other attributes."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import log1p
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.arrays import Floats, Ints
from models.durations import AT_ONCE_S
from models.kernels import njit
from models.site.job import Job
from models.slots import Slots

USER, QUEUE, EXECUTABLE, SIZE, TIME, GROUP = range(6)

KINDS: tuple[tuple[int, ...], ...] = (
    (USER,),
    (QUEUE,),
    (GROUP,),
    (SIZE,),
    (TIME,),
    (SIZE, TIME),
    (USER, SIZE),
    (USER, EXECUTABLE),
    (USER, QUEUE),
    (QUEUE, SIZE),
    (QUEUE, TIME),
    (QUEUE, SIZE, TIME),
    (USER, SIZE, TIME),
)
"""Attributes of each kind of similar jobs. SIZE is by powers of two, TIME by those of the planned time."""

FATES: tuple[tuple[int, ...], ...] = ((USER,), (USER, SIZE, TIME))
"""Kinds of similar jobs with the share that was cancelled in the queue as a feature."""

PATIENCE: tuple[tuple[int, ...], ...] = ((USER,),)
"""Kinds of similar jobs with the waits of the cancelled ones as a feature."""

_ATTRIBUTES = ("user", "queue", "executable", "size", "time", "group")
_PARTS = (*KINDS, *FATES, *PATIENCE)
_PLACES = tuple(range(len(_PARTS)))
_PICKED = tuple(itemgetter(len(_ATTRIBUTES) + place, *kind) for place, kind in enumerate(_PARTS))
"""Functions that pick the key of each kind from a job's codes and `_PLACES`: the position of the kind, and its
codes."""

_STARTED = _PICKED[: len(KINDS) + len(FATES)]
_CANCELLED = _PICKED[len(KINDS) :]
"""Keys under which a started job, and a cancelled one, is stored."""

_SHORT, _LONG = 20, 200
"""Numbers of the site's last starts in the features."""

_SERIES = (("wait", KINDS), ("cancelled", FATES), ("patience", PATIENCE))

NAMES = (
    *(
        f"recent_{series}_{'_'.join(_ATTRIBUTES[place] for place in kind)}_{what}"
        for series, kinds in _SERIES
        for kind in kinds
        for what in ("mean", "last", "ago")
    ),
    *(f"last_{count}_{what}" for count in (_SHORT, _LONG) for what in ("mean", "median", "at_once")),
    "starts_in_hour",
    "arrivals_in_hour",
)
"""The features in their order: of waits, log(1 + w / 30 s); `ago` is since the last such start, in seconds."""

_WHATS = 3
_OF_SITE = NAMES[_WHATS * len(_PARTS) :]


def selection(names: Iterable[str]) -> tuple[list[int], tuple[str, ...]]:
    """Return the kinds of jobs for some features, for `Recent.features_of`, and the names of all that it returns.

    >>> selection(["recent_wait_queue_last", "last_20_mean", "walltime"])[1][:4]
    ('recent_wait_queue_mean', 'recent_wait_queue_last', 'recent_wait_queue_ago', 'last_20_mean')
    """
    parts = sorted({NAMES.index(name) // _WHATS for name in names if name in NAMES and name not in _OF_SITE})
    of_parts = [name for part in parts for name in NAMES[_WHATS * part : _WHATS * (part + 1)]]
    return parts, (*of_parts, *_OF_SITE)


KEPT = 16
"""Number of waits of a kind that are kept."""

FADING = 0.8
"""Weight of a wait relative to the next one of its kind."""

UNKNOWN = -1.0
"""Value for a kind of job without waits."""

SCALE_S = 30.0
HOUR_S = 3600.0

_PUSHED_PER_SWEEP = 4096

Codes = tuple[int, ...]


def codes_of(job: Job) -> Codes:
    """Return a job's kind, as a number for each attribute; the same after a restart."""
    return (
        code_of(job.user),
        code_of(job.queue),
        code_of(job.executable),
        job.cpus.bit_length(),
        int(job.planned_run_s).bit_length(),
        code_of(job.group),
    )


@lru_cache(1024)
def code_of(name: str | None) -> int:
    """Return a number that represents a name, the same after a restart; 0 for None."""
    return 0 if name is None else crc32(name.encode())


class Departure(NamedTuple):
    """Departure of a job from the queue: its wait in seconds, the time (Unix seconds), and whether it was cancelled."""

    wait_s: float
    at: float
    cancelled: bool = False


class RecentState(msgspec.Struct, array_like=True):
    """Serialized state beside the rows: the last starts of the site, and the times of the last submissions."""

    starts: list[float] = []
    waits: list[float] = []
    submissions: list[float] = []


class _ValueRing(NamedTuple):
    """The last `KEPT` values by slot, in a ring.

    `numbers` are those of their jobs, (slots, KEPT). `times` are when the last value of each slot came (Unix seconds),
    and `counts` how many there were, (slots,).
    """

    values: Floats
    numbers: NDArray[np.int32]
    times: Floats
    counts: Ints


class Recent:
    """Recent outcomes of similar jobs, of those that were noted within the last `horizon` rows.

    The state is a function of these jobs in the order of their starts, so that it can be rebuilt from the rows.
    `RecentState` is the part that cannot.

    Args:
        horizon: in rows of the method's notes; earlier jobs are dropped.
    """

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._slots = Slots[Codes]()
        self._kept = _ValueRing(
            np.zeros((64, KEPT)), np.zeros((64, KEPT), np.int32), np.zeros(64), np.zeros(64, np.int64)
        )
        self._pushed = 0
        self._site_starts, self._site_waits, self._submissions = _ValueWindow(), _ValueWindow(), _ValueWindow()

    def submitted(self, now: float) -> None:
        """Record a submission at `now`."""
        self._submissions.add(now)

    def job_dequeued(self, codes: Codes, number: int, departure: Departure, rows: int) -> None:
        """Add a job that left the queue; it was noted as row `number`, and there are `rows` now."""
        if not departure.cancelled:
            self._site_starts.add(departure.at)
            self._site_waits.add(log1p(departure.wait_s / SCALE_S))
        self.remember(codes, number, departure, rows)

    def remember(self, codes: Codes, number: int, departure: Departure, rows: int) -> None:
        """Add a job that is restored from rows, which contain the kinds only.

        A job from before the horizon is left out. A value that is replaced by a new one is therefore itself past the
        horizon when that one is, if rows are kept for twice the horizon. The restored state is then the same.
        """
        if number < rows - self._horizon:
            return
        every, series, fates = codes + _PLACES, *((_CANCELLED, 0) if departure.cancelled else (_STARTED, len(KINDS)))
        keys = [picked(every) for picked in series]
        slots = [*map(self._slots.get, keys)]
        if None in slots:
            slots = [*map(self._slot, keys)]
        values = log1p(departure.wait_s / SCALE_S), float(departure.cancelled), fates
        _push(np.array(slots, np.int64), *self._kept, *values, number, float(departure.at))
        self._pushed += 1
        if self._pushed % _PUSHED_PER_SWEEP == 0:
            self._forget(rows)

    def _slot(self, key: Codes) -> int:
        """Return the slot of the waits of a kind; allocate one if there is none."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots.take(key)
            if slot == len(self._kept.counts):
                self._kept = _ValueRing(*(np.concatenate([array, np.zeros_like(array)]) for array in self._kept))
            self._kept.counts[slot] = 0
        return slot

    def _forget(self, rows: int) -> None:
        """Drop the kinds without a job within the horizon."""
        newest = np.where(self._kept.counts[:, None] > np.arange(KEPT), self._kept.numbers, -1).max(axis=1)
        for key, slot in list(self._slots.in_order()):
            if newest[slot] < rows - self._horizon:
                self._slots.release(key)

    def features(self, codes: Codes, now: float, rows: int, out: Floats) -> None:
        """Fill in the features of `NAMES` for a job submitted at `now`, when there are `rows`."""
        find, every = self._slots.get, codes + _PLACES
        slots = np.array([find(picked(every), -1) for picked in _PICKED])
        last = self._site_waits.values, self._site_starts.values, self._submissions.values
        _features(out, slots, *self._kept, *last, float(now), rows - self._horizon)

    def features_of(
        self, codes: Sequence[Codes], parts: Sequence[int], now: float, rows: int, out: Floats, begin: int
    ) -> None:
        """Fill in the features of some kinds for several jobs as if they were submitted at `now`; see `selection`.

        They are the columns of `out` from `begin` on.
        """
        find, picked = self._slots.get, [_PICKED[part] for part in parts]
        each = ((own, own + _PLACES) for own in dict.fromkeys(codes))  # many queued jobs have the same codes
        slots_of = {own: [find(pick(every), -1) for pick in picked] for own, every in each}
        slots = np.array([slots_of[own] for own in codes], np.int64)
        last = self._site_waits.values, self._site_starts.values, self._submissions.values
        _features_of(out, begin, slots, *self._kept, *last, float(now), rows - self._horizon)

    def save(self) -> RecentState:
        """Serialize the state that the rows do not contain; 5 KB."""
        return RecentState(*(last.values.tolist() for last in (self._site_starts, self._site_waits, self._submissions)))

    def load(self, state: RecentState) -> None:
        """Restore the state from `save`."""
        for last, values in (
            (self._site_starts, state.starts),
            (self._site_waits, state.waits),
            (self._submissions, state.submissions),
        ):
            for value in values:
                last.add(value)


class _ValueWindow:
    """The last `_LONG` values, in their order."""

    def __init__(self) -> None:
        self._kept, self._end = np.zeros(4 * _LONG), 0

    def add(self, value: float) -> None:
        if self._end == len(self._kept):
            self._kept[: _LONG - 1], self._end = self._kept[1 - _LONG :].copy(), _LONG - 1
        self._kept[self._end] = value
        self._end += 1

    @property
    def values(self) -> Floats:
        return self._kept[max(self._end - _LONG, 0) : self._end]


@njit(cache=True, nogil=True)
def _after(times: Floats, begin: float) -> int:
    count = 0
    while count < len(times) and times[len(times) - 1 - count] > begin:
        count += 1
    return count


@njit(cache=True, nogil=True)
def _push(
    slots: Ints,
    values: Floats,
    numbers: NDArray[np.int32],
    times: Floats,
    counts: Ints,
    wait: float,
    cancelled: float,
    fates: int,
    number: int,
    at: float,
) -> None:
    """Push the wait of a job into its slots, and whether it was cancelled into the `FATES` slots from `fates` on."""
    for nth in range(len(slots)):
        slot = slots[nth]
        place = counts[slot] % KEPT
        values[slot, place] = cancelled if fates <= nth < fates + len(FATES) else wait
        numbers[slot, place] = number
        counts[slot] += 1
        times[slot] = at


@njit(cache=True, nogil=True)
def _features(
    out: Floats,
    slots: Ints,
    values: Floats,
    numbers: NDArray[np.int32],
    times: Floats,
    counts: Ints,
    waits: Floats,
    starts: Floats,
    submissions: Floats,
    now: float,
    oldest: int,
) -> None:
    _of_kinds(out, slots, values, numbers, times, counts, now, oldest)
    _of_all(out[3 * len(slots) :], waits, starts, submissions, now)


@njit(cache=True, nogil=True)
def _features_of(
    out: Floats,
    begin: int,
    slots: Ints,
    values: Floats,
    numbers: NDArray[np.int32],
    times: Floats,
    counts: Ints,
    waits: Floats,
    starts: Floats,
    submissions: Floats,
    now: float,
    oldest: int,
) -> None:
    """Return the features of several jobs; the part about the site is computed once."""
    site = begin + 3 * slots.shape[1]
    _of_all(out[0, site:], waits, starts, submissions, now)
    for job in range(len(slots)):
        _of_kinds(out[job, begin:], slots[job], values, numbers, times, counts, now, oldest)
        out[job, site:] = out[0, site:]


@njit(cache=True, nogil=True)
def _of_kinds(
    out: Floats,
    slots: Ints,
    values: Floats,
    numbers: NDArray[np.int32],
    times: Floats,
    counts: Ints,
    now: float,
    oldest: int,
) -> None:
    for kind in range(len(slots)):
        slot = slots[kind]
        out[3 * kind], out[3 * kind + 1], out[3 * kind + 2] = UNKNOWN, UNKNOWN, UNKNOWN
        if slot < 0:
            continue
        count = counts[slot]
        total, weights, weight = 0.0, 0.0, 1.0
        for back in range(1, min(count, KEPT) + 1):
            at = (count - back) % KEPT
            if numbers[slot, at] < oldest:
                continue
            if weights == 0.0:
                out[3 * kind + 1] = values[slot, at]
                out[3 * kind + 2] = max(now - times[slot], 0.0)
            total += weight * values[slot, at]
            weights += weight
            weight *= FADING
        if weights > 0.0:
            out[3 * kind] = total / weights


@njit(cache=True, nogil=True)
def _of_all(out: Floats, waits: Floats, starts: Floats, submissions: Floats, now: float) -> None:
    """Fill in the features of the last starts and submissions of the whole site."""
    _of_site(out, waits[max(len(waits) - _SHORT, 0) :])
    _of_site(out[3:], waits)
    out[6], out[7] = _after(starts, now - HOUR_S), _after(submissions, now - HOUR_S)


@njit(cache=True, nogil=True)
def _of_site(out: Floats, waits: Floats) -> None:
    """Fill in the mean and the median of these waits, and the share of immediate starts."""
    count, at_once = len(waits), np.log1p(AT_ONCE_S / SCALE_S)
    if count == 0:
        out[:3] = UNKNOWN
        return
    total, under = 0.0, 0.0
    for wait in waits:
        total += wait
        under += 1.0 if wait <= at_once else 0.0
    out[0], out[1], out[2] = total / count, np.sort(waits)[count // 2], under / count
