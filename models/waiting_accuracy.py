"""Accuracy of estimates while jobs wait: at fixed ages, the estimate in force and the actual remaining wait."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

WAITING_AGES_S: Final = (600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 24 * 3600.0, 72 * 3600.0)
"""Ages at which pending jobs are scored, in seconds."""

RECENT_JOBS: Final = 500
"""The baseline "recent" is the median remaining wait of this many last jobs that reached the age."""

UPPER_BOUND: Final = "0.9"

MAX_FRESH: Final = 64

_ONE_EACH: Final = Meta(min_length=len(WAITING_AGES_S), max_length=len(WAITING_AGES_S))


class Landmark(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Estimates of a job when it had waited `WAITING_AGES_S[age]`; except `recent_s`, they are whole waits.

    Attributes:
        age: index of the age.
        first_s: the estimate at submission, seconds; None if there was no estimate, or the job was held.
        in_force_s: the latest estimate by then, seconds.
        recent_s: the median remaining wait of recent jobs, seconds.
        bounds: the bounds of the estimate in force.
    """

    age: Annotated[int, Meta(ge=0, lt=len(WAITING_AGES_S))]
    first_s: float | None = None
    in_force_s: float = 0.0
    recent_s: float = 0.0
    bounds: dict[str, float] | None = None


class AgeAccuracy(msgspec.Struct, array_like=True):
    """Sums over the jobs that still waited at an age: absolute errors in seconds, and the covered waits of each bound.

    Attributes:
        jobs: number of jobs that still waited.
        in_force_s: absolute errors of the estimates in force.
        first_s: absolute errors of the estimates at submission.
        now_s: absolute errors of the baseline "it starts now".
        recent_s: absolute errors of the baseline "recent".
        bounded: number of jobs whose estimate in force had bounds.
        passed: number of bounds of 0.9 in force that had passed, or were before the estimate.
        held: number of jobs that started within each bound in force.
    """

    jobs: int = 0
    in_force_s: float = 0.0
    first_s: float = 0.0
    now_s: float = 0.0
    recent_s: float = 0.0
    bounded: int = 0
    passed: int = 0
    held: dict[str, int] = {}

    def add(self, noted: Landmark, wait_s: float) -> None:
        """Add a job with a total wait of `wait_s` seconds."""
        if noted.first_s is None:
            return
        age_s = WAITING_AGES_S[noted.age]
        remaining_s = wait_s - age_s
        self.jobs += 1
        self.in_force_s += abs(max(noted.in_force_s - age_s, 0.0) - remaining_s)
        self.first_s += abs(max(noted.first_s - age_s, 0.0) - remaining_s)
        self.now_s += remaining_s
        self.recent_s += abs(noted.recent_s - remaining_s)
        if noted.bounds is not None and UPPER_BOUND in noted.bounds:
            self.bounded += 1
            upper_s = noted.bounds[UPPER_BOUND]
            self.passed += upper_s < noted.in_force_s or upper_s < age_s
            for name, bound_s in noted.bounds.items():
                self.held[name] = self.held.get(name, 0) + (wait_s <= bound_s)

    def measures(self) -> dict[str, float]:
        """Return the means in hours, the ratio to the better baseline, and the shares of bounds; needs at least one
        job.
        """
        better_s = min(self.now_s, self.recent_s)
        hours = self.jobs * 3600.0
        found = {
            "jobs": float(self.jobs),
            "in_force_h": self.in_force_s / hours,
            "first_h": self.first_s / hours,
            "now_h": self.now_s / hours,
            "recent_h": self.recent_s / hours,
            "ratio": self.in_force_s / better_s if better_s else float("nan"),
        }
        if self.bounded:
            found["expired"] = self.passed / self.bounded
            found |= {f"cov_{q}": held / self.bounded for q, held in sorted(self.held.items(), key=_by_number)}
        return found


def _by_number(item: tuple[str, int]) -> float:
    return float(item[0])


class WaitingAccuracy(msgspec.Struct, array_like=True):
    """The accuracy of the estimates in force at each of `WAITING_AGES_S`.

    >>> accuracy = WaitingAccuracy()
    >>> accuracy.add([Landmark(0, 900.0, 1800.0, 1800.0, {"0.9": 3600.0})], 1200.0)
    >>> row = accuracy.rows()[600.0]
    >>> row["in_force_h"] * 3600, row["now_h"] * 3600, row["ratio"], row["cov_0.9"]
    (600.0, 600.0, 1.0, 1.0)
    """

    ages: Annotated[list[AgeAccuracy], _ONE_EACH] = msgspec.field(
        default_factory=lambda: [AgeAccuracy() for _ in WAITING_AGES_S]
    )

    def add(self, noted: Iterable[Landmark], wait_s: float) -> None:
        """Add a job that left the queue after `wait_s` seconds, with its landmarks."""
        for landmark in noted:
            self.ages[landmark.age].add(landmark, wait_s)

    def rows(self) -> Mapping[float, dict[str, float]]:
        """Return the measures by age in seconds, for the ages that a job has reached."""
        return {age_s: one.measures() for age_s, one in zip(WAITING_AGES_S, self.ages, strict=True) if one.jobs}


class SavedRemaining(msgspec.Struct, array_like=True):
    """Stored form of `RecentRemaining`.

    Attributes:
        remaining_s: by age, the last remaining waits in seconds, as 32-bit floats.
        counts: by age, the total number of remaining waits.
        fresh: the jobs that do not count yet: the times when they left (Unix seconds), and their waits in seconds.
    """

    remaining_s: list[bytes]
    counts: list[int]
    fresh: list[tuple[float, float]] = []


class RecentRemaining:
    """The median remaining wait of the last `RECENT_JOBS` jobs that reached an age.

    A job counts from the moment after it left the queue.

    >>> recent = RecentRemaining()
    >>> recent.add(5000.0, 1000.0)
    >>> recent.median(0, 5000.0), recent.median(0, 5001.0)
    (0.0, 400.0)
    """

    def __init__(self) -> None:
        self._rings = [np.zeros(RECENT_JOBS, np.float32) for _ in WAITING_AGES_S]
        self._counts = [0] * len(WAITING_AGES_S)
        self._sorted: list[list[float]] = [[] for _ in WAITING_AGES_S]
        self._fresh: list[tuple[float, float]] = []

    def add(self, at: float, wait_s: float) -> None:
        """Add a job that left the queue `at` (Unix seconds) after `wait_s` seconds."""
        self._merge(at)
        if wait_s > WAITING_AGES_S[0]:
            self._fresh.append((at, wait_s))
            if len(self._fresh) > MAX_FRESH:
                self._merge(float("inf"))

    def median(self, age: int, at: float) -> float:
        """Return the median of the jobs that left before `at` (Unix seconds), in seconds; 0 without any."""
        self._merge(at)
        values = self._sorted[age]
        middle = len(values) // 2
        if not values:
            return 0.0
        return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2

    def _merge(self, at: float) -> None:
        """Add the jobs that left before `at` to the medians."""
        if not self._fresh or self._fresh[0][0] >= at:
            return
        fresh, self._fresh = self._fresh, []
        for left_at, wait_s in fresh:
            if left_at >= at:
                self._fresh.append((left_at, wait_s))
                continue
            for age in range(bisect_left(WAITING_AGES_S, wait_s)):
                self._push(age, wait_s - WAITING_AGES_S[age])

    def _push(self, age: int, remaining_s: float) -> None:
        ring, values, place = self._rings[age], self._sorted[age], self._counts[age] % RECENT_JOBS
        if self._counts[age] >= RECENT_JOBS:
            del values[bisect_left(values, ring.item(place))]
        ring[place] = remaining_s
        insort(values, ring.item(place))
        self._counts[age] += 1

    def save(self) -> SavedRemaining:
        """Return the stored form; at most 12 KB."""
        rings = [ring[:count].tobytes() for ring, count in zip(self._rings, self._counts, strict=True)]
        return SavedRemaining(rings, list(self._counts), list(self._fresh))

    def load(self, saved: SavedRemaining) -> None:
        """Restore the stored form.

        Raises:
            ValueError: it is invalid.
        """
        if not len(saved.remaining_s) == len(saved.counts) == len(WAITING_AGES_S) or min(saved.counts) < 0:
            raise ValueError(f"remaining waits at {len(saved.remaining_s)} ages; expected {len(WAITING_AGES_S)}")
        for age, (encoded, count) in enumerate(zip(saved.remaining_s, saved.counts, strict=True)):
            remaining_s = np.frombuffer(encoded, np.float32)
            if len(remaining_s) != min(count, RECENT_JOBS) or not np.isfinite(remaining_s).all():
                raise ValueError(f"{len(remaining_s)} finite waits; expected {min(count, RECENT_JOBS)}")
            self._rings[age][: len(remaining_s)] = remaining_s
            self._counts[age], self._sorted[age] = count, sorted(remaining_s.tolist())
        self._fresh = list(saved.fresh)
