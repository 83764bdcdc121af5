"""The last jobs that a method learnt, as arrays that new jobs are compared with."""

from collections.abc import Hashable
from typing import NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats
from models.papers.ibl.attributes import (
    JOB,
    NOMINAL,
    NUMERIC,
    POLICY,
    STATE,
    VECTORS,
    Category,
    CategoryState,
    Instance,
    JobAttribute,
    PolicyAttribute,
    Request,
    StateAttribute,
)
from models.papers.ibl.distance import UNKNOWN, UNSEEN, Columns, Ints, Point
from models.site.rows import Rows
from models.stored import encode, reader

MAX_NAMES_PER_JOB = 8
"""Names per remembered job above which those of jobs that have left are forgotten."""


class Selection(NamedTuple):
    """The attributes that are compared: those of weight 1 in the paper."""

    job: tuple[JobAttribute, ...] = JOB
    policy: tuple[PolicyAttribute, ...] = POLICY
    state: tuple[StateAttribute, ...] = STATE

    @property
    def places(self) -> tuple[list[int], list[int], list[int], list[int]]:
        """Where these are in `NOMINAL`, `NUMERIC`, (free processors,) and `VECTORS`."""
        named = (NOMINAL, self.job), (NUMERIC, self.job), (STATE[:1], self.state), (VECTORS, self.state)
        nominal, numeric, free, vectors = (
            [place for place, name in enumerate(names) if name in chosen] for names, chosen in named
        )
        return nominal, numeric, free, vectors


class LearntInstance(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A row: a job as it was seen at its submission, and what became of it, in seconds."""

    value_s: float
    instance: Instance


class InstanceMemory:
    """The last `size` jobs by the selected attributes, each with its wait or run time: the rows that are stored, and
    the arrays that jobs are compared in.

    What lies where depends on what was there before; distances do not: they come out of whole numbers.
    """

    def __init__(self, size: int, selection: Selection) -> None:
        self.size = size
        self.rows = Rows(size)
        self._policy = tuple(attribute for attribute in POLICY if attribute in selection.policy)
        self._nominal, self._numeric, self._free, self._vectors = selection.places
        self._begin()

    def _begin(self) -> None:
        size, self.count = self.size, 0
        self._values: dict[tuple[int, Hashable], int] = {}
        self._categories: dict[Category, int] = {}
        self._tail = 0
        self.columns = Columns(
            nominal=np.empty((size, len(self._nominal)), np.int32),
            numeric=np.empty((size, len(self._numeric))),
            free=np.empty((size, len(self._free))),
            begin=np.zeros(size, np.int64),
            entries=np.zeros(size, np.int32),
            category=np.empty(0, np.int32),
            vectors=np.empty((0, len(self._vectors))),
            value=np.empty(size),
        )

    @property
    def first(self) -> int:
        """The number of the oldest job that is here; jobs are counted from 0."""
        return max(self.count - self.size, 0)

    @property
    def names(self) -> int:
        """How many names are known, including those of jobs that have left."""
        return len(self._values) + len(self._categories)

    def point(self, instance: Instance) -> Point:
        """The job as it is compared with those here."""
        request, state = instance.request, self._comparable(instance.state)
        nominal = np.array([self._number(place, request, UNSEEN) for place in self._nominal], np.int32)
        vectors, totals = np.zeros((len(self._categories), len(self._vectors))), np.zeros(len(self._vectors))
        if state is not None and state.categories:
            values = self._selected(state)
            totals = values.sum(axis=0)
            for category, row in zip(state.categories, values, strict=True):
                number = self._categories.get(category)
                if number is not None:
                    vectors[number] = row
        return Point(nominal, self._scalars(request), self._free_of(state), state is not None, vectors, totals)

    def learn(self, instance: Instance, value_s: float) -> None:
        """Take a job in that was learnt, to be stored too."""
        self.rows.append(encode(LearntInstance(value_s, instance)))
        if self.names > MAX_NAMES_PER_JOB * self.size:
            self.restore()
        else:
            self.push(instance, value_s)

    def restore(self) -> None:
        """Build the arrays from the rows again, with the names that occur in them.

        Raises:
            ValueError: they are none of this method's.
        """
        self._begin()
        for learnt in self.rows.read(_read):
            self.push(learnt.instance, learnt.value_s)

    def push(self, instance: Instance, value: float) -> None:
        """Add a job; the oldest leaves where there is no room."""
        request, state, place = instance.request, self._comparable(instance.state), self.count % self.size
        entries = 0 if state is None else len(state.categories)
        self._make_room(entries)
        columns = self.columns
        for column, attribute in enumerate(self._nominal):
            columns.nominal[place, column] = self._number(attribute, request)
        columns.numeric[place] = self._scalars(request)
        columns.free[place] = self._free_of(state)
        columns.begin[place], columns.entries[place] = self._tail, UNKNOWN if state is None else entries
        if state is not None and entries:
            known = self._categories
            numbers = [known.setdefault(category, len(known)) for category in state.categories]
            columns.category[self._tail : self._tail + entries] = numbers
            columns.vectors[self._tail : self._tail + entries] = self._selected(state)
        columns.value[place] = value
        self._tail += entries
        self.count += 1

    def _comparable(self, state: CategoryState | None) -> CategoryState | None:
        """The state, or None where it was stored by another policy: that counts as unknown."""
        return state if state is not None and state.policy == self._policy else None

    def _number(self, place: int, request: Request, missing: int | None = None) -> int:
        """The number of a nominal value; a new one for a new value, or `missing` where that is given."""
        value = getattr(request, NOMINAL[place])
        if value is None:
            return UNKNOWN
        if missing is None:
            return self._values.setdefault((place, value), len(self._values))
        return self._values.get((place, value), missing)

    def _scalars(self, request: Request) -> Floats:
        return np.array([_number_or_nan(getattr(request, NUMERIC[place])) for place in self._numeric])

    def _free_of(self, state: CategoryState | None) -> Floats:
        free = None if state is None else state.free_cpus
        return np.array([_number_or_nan(free) for _ in self._free])

    def _selected(self, state: CategoryState) -> Floats:
        return np.array(state.values, np.float64)[:, self._vectors]

    def _make_room(self, entries: int) -> None:
        """Where there is no room left, copy the states that stay into arrays of twice their size."""
        columns = self.columns
        if self._tail + entries <= len(columns.category):
            return
        oldest = max(self.count - self.size + 1, 0)
        begin = int(columns.begin[oldest % self.size]) if oldest < self.count else self._tail
        kept = self._tail - begin
        room = 2 * (kept + entries)
        category: Ints = np.empty(room, np.int32)
        vectors: Floats = np.empty((room, columns.vectors.shape[1]))
        category[:kept], vectors[:kept] = columns.category[begin : self._tail], columns.vectors[begin : self._tail]
        self.columns = columns._replace(begin=columns.begin - begin, category=category, vectors=vectors)
        self._tail = kept


def _number_or_nan(value: float | None) -> float:
    return float("nan") if value is None else float(value)


_read = reader(LearntInstance, "a job that was learnt")
