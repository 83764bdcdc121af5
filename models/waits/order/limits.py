"""What users may have running at most, found from what is never started though it could be.

At each submission, a queued job that would start at once by the simulated schedule, and has not, was refused something.
Where jobs are refused above some number of processors (or of jobs) that their user would hold, and hardly any start
there, that number is a limit. A site that merely prefers some jobs has starts on both sides.
"""

import numpy as np
from numpy.typing import NDArray

from models.waits.order.schedule import Limits

Counts = NDArray[np.float32]

STEPS = 100
"""Of shares of the machine, or numbers of jobs, up to which it is counted."""

ALONE, SEVERAL, JOBS = 0, 1, 2
"""Of a user's only running job, the share of the machine; of one beside others, their share together; and how many."""

KEPT = 0.999
"""What is kept of earlier counts at each start: sites change their limits."""

MIN_REFUSED = 20.0
"""Refusals above a limit, counted once a user and submission."""

MAX_STARTED = 0.03
"""Starts above a limit at most, as a share of the refusals there."""

MAX_REFUSED_BELOW = 0.02
"""Refusals just below a limit at most, as a share of those above where starts end."""


class LimitsSeen:
    """How many jobs were started and refused, by what their users would then have held: arrays of (3, `STEPS` + 1).

    >>> seen = LimitsSeen()
    >>> for _ in range(30):
    ...     seen.started(held=20, runs=1, cpus=20, site_cpus=100)
    ...     seen.refused(held=40, runs=2, cpus=1, site_cpus=100)
    >>> seen.limits(site_cpus=100)[:3]
    (inf, 40.0, 2.0)
    """

    def __init__(self) -> None:
        self._started: Counts = np.zeros((3, STEPS + 1), np.float32)
        self._refused: Counts = np.zeros((3, STEPS + 1), np.float32)
        self._found: tuple[float, ...] | None = None  # the limits as steps, until something is counted

    def started(self, held: int, runs: int, cpus: int, site_cpus: int) -> None:
        """A job of so many processors has started, whose user held so many, with so many running jobs."""
        self._found = None
        self._started *= KEPT
        self._refused *= KEPT
        _count(self._started, held, runs, cpus, site_cpus)

    def refused(self, held: int, runs: int, cpus: int, site_cpus: int) -> None:
        """A job of so many processors could have started, and has not."""
        self._found = None
        _count(self._refused, held, runs, cpus, site_cpus)

    def limits(self, site_cpus: int) -> Limits:
        """The limits that have been found; 20 µs where something was counted since."""
        if self._found is None:
            self._found = tuple(limit_of(*counts) for counts in zip(self._started, self._refused, strict=True))
        alone, several, jobs = self._found
        return Limits(alone * site_cpus / STEPS, several * site_cpus / STEPS, jobs)

    def save(self) -> bytes:
        """The counts."""
        return self._started.tobytes() + self._refused.tobytes()

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
        self._started, self._refused = np.frombuffer(saved, np.float32).reshape(2, *self._started.shape).copy()
        self._found = None


def _count(counts: Counts, held: int, runs: int, cpus: int, site_cpus: int) -> None:
    counts[SEVERAL if runs else ALONE, step_of(held + cpus, site_cpus, STEPS)] += 1
    counts[JOBS, min(runs + 1, STEPS)] += 1


def step_of(cpus: int, site_cpus: int, steps: int) -> int:
    """The share of the machine that these processors are, as one of so many steps, rounded up."""
    return min(-(-cpus * steps // max(site_cpus, 1)), steps)


def limit_of(started: Counts, refused: Counts) -> float:
    """The step up to which jobs are started; infinity where there is no limit."""
    starts_above, refused_above = _above(started), _above(refused)
    found = np.flatnonzero((refused_above >= MIN_REFUSED) & (starts_above <= MAX_STARTED * refused_above))
    if not len(found):
        return np.inf
    lowest = int(found[0])
    below = refused_above[lowest] - refused_above[lowest:]
    return float(lowest + np.flatnonzero(below <= MAX_REFUSED_BELOW * refused_above[lowest])[-1])


def _above(counts: Counts) -> Counts:
    """Of each step, the sum of the counts above it."""
    return np.asarray(np.cumsum(counts[::-1], dtype=np.float32)[::-1] - counts)
