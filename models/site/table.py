"""The live jobs of a site as columns, for methods that look at all of them at each prediction."""

from collections.abc import Hashable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from models.records import JobKey

DEAD: Final = 0
"""The phase of a row whose job has left, or has ended though its start was not seen yet."""

QUEUED: Final = 1
HELD: Final = 2
RUNNING: Final = 3

NO_NAME: Final = -1
"""The code of a job that names no user, queue or account, and of a name that no live job has."""

_MIN_ROWS = 64


Values = tuple[int, float, float, float, float, float, float, int]
"""What a row holds beside the names: `Columns` from `cpus` to `run_s`, and the phase."""

Names = tuple[str | None, str | None, str | None, Hashable]
"""Whose job it is: user, queue and account; and what it asks for, where that matters (see `Areas`), else None."""

_ROW = np.dtype(
    [
        ("cpus", np.int64),
        *((name, np.float64) for name in ("submit", "ready", "start", "walltime", "planned_s", "run_s")),
        ("phase", np.int8),
        *((name, np.int32) for name in ("user", "queue", "account", "ask")),
    ],
    align=True,
)
_ROW_BYTES = _ROW.itemsize
_PACK = Struct("=qddddddb3xiiii").pack_into  # one call: setting twelve elements takes four times as long
_NOTHING: Values = (0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, DEAD)


class Columns(NamedTuple):
    """The rows of the live jobs, each an array (strided) of the same length; they show the table as it is now.

    Times are Unix seconds, durations seconds. `start` is 0 for a job that does not run, `walltime` 0 where none was
    requested, `planned_s` 0 where no run time is known. `run_s` is the expected run time, never 0 for lack of
    knowledge. `user`, `queue`, `account` and `ask` are codes, see `LiveTable.code`.
    """

    phase: npt.NDArray[np.int8]
    cpus: npt.NDArray[np.int64]
    submit: npt.NDArray[np.float64]
    ready: npt.NDArray[np.float64]
    start: npt.NDArray[np.float64]
    walltime: npt.NDArray[np.float64]
    planned_s: npt.NDArray[np.float64]
    run_s: npt.NDArray[np.float64]
    user: npt.NDArray[np.int32]
    queue: npt.NDArray[np.int32]
    account: npt.NDArray[np.int32]
    ask: npt.NDArray[np.int32]


class LiveTable:
    """The live jobs of a site, one row each, in the order in which they came.

    A row stays where it is while its job is live; the row of a job that has left is dead until half of all rows are,
    and then all that live move together, in their order. So the live rows are in the same order after a restart, and
    sums over them that are taken in that order are the same to the last bit. An event costs 2 µs, on average.
    """

    def __init__(self) -> None:
        self.keys: list[JobKey | None] = []
        """Whose row it is, by row; None where its job has left."""
        self._codes: list[tuple[int, int, int, int]] = []  # by row
        self._rows: dict[JobKey, int] = {}
        self._users, self._queues, self._accounts, self._asks = _Codes(), _Codes(), _Codes(), _Codes()
        self._kinds = {"user": self._users, "queue": self._queues, "account": self._accounts}
        self._view: Columns | None = None
        self._allocate(np.zeros(_MIN_ROWS, _ROW))

    def __len__(self) -> int:
        """How many jobs are live."""
        return len(self._rows)

    def columns(self) -> Columns:
        """The rows so far, dead ones among them. Read them at once: the next event changes them. O(1), 2 µs."""
        if self._view is None:
            rows = self._table[: len(self.keys)]
            self._view = Columns(*(rows[name] for name in Columns._fields))
        return self._view

    def row(self, key: JobKey) -> int:
        """Where a live job's row is, until the next event.

        Raises:
            KeyError: it is not live.
        """
        return self._rows[key]

    def code(self, kind: str, name: str | None) -> int:
        """The number that stands for a "user", "queue" or "account" of the live jobs, -1 where none of them has it.

        Only whether two are equal means anything: after a restart the numbers are others.
        """
        return self._kinds[kind].of(name)

    def names(self, kind: str) -> Sequence[str]:
        """The users, queues or accounts of the live jobs by their codes; "" for a code that none has."""
        return self._kinds[kind].names

    @property
    def asks(self) -> Sequence[Any]:
        """What the live jobs ask for, by their codes; "" for a code that none has."""
        return self._asks.names

    def enter(self, key: JobKey, values: Values, names: Names) -> None:
        """Take a job in."""
        row = len(self.keys)
        if row == len(self._table):
            self._allocate(np.concatenate([self._table, np.zeros(row, _ROW)]))
        self.keys.append(key)
        self._codes.append(self._take(names))
        self._rows[key] = row
        self._view = None
        self._write(row, values)

    def leave(self, key: JobKey) -> None:
        """Take a job out."""
        row = self._rows.pop(key)
        self.keys[row] = None
        self._write(row, _NOTHING)
        self._give_back(row)
        if len(self.keys) - len(self._rows) > max(len(self._rows), _MIN_ROWS):
            self._compact()

    def change(self, key: JobKey, values: Values, names: Names | None = None) -> None:
        """Take over what has changed in a job; `names` where they may have changed too."""
        row = self._rows[key]
        if names is not None:
            self._give_back(row)
            self._codes[row] = self._take(names)
        self._write(row, values)

    def _write(self, row: int, values: Values) -> None:
        _PACK(self._bytes, row * _ROW_BYTES, *values, *self._codes[row])

    def _take(self, names: Names) -> tuple[int, int, int, int]:
        user, queue, account, ask = names
        code = NO_NAME if ask is None else self._asks.take(ask)
        return self._users.take(user), self._queues.take(queue), self._accounts.take(account), code

    def _give_back(self, row: int) -> None:
        user, queue, account, ask = self._codes[row]
        self._users.give_back(user)
        self._queues.give_back(queue)
        self._accounts.give_back(account)
        self._asks.give_back(ask)

    def _compact(self) -> None:
        """Move the rows of live jobs together, and give back what space is not needed."""
        keys, kept = list(self._rows), list(self._rows.values())  # in order, as the jobs came
        self._allocate(np.concatenate([self._table[kept], np.zeros(max(len(kept), _MIN_ROWS), _ROW)]))
        self._codes = [self._codes[row] for row in kept]
        self._rows = {key: row for row, key in enumerate(keys)}
        self.keys = [*keys]

    def _allocate(self, table: npt.NDArray[np.void]) -> None:
        self._table, self._bytes = table, table.view(np.uint8).data
        self._view = None


class _Codes:
    """Numbers for names while somebody uses them."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.names: list[Any] = []  # by code
        self._uses: list[int] = []
        self._unused: list[int] = []

    def of(self, name: Hashable) -> int:
        return NO_NAME if name is None else self._codes.get(name, NO_NAME)

    def take(self, name: Hashable) -> int:
        if name is None:
            return NO_NAME
        code = self._codes.get(name)
        if code is not None:
            self._uses[code] += 1
            return code
        if self._unused:
            code = self._unused.pop()
            self.names[code], self._uses[code] = name, 1
        else:
            code = len(self.names)
            self.names.append(name)
            self._uses.append(1)
        self._codes[name] = code
        return code

    def give_back(self, code: int) -> None:
        if code == NO_NAME:
            return
        self._uses[code] -= 1
        if self._uses[code] == 0:
            del self._codes[self.names[code]]
            self.names[code] = ""
            self._unused.append(code)
