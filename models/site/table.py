"""The live jobs of a site as columns, for methods that process all of them at each prediction."""

from collections.abc import Hashable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.arrays import Flags, Floats, Ints, Records
from models.records import JobKey
from models.site.seen import PHASE, PHASE_BITS, VisibleRows, level_of, see
from models.slots import Slots

DEAD: Final = 0  # phase of a row whose job has left, or has ended before its start event
QUEUED: Final = 1
HELD: Final = 2
RUNNING: Final = 3

_WAITING: Final = (QUEUED, HELD)
NO_NAME: Final = -1  # code of a missing user, queue or account, and of a name that no live job has
_MIN_ROWS = 64
MOVED_ROWS = 512  # maximum number of rows that one event moves

Values = tuple[int, float, float, float, float, float, float, float, int, bool, int]
"""Values of a row apart from the names: `Columns` from `cpus` to `priority`, phase, barred, and tasks."""

Names = tuple[str | None, str | None, str | None, Hashable]
"""User, queue and account of a job, and its request where it matters (see `Areas`), else None."""

_ROW = np.dtype(
    [
        ("cpus", np.int64),
        *((name, np.float64) for name in ("submit", "ready", "start", "walltime", "planned_s", "run_s", "priority")),
        ("phase", np.int8),
        ("barred", np.bool_),
        *((name, np.int32) for name in ("tasks", "user", "queue", "account", "request")),
    ],
    align=True,
)
_ROW_BYTES = _ROW.itemsize
_PACK = Struct("=qdddddddb?2xiiiii").pack_into  # one call is faster than setting fifteen elements
_PHASE: Final = 8
_NOTHING: Values = (0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, DEAD, False, 0)


class Columns(NamedTuple):
    """Columns of the live jobs, strided arrays of the same length; they are views of the table.

    There are at least two rows, dead ones if necessary: an array of one element counts as contiguous, so numba would
    compile the functions again for it. Times are Unix seconds, durations seconds.

    Attributes:
        start: 0 for a job that does not run.
        walltime: 0 if none was requested.
        planned_s: 0 if no run time is known.
        run_s: the expected run time; a default if it is unknown.
        priority: the scheduler's priority; NaN if it is unknown.
        user: a code, see `LiveTable.code`; so are `queue`, `account` and `request`.
        barred: whether a job is pending for a reason of its own (`models.site.pending_reasons`).
        tasks: number of jobs that the row represents; 1 except for an array.
    """

    phase: npt.NDArray[np.int8]
    cpus: Ints
    submit: Floats
    ready: Floats
    start: Floats
    walltime: Floats
    planned_s: Floats
    run_s: Floats
    priority: Floats
    barred: Flags
    user: npt.NDArray[np.int32]
    queue: npt.NDArray[np.int32]
    account: npt.NDArray[np.int32]
    request: npt.NDArray[np.int32]
    tasks: npt.NDArray[np.int32]


class LiveTable:
    """The live jobs of a site, one row each, in the order of their arrival.

    The row of a job that has left is dead until half of all rows are. Then the live rows are compacted in their order,
    `MOVED_ROWS` at each event. So the live rows are in the same order after a restart, and sums in that order are the
    same to the last bit.
    """

    def __init__(self) -> None:
        self.keys: list[JobKey | None] = []  # key of the job by row; None if it has left
        self._codes: list[tuple[int, int, int, int]] = []  # by row
        self._rows: dict[JobKey, int] = {}
        self._users, self._queues, self._accounts, self._requests = _Codes(), _Codes(), _Codes(), _Codes()
        self._kinds = {"user": self._users, "queue": self._queues, "account": self._accounts}
        self._view: Columns | None = None
        self._seen: VisibleRows | None = None
        self.version = 0  # number of changes
        self._waiting = 0  # number of pending and held rows
        self._next, self._moved = -1, 0  # of a compaction: the next row to check (-1: none), and the rows moved so far
        self._mark(np.zeros(_MIN_ROWS, np.uint8))
        self._allocate(np.zeros(_MIN_ROWS, _ROW))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def records(self) -> Records:
        """The same as `columns` as one record array, which is cheaper to pass to a compiled function."""
        return self._table[: max(len(self.keys), 2)]

    def columns(self) -> Columns:
        """Return the rows, including dead ones. Read them before the next event, which changes them. O(1)."""
        if self._view is None:
            rows = self.records
            self._view = Columns(*(rows[name] for name in Columns._fields))
        return self._view

    def visible_rows(self) -> VisibleRows:
        """Return the visible rows: all live ones, or a sample of a long queue. O(rows), cached until the next event."""
        if self._seen is None:
            self._seen = see(self._marks[: len(self.keys)], self._waiting)
        return self._seen

    def row(self, key: JobKey) -> int:
        """Return the row of a live job, valid until the next event.

        Raises:
            KeyError: the job is not live.
        """
        return self._rows[key]

    def code(self, kind: str, name: str | None) -> int:
        """Return the number of a "user", "queue" or "account" of the live jobs; -1 if no job has it.

        Codes may only be compared for equality: they differ after a restart.
        """
        return self._kinds[kind].of(name)

    def codes(self, kind: str) -> "_Codes":
        """Return the codes of users, queues or accounts."""
        return self._kinds[kind]

    def names(self, kind: str) -> Sequence[str]:
        """Return the users, queues or accounts of the live jobs by their codes; "" for an unused code."""
        return self._kinds[kind].names

    @property
    def requests(self) -> Sequence[Any]:
        """The requests of the live jobs by their codes; "" for an unused code."""
        return self._requests.names

    def enter(self, key: JobKey, values: Values, names: Names) -> None:
        """Add a job."""
        row = len(self.keys)
        if row == len(self._table):
            self._mark(np.concatenate([self._marks, np.zeros(row, np.uint8)]))
            self._allocate(np.concatenate([self._table, np.zeros(row, _ROW)]))
        self._mark_bytes[row] = level_of(key) << PHASE_BITS
        self.keys.append(key)
        self._codes.append(self._take(names))
        self._rows[key] = row
        self._view = None
        self._write(row, values)
        self._move_some()

    def move_last(self, key: JobKey) -> list[JobKey]:
        """Move the last job in front of another one. O(rows).

        Args:
            key: the other job.

        Returns:
            The jobs behind the moved one, in their order.
        """
        while self._next >= 0:
            self._move_some()
        row, end = self._rows[key], len(self.keys)
        for array in (self._table, self._marks):
            array[row:end] = np.roll(array[row:end], 1)
        self.keys.insert(row, self.keys.pop())
        self._codes.insert(row, self._codes.pop())
        moved = [(one, place) for place, one in enumerate(self.keys[row:], row) if one is not None]
        self._rows.update(moved)
        self._seen = None
        return [one for one, _ in moved[1:]]

    def leave(self, key: JobKey) -> None:
        """Remove a job."""
        row = self._rows.pop(key)
        self.keys[row] = None
        self._write(row, _NOTHING)
        self._give_back(row)
        if self._next < 0 and len(self.keys) - len(self._rows) > max(len(self._rows), _MIN_ROWS):
            self._next, self._moved = 0, 0
        self._move_some()

    def change(self, key: JobKey, values: Values, names: Names | None = None) -> None:
        """Update a job; `names` is given if they may have changed too."""
        row = self._rows[key]
        if names is not None:
            self._give_back(row)
            self._codes[row] = self._take(names)
        self._write(row, values)

    def _write(self, row: int, values: Values) -> None:
        _PACK(self._bytes, row * _ROW_BYTES, *values, *self._codes[row])
        mark, phase = self._mark_bytes[row], values[_PHASE]
        self._waiting += (phase in _WAITING) - (mark & PHASE in _WAITING)
        self._mark_bytes[row] = mark & ~PHASE | phase
        self._seen = None
        self.version += 1

    def _take(self, names: Names) -> tuple[int, int, int, int]:
        user, queue, account, request = names
        code = NO_NAME if request is None else self._requests.take(request)
        return self._users.take(user), self._queues.take(queue), self._accounts.take(account), code

    def _give_back(self, row: int) -> None:
        user, queue, account, request = self._codes[row]
        self._users.give_back(user)
        self._queues.give_back(queue)
        self._accounts.give_back(account)
        self._requests.give_back(request)

    def _move_some(self) -> None:
        """Compact the next rows of live jobs; shrink the table after the last one."""
        if self._next < 0:
            return
        first, end, place = self._next, min(self._next + MOVED_ROWS, len(self.keys)), self._moved
        live = [row for row in range(first, end) if self.keys[row] is not None]
        self._next, self._moved = end, place + len(live)
        self._table[place : self._moved] = self._table[live]
        self._marks[place : self._moved] = self._marks[live]
        for row in live:
            key, self.keys[row] = self.keys[row], None
            assert key is not None
            self.keys[place], self._codes[place], self._rows[key] = key, self._codes[row], place
            place += 1
        self._table["phase"][place:end] = DEAD
        self._marks[place:end] = DEAD
        self._seen = None
        if end == len(self.keys):
            self._next, self._view = -1, None
            del self.keys[place:], self._codes[place:]
            if len(self._table) > 4 * max(place, _MIN_ROWS):
                self._mark(self._marks[: 2 * max(place, _MIN_ROWS)].copy())
                self._allocate(self._table[: 2 * max(place, _MIN_ROWS)].copy())

    def _mark(self, marks: npt.NDArray[np.uint8]) -> None:
        """Set the array of phases and levels, a copy that is faster to scan; see `models.site.seen`."""
        self._marks, self._mark_bytes = marks, marks.data

    def _allocate(self, table: Records) -> None:
        self._table, self._bytes = table, table.view(np.uint8).data
        self._view = None


class SlotsByCode:
    """The slots of a table's names, in the order of its codes, cached until either changes.

    Args:
        slots: the slots by name.
        nobody: the slot of None, and of names without a slot.
        first: number that is added to each other slot.
    """

    def __init__(self, slots: Slots[str], nobody: int, first: int = 0) -> None:
        self._slots, self._nobody, self._first = slots, nobody, first
        self._codes: _Codes | None = None
        self._changes = 0, 0
        self._found = np.zeros(0, np.int64)

    def of(self, table: LiveTable, kind: str) -> Ints:
        """Return the slots of the "user", "queue" or "account" of each code, from code -1 on, (codes + 2,).

        The first and the last are the slot of None.
        """
        codes = table.codes(kind)
        changes = codes.changes, self._slots.changes
        if codes is not self._codes or changes != self._changes:
            self._codes, self._changes = codes, changes
            found = map(self.slot_of, codes.names)
            self._found = np.array([self._nobody, *found, self._nobody], np.int64)
        return self._found

    def slot_of(self, name: str | None) -> int:
        """Return the slot of one name."""
        slot = None if name is None else self._slots.get(name)
        return self._nobody if slot is None else self._first + slot


class _Codes:
    """Reference-counted codes of names; `changes` counts how often a code was assigned to a name."""

    def __init__(self) -> None:
        self._slots = Slots[Hashable]()
        self.names = self._slots.names
        self._uses: list[int] = []

    @property
    def changes(self) -> int:
        return self._slots.changes

    def of(self, name: Hashable) -> int:
        return NO_NAME if name is None else self._slots.get(name, NO_NAME)

    def take(self, name: Hashable) -> int:
        if name is None:
            return NO_NAME
        code = self._slots.take(name)
        if code == len(self._uses):
            self._uses.append(0)
        self._uses[code] += 1
        return code

    def give_back(self, code: int) -> None:
        if code == NO_NAME:
            return
        self._uses[code] -= 1
        if self._uses[code] == 0:
            self._slots.release(self.names[code])
