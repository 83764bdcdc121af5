"""What the jobs of a queue may hold together at most, found as what users may hold is (`limits`)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from models.waits.order.limits import KEPT, Counts, limit_of, step_of
from models.waits.order.schedule import UNLIMITED

STEPS = 25
"""Of shares of the machine up to which it is counted."""

MIN_STARTED = 50.0
"""Starts, with others of the queue running, before a limit is looked for: one job that is kept by something else is
refused again and again.
"""

STARTED, REFUSED = 0, 1

SavedQueueLimits = dict[int, tuple[str, bytes]]
"""The names of queues and their counts, float32, by the places of the queues' weights."""


class QueueLimitsSeen:
    """How many jobs of each queue were started and refused, by what those of it would then have held together, arrays
    of (2, `STEPS` + 1). A job that is the only one of its queue says nothing: it may run, however large.

    Queues are known by the places of their weights. Where another queue takes a place, it is counted anew.

    >>> seen = QueueLimitsSeen()
    >>> for _ in range(60):
    ...     seen.started("long", place=40, held=20, cpus=20, site_cpus=100)
    ...     seen.refused(place=40, held=40, cpus=1, site_cpus=100)
    >>> float(seen.limits(site_cpus=100)[40])
    40.0
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._counts: dict[int, Counts] = {}
        self._found: dict[int, float] | None = None  # the limits as steps, until something is counted

    def started(self, name: str, place: int, held: int, cpus: int, site_cpus: int) -> None:
        """A job of so many processors has started, whose queue's jobs held so many."""
        if self._names.get(place) != name:
            self._names[place] = name
            self._counts[place] = np.zeros((2, STEPS + 1), np.float32)
        self._counts[place] *= KEPT
        self._count(STARTED, place, held, cpus, site_cpus)

    def refused(self, place: int, held: int, cpus: int, site_cpus: int) -> None:
        """A job of so many processors could have started, and has not."""
        if place in self._counts:
            self._count(REFUSED, place, held, cpus, site_cpus)

    def _count(self, which: int, place: int, held: int, cpus: int, site_cpus: int) -> None:
        self._found = None
        if held > 0:
            self._counts[place][which, step_of(held + cpus, site_cpus, STEPS)] += 1

    def limits(self, site_cpus: int) -> NDArray[np.float64]:
        """The limits that have been found, processors by place, infinity for none; 10 µs a queue where something was
        counted since.
        """
        if self._found is None:
            known = {place: counts for place, counts in self._counts.items() if counts[STARTED].sum() >= MIN_STARTED}
            steps = {place: limit_of(*counts) for place, counts in known.items()}
            self._found = {place: step for place, step in steps.items() if step < np.inf}
        if not self._found:
            return UNLIMITED
        limits = UNLIMITED.copy()
        for place, step in self._found.items():
            limits[place] = step * site_cpus / STEPS
        return limits

    def save(self) -> SavedQueueLimits:
        """What was counted; 0.3 kB a queue."""
        return {place: (name, self._counts[place].tobytes()) for place, name in self._names.items()}

    def load(self, saved: Mapping[int, tuple[str, bytes]]) -> None:
        """Take back what `save` gave."""
        for place, (name, raw) in saved.items():
            self._names[place], self._counts[place] = name, np.frombuffer(raw, np.float32).reshape(2, -1).copy()
        self._found = None
