"""Starts of one second, from which the order is learned together.

The times of most schedulers and logs are whole seconds. Several jobs that a scheduler starts in one cycle then have the
same time, and their events may have any order. A job is therefore not compared with jobs that start in the same second:
what a start shows is learned when time goes on.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import compress
from typing import Final, NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats, Ints, Singles
from models.records import JobKey
from models.records.events import Count
from models.site.job import Finite
from models.stored_values import check_alike
from models.waits.order.order_features import COUNT
from models.waits.order.pair_preference import NO_QUEUE

MOST: Final = 30
"""Maximum number of starts that are learned together; their features take 2 kB each."""


class ComparedJobs(NamedTuple):
    """A job that started and the jobs that could have started instead, in the state just before.

    Attributes:
        rows: rows of the others in the table.
        nth: number of tasks of its array before each of the others.
        features, places: features and places of the queues' weights of the job that started, and of the others.
        priorities: 1 where the scheduler's priority of the other is lower than that of the job, -1 where it is higher.
        place: place of the job in the queue, from 1, among those that no limit blocks; 0 if it is not known.
        limited: as in `scores_of`.
    """

    rows: Ints
    nth: Ints
    features: Floats
    places: Ints
    priorities: Ints
    place: int
    limited: bool


class StartedJob(msgspec.Struct, array_like=True):
    """A start as in `ComparedJobs`; `key` and `others` are keys of jobs, of tasks those of their arrays."""

    key: JobKey
    others: list[JobKey]
    nth: Ints
    features: Singles
    places: Ints
    priorities: Ints
    place: Count
    limited: bool
    planned_s: Finite

    @classmethod
    def of(cls, key: JobKey, planned_s: float, seen: ComparedJobs, keys: Sequence[JobKey | None]) -> "StartedJob":
        """Return the start of a job; `keys` are those of the rows of the table."""
        others = [keys[row] or key for row in seen.rows.tolist()]  # live jobs have keys
        features = seen.features.astype(np.float32)
        return cls(key, others, seen.nth, features, seen.places, seen.priorities, seen.place, seen.limited, planned_s)

    def without(self, later: list["StartedJob"]) -> "StartedJob":
        """Return this start without the jobs that started later in the same second."""
        if not later:
            return self
        started, ahead = Counter(other.key for other in later), self.place - 1
        for other in later:  # its place is that without the jobs that started before it
            ahead -= 1 if other.place <= ahead else 0
        stays = [nth >= started[key] for key, nth in zip(self.others, self.nth.tolist(), strict=True)]
        kept = np.array(stays, np.bool_)
        rows = np.concatenate(([True], kept))
        return msgspec.structs.replace(
            self,
            others=[*compress(self.others, stays)],
            nth=self.nth[kept],
            features=self.features[rows],
            places=self.places[rows],
            priorities=self.priorities[kept],
            place=ahead + 1 if self.place else 0,
        )


class SameSecond(msgspec.Struct, array_like=True):
    """The starts of the second `at` (Unix seconds) in the order of their events, from which nothing is learned yet."""

    at: Finite = 0.0
    starts: list[StartedJob] = []

    def take_before(self, now: float) -> list[StartedJob]:
        """Return the starts of an earlier second, each without those that came later in it, and forget them."""
        return self._take() if now > self.at else []

    def add(self, at: float, start: StartedJob) -> list[StartedJob]:
        """Add a start; return those of another second, and of this one if there are `MOST`."""
        found = self._take() if at != self.at or len(self.starts) >= MOST else []
        self.at = at
        self.starts.append(start)
        return found

    def _take(self) -> list[StartedJob]:
        starts, self.starts = self.starts, []
        return [start.without(starts[nth + 1 :]) for nth, start in enumerate(starts)]

    def check(self) -> None:
        """Check that kernels can read a restored state.

        Raises:
            ValueError: they cannot.
        """
        for start in self.starts:
            size = len(start.others)
            expected = np.zeros(size, np.int64), np.zeros((size + 1, COUNT), np.float32), np.zeros(size + 1, np.int64)
            check_alike((start.nth, start.features, start.places), expected, "a start")
            check_alike(start.priorities, expected[0], "its priorities")
            if not np.isfinite(start.features).all() or not ((start.places >= 0) & (start.places <= NO_QUEUE)).all():
                raise ValueError(f"a start with features that are not finite, or at the places {start.places.tolist()}")
