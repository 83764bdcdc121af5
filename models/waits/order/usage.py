"""Recent usage of users and accounts: CPU-seconds, with exponential decay."""

from collections.abc import Sequence

import msgspec
import numpy as np

from models.arrays import Floats, Ints, Singles
from models.durations import DAY_S
from models.kernels import njit
from models.site.table import SlotsByCode
from models.slots import Slots
from models.stored_values import check_alike

HALF_LIVES_S = (1.0 * DAY_S, 6.0 * DAY_S)
"""Half-lives of usage, in seconds. Sites' fairshare has half-lives of a day to a fortnight."""

HALVES: Floats = np.array(HALF_LIVES_S)

MAX_NAME = 64
"""Longer names are not kept: the saved state must be small."""

LN_2 = float(np.log(2.0))


class SavedUsage(msgspec.Struct, array_like=True):
    """Names, the time of the last addition to each, and the sums at that time, (names, half-lives)."""

    names: list[str]
    times: Floats
    sums: Singles


class Usage:
    """Decayed sums by name, of jobs that have ended. It has at most `most` names: the one with the least usage is
    evicted.

    `table` has a row a name: the time of the last addition, and the sums then. They are rounded to the stored
    precision, so that a restart changes nothing. The last row is for names that are not kept, with no usage.

    >>> usage = Usage(most=2)
    >>> usage.add("ada", cpus=4, start=0.0, end=100.0)
    >>> usage.of(["ada", "bob"], now=100.0 + HALF_LIVES_S[0]).round()
    array([[200., 356.],
           [  0.,   0.]])
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._slots = Slots[str]()
        self.table = np.zeros((most + 1, 1 + len(HALF_LIVES_S)))
        self.slots = SlotsByCode(self._slots, most)
        """The rows of a table's users or accounts."""

    def add(self, name: str, cpus: int, start: float, end: float) -> None:
        """Add the usage of a job between two times (Unix seconds). O(1); O(names) when a name is evicted."""
        if len(name) > MAX_NAME:
            return
        slot = self._slots.get(name)
        if slot is None:
            slot = self._take_slot(name, end)
        _add(self.table[slot], float(cpus), float(start), float(end))

    def _take_slot(self, name: str, now: float) -> int:
        if len(self._slots) == self._most:
            least = int(np.argmin(used_by(np.arange(self._most), self.table, float(now))[:, -1]))
            self._slots.release(self._slots.names[least])
        slot = self._slots.take(name)
        self.table[slot, 0], self.table[slot, 1:] = now, 0.0
        return slot

    def of(self, names: Sequence[str], now: float) -> Floats:
        """Return the usage of each name, (names, half-lives), in CPU-seconds decayed to `now`; 0 for unregistered
        names.
        """
        return np.asarray(used_by(np.array([*map(self.slots.slot_of, names)], np.int64), self.table, float(now)))

    def saved(self) -> SavedUsage:
        """Return the state; 30 bytes a name."""
        kept = self.table[: len(self._slots)]
        return SavedUsage(list(self._slots.names), kept[:, 0], kept[:, 1:].astype(np.float32))

    def restore(self, saved: SavedUsage) -> None:
        """Restore the state.

        Raises:
            ValueError: it is not such a state.
        """
        names = len(saved.names)
        if names > self._most or len({*saved.names}) < names:
            raise ValueError(f"{names} names; expected {self._most} at most, each once")
        check_alike(
            (saved.times, saved.sums.astype(np.float64)), (self.table[:names, 0], self.table[:names, 1:]), "usage"
        )
        self._slots.restore({name: slot for slot, name in enumerate(saved.names)})
        self.table[:names, 0], self.table[:names, 1:] = saved.times, saved.sums


@njit(cache=True, nogil=True)
def used_by(slots: Ints, table: Floats, now: float) -> Floats:
    """Return the usage of these slots, (slots, half-lives), in CPU-seconds decayed to `now`; O(slots)."""
    used = np.empty((len(slots), len(HALVES)))
    for place in range(len(slots)):
        kept = table[slots[place]]
        age_s = max(now - kept[0], 0.0)
        for half in range(len(HALVES)):  # powers are slow
            used[place, half] = kept[1 + half] * 2.0 ** (-age_s / HALVES[half]) if kept[1 + half] else 0.0
    return used


@njit(cache=True, nogil=True)
def _add(kept: Floats, cpus: float, start: float, end: float) -> None:
    time = max(kept[0], end)
    for half in range(len(HALVES)):
        used = cpus * HALVES[half] / LN_2 * -np.expm1(-max(end - start, 0.0) / HALVES[half] * LN_2)
        before = kept[1 + half] * 2.0 ** ((kept[0] - time) / HALVES[half])
        kept[1 + half] = np.float32(before + used * 2.0 ** ((end - time) / HALVES[half]))
    kept[0] = time
