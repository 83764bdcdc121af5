"""What users and accounts have used of a site lately: processor-seconds, with exponential decay."""

from collections.abc import Sequence
from itertools import repeat

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.durations import DAY_S

Floats = NDArray[np.float64]

HALF_LIVES_S = (1.0 * DAY_S, 6.0 * DAY_S)
"""After how many seconds a use counts half. Sites' fairshare has half-lives of a day to a fortnight."""

HALVES: Floats = np.array(HALF_LIVES_S)

MAX_NAME = 64
"""Longer names are not kept: what is saved must be small."""

LN_2 = float(np.log(2.0))


class SavedUsage(msgspec.Struct, array_like=True):
    """Names, when each was last added to (float64), and the sums at that time (float32, half-lives a name)."""

    names: list[str]
    times: bytes
    sums: bytes


class Usage:
    """Decayed sums by name, of jobs that have ended; at most `most` names: the one with the least use leaves.

    >>> usage = Usage(most=2)
    >>> usage.add("ada", cpus=4, start=0.0, end=100.0)
    >>> usage.of(["ada", "bob"], now=100.0 + HALF_LIVES_S[0]).round()
    array([[200., 356.],
           [  0.,   0.]])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._slots: dict[str, int] = {}  # in their order
        self._times = np.zeros(most)
        self._sums = np.zeros((most, len(HALF_LIVES_S)), np.float32)  # as stored, so that a restart changes nothing

    def add(self, name: str, cpus: int, start: float, end: float) -> None:
        """A job has held so many processors between two times (Unix seconds). O(1); O(names) where one has to leave."""
        if len(name) > MAX_NAME:
            return
        slot = self._slots.get(name)
        if slot is None:
            slot = self._take_slot(name, end)
        time = max(self._times[slot], end)
        used = cpus * HALVES / LN_2 * -np.expm1(-max(end - start, 0.0) / HALVES * LN_2)
        kept = self._sums[slot] * np.exp2((self._times[slot] - time) / HALVES)
        self._sums[slot] = kept + used * np.exp2((end - time) / HALVES)
        self._times[slot] = time

    def _take_slot(self, name: str, now: float) -> int:
        names = list(self._slots)
        if len(names) < self._most:
            slot = len(names)
            names.append(name)
        else:
            slot = int(np.argmin(self.of(names, now)[:, -1]))
            names[slot] = name
        self._slots = {name: place for place, name in enumerate(names)}
        self._times[slot], self._sums[slot] = now, 0.0
        return slot

    def of(self, names: Sequence[str], now: float) -> Floats:
        """What each name had used, (names, half-lives), processor-seconds as they count `now`; 0 where unknown."""
        slots = np.array([*map(self._slots.get, names, repeat(-1))], np.int64)
        ages_s = np.maximum(now - self._times[slots], 0.0)
        used = self._sums[slots] * np.exp2(-ages_s[:, None] / HALVES)
        return np.where(slots[:, None] >= 0, used, 0.0)

    def saved(self) -> SavedUsage:
        """What is kept; 30 bytes a name."""
        count = len(self._slots)
        return SavedUsage(list(self._slots), self._times[:count].tobytes(), self._sums[:count].tobytes())

    def restore(self, saved: SavedUsage) -> None:
        """Take back what was saved."""
        count = len(saved.names)
        self._slots = {name: slot for slot, name in enumerate(saved.names)}
        self._times[:count] = np.frombuffer(saved.times)
        self._sums[:count] = np.frombuffer(saved.sums, np.float32).reshape(count, len(HALF_LIVES_S))
