"""How long jobs like this one waited lately: the last waits by user, queue, size and so on."""

from collections import deque
from collections.abc import Sequence
from math import log1p
from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt
from numba import njit

from models.durations import AT_ONCE_S
from models.site.job import Job

Floats = npt.NDArray[np.float64]

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
"""Which jobs are alike: in each of these attributes. SIZE is by powers of two, TIME by those of the planned time."""

FATES: tuple[tuple[int, ...], ...] = ((USER,), (USER, SIZE, TIME))
"""Of which jobs alike it is told what share was cancelled in the queue."""

PATIENCE: tuple[tuple[int, ...], ...] = ((USER,),)
"""Of which jobs alike it is told how long those waited that were cancelled."""

_ATTRIBUTES = ("user", "queue", "executable", "size", "time", "group")
_PARTS = (*KINDS, *FATES, *PATIENCE)
_WAITS = range(len(KINDS))
_FATES = range(len(KINDS), len(KINDS) + len(FATES))
_PATIENCE = range(len(KINDS) + len(FATES), len(_PARTS))

_SHORT, _LONG = 20, 200
"""The last starts of the site that are summed up."""

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

KEPT = 16
"""Waits of a kind that are remembered."""

FADING = 0.8
"""The weight of a wait beside that of the next one of its kind."""

UNKNOWN = -1.0
"""What stands for the waits of a kind of job of which none is known."""

SCALE_S = 30.0
HOUR_S = 3600.0

_PUSHED_PER_SWEEP = 4096

Codes = tuple[int, ...]


def codes_of(job: Job) -> Codes:
    """What a job is like, a number for each attribute; the same after a restart. 3 µs."""
    return (
        _code(job.user),
        _code(job.queue),
        _code(job.executable),
        job.cpus.bit_length(),
        int(job.planned_run_s).bit_length(),
        _code(job.group),
    )


def _code(name: str | None) -> int:
    return 0 if name is None else crc32(name.encode())


class Left(NamedTuple):
    """How a job left the queue: after how many seconds, when (Unix seconds), and whether it was cancelled."""

    wait_s: float
    at: float
    cancelled: bool = False


class RecentState(msgspec.Struct, array_like=True):
    """What is saved beside the rows: of the last starts of the site, and the times of the last submissions."""

    starts: list[float] = []
    waits: list[float] = []
    submissions: list[float] = []


class Recent:
    """What became lately of jobs alike, of those that were noted within the last `horizon` rows.

    Each start costs 20 µs, and `features` 20 µs. What is remembered is a function of these jobs in the order of their
    starts, so it can be had again from the rows. `RecentState` is what cannot.

    Parameters:
        horizon: in rows of the method's notes; what lies before is forgotten.
    """

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._slots: dict[tuple[int, ...], int] = {}
        self._unused: list[int] = []
        self._values = np.zeros((64, KEPT))
        self._numbers = np.zeros((64, KEPT), np.int64)
        self._times = np.zeros(64)
        self._counts = np.zeros(64, np.int64)
        self._pushed = 0
        self._site_starts: deque[float] = deque(maxlen=_LONG)
        self._site_waits: deque[float] = deque(maxlen=_LONG)
        self._submissions: deque[float] = deque(maxlen=_LONG)

    def submitted(self, now: float) -> None:
        """A job was submitted at `now`."""
        self._submissions.append(now)

    def left(self, codes: Codes, number: int, left: Left, rows: int) -> None:
        """A job left the queue that had been noted as row `number`, when there were `rows`."""
        if not left.cancelled:
            self._site_starts.append(left.at)
            self._site_waits.append(log1p(left.wait_s / SCALE_S))
        self.remember(codes, number, left, rows)

    def remember(self, codes: Codes, number: int, left: Left, rows: int) -> None:
        """The same for what is had again from rows, which tell of the kinds alone.

        A job from before the horizon is left out: so whatever is pushed out for another is itself forgotten by when
        that one is, if rows are kept for twice the horizon, and what is restored is the same.
        """
        if number < rows - self._horizon:
            return
        wait = log1p(left.wait_s / SCALE_S)
        for series, value in (_PATIENCE, wait) if left.cancelled else (_WAITS, wait), (_FATES, float(left.cancelled)):
            for slot in (self._slot((place, *(codes[part] for part in _PARTS[place]))) for place in series):
                at = self._counts[slot] % KEPT
                self._values[slot, at], self._numbers[slot, at] = value, number
                self._counts[slot] += 1
                self._times[slot] = left.at
        self._pushed += 1
        if self._pushed % _PUSHED_PER_SWEEP == 0:
            self._forget(rows)

    def _slot(self, key: tuple[int, ...]) -> int:
        """Where the waits of a kind are; a place for them where there is none."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._unused.pop() if self._unused else len(self._slots)
            if slot == len(self._counts):
                self._values, self._numbers = _doubled(self._values), _doubled(self._numbers)
                self._times, self._counts = _doubled(self._times), _doubled(self._counts)
            self._counts[slot] = 0
        return slot

    def _forget(self, rows: int) -> None:
        """Forget the kinds of which no job is within the horizon."""
        newest = np.where(self._counts[:, None] > np.arange(KEPT), self._numbers, -1).max(axis=1)
        for key, slot in list(self._slots.items()):
            if newest[slot] < rows - self._horizon:
                del self._slots[key]
                self._unused.append(slot)

    def features(self, codes: Codes, now: float, rows: int) -> Floats:
        """The features of `NAMES` for a job submitted at `now`, when there are `rows`, float64."""
        out = np.empty(len(NAMES))
        slots = [self._slots.get((place, *map(codes.__getitem__, kind)), -1) for place, kind in enumerate(_PARTS)]
        _by_kind(
            out,
            np.array(slots),
            self._values,
            self._numbers,
            self._times,
            self._counts,
            float(now),
            rows - self._horizon,
        )
        waits = np.array(self._site_waits)
        for place, last in enumerate((waits[-_SHORT:], waits), len(_PARTS)):
            _of_site(out[3 * place : 3 * place + 3], np.sort(last), last)
        out[-2] = _since(self._site_starts, now - HOUR_S)
        out[-1] = _since(self._submissions, now - HOUR_S)
        return out

    def save(self) -> RecentState:
        """What rows do not tell; 5 KB."""
        return RecentState(list(self._site_starts), list(self._site_waits), list(self._submissions))

    def load(self, state: RecentState) -> None:
        """Take it back."""
        self._site_starts.extend(state.starts)
        self._site_waits.extend(state.waits)
        self._submissions.extend(state.submissions)


def _since(times: Sequence[float] | deque[float], begin: float) -> float:
    """How many of the last of these times lie after `begin`."""
    return float(_after(np.array(times, np.float64), begin))


@njit(cache=True, nogil=True)
def _after(times: Floats, begin: float) -> int:
    count = 0
    while count < len(times) and times[len(times) - 1 - count] > begin:
        count += 1
    return count


N = TypeVar("N", bound=np.generic)


def _doubled(array: npt.NDArray[N]) -> npt.NDArray[N]:
    return np.concatenate([array, np.zeros_like(array)])


@njit(cache=True)
def _by_kind(
    out: Floats,
    slots: npt.NDArray[np.int64],
    values: Floats,
    numbers: npt.NDArray[np.int64],
    starts: Floats,
    counts: npt.NDArray[np.int64],
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
                out[3 * kind + 2] = max(now - starts[slot], 0.0)
            total += weight * values[slot, at]
            weights += weight
            weight *= FADING
        if weights > 0.0:
            out[3 * kind] = total / weights


@njit(cache=True)
def _of_site(out: Floats, ascending: Floats, waits: Floats) -> None:
    """The mean and the median of these waits, and the share of those at once."""
    count, at_once = len(waits), np.log1p(AT_ONCE_S / SCALE_S)
    if count == 0:
        out[0], out[1], out[2] = UNKNOWN, UNKNOWN, UNKNOWN
        return
    total, under = 0.0, 0.0
    for wait in waits:
        total += wait
        under += 1.0 if wait <= at_once else 0.0
    out[0], out[1], out[2] = total / count, ascending[count // 2], under / count
