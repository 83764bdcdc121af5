"""Limits on users' running jobs, and the scheduler's depth, inferred from jobs that could start but never do.

At each submission, a queued job that would start immediately in the simulated schedule, and has not, was refused. Where
jobs are refused above some number of CPUs (or of jobs) that their user would hold, and hardly any start there, that
number is a limit. A site that merely prefers some jobs has starts on both sides. The same is counted by the place in
the queue, for the first job that no limit found so far blocks. Many schedulers consider only the first jobs, and a
scheduler without backfill only the very first.
"""

import numpy as np

from models.arrays import Singles
from models.kernels import njit
from models.waits.order.schedule import Limits

Counts = Singles

STEPS = 100
"""Number of steps of the share of the machine, or of the number of jobs, up to which jobs are counted."""

STARTED, REFUSED = 0, 1

ALONE, SEVERAL, JOBS, PLACE = 0, 1, 2, 3
"""Indices of the counts: the share of the machine of a user's only running job; the users' total share with several
jobs; the number of jobs; and the place in the learned order, from 1, among those that no limit blocks."""

ONCE = np.int64(1)
"""One, as a constant: a literal 1 would make numba compile the kernels again."""

FADING = 0.999
"""Factor of earlier counts at each start: sites change their limits."""

MIN_REFUSED = 20.0
"""Refusals above a limit, counted once a user and submission."""

MAX_STARTED = 0.03
"""Maximum number of starts above a limit, as a share of the refusals there."""

MAX_REFUSED_BELOW = 0.02
"""Maximum number of refusals just below a limit, as a share of those above where starts end."""


class LimitsSeen:
    """Numbers of started and refused jobs, by the usage that their users would then have had: (4, `STEPS` + 1) each.

    >>> seen = LimitsSeen()
    >>> for _ in range(30):
    ...     seen.started(held=20, runs=1, cpus=20, site_cpus=100)
    ...     count(seen.counts[REFUSED], 40, 2, 1, 100, 1)
    >>> seen.limits(site_cpus=100)[:3]
    (inf, 40.0, 2.0)
    """

    def __init__(self) -> None:
        self.counts: Counts = np.zeros((2, 4, STEPS + 1), np.float32)
        """Counts of started jobs, then of refused ones."""

    def started(self, held: int, runs: int, cpus: int, site_cpus: int) -> None:
        """Count the start of a job of `cpus` CPUs, whose user held `held` CPUs in `runs` running jobs."""
        self.counts *= np.float32(FADING)
        count(self.counts[STARTED], held, runs, cpus, site_cpus, 1)

    def limits(self, site_cpus: int) -> Limits:
        """Return the limits found."""
        alone, several, jobs, depth = limits_of(self.counts, site_cpus)
        return Limits(alone, several, jobs, depth=depth)


@njit(cache=True, nogil=True)
def count(counts: Counts, held: int, runs: int, cpus: int, site_cpus: int, times: int) -> None:
    """Add `times` jobs of this kind to the counts, (4, `STEPS` + 1)."""
    count_cpus(counts, held, runs, cpus, site_cpus, times)
    count_jobs(counts, runs, times)


@njit(cache=True, nogil=True)
def count_cpus(counts: Counts, held: int, runs: int, cpus: int, site_cpus: int, times: int) -> None:
    """Add only the CPUs of such a job."""
    counts[SEVERAL if runs > 0 else ALONE, step_of(held + cpus, site_cpus, counts.shape[1] - 1)] += times


@njit(cache=True, nogil=True)
def count_jobs(counts: Counts, runs: int, times: int) -> None:
    """Add the number of running jobs that its user would then have."""
    counts[JOBS, min(runs + 1, STEPS)] += times


@njit(cache=True, nogil=True)
def step_of(cpus: int, site_cpus: int, steps: int) -> int:
    """Return the share of the machine that these CPUs are, as one of `steps` steps, rounded up."""
    return min(-(-cpus * steps // max(site_cpus, 1)), steps)


@njit(cache=True, nogil=True)
def count_place(counts: Counts, place: int, times: int) -> None:
    """Add `times` jobs at this place to the counts, (4, `STEPS` + 1)."""
    counts[PLACE, min(place, counts.shape[1] - 1)] += times


@njit(cache=True, nogil=True)
def limits_of(counts: Counts, site_cpus: int) -> tuple[float, float, float, float]:
    """Return a user's limits and the scheduler's depth; infinity for no limit.

    Returns:
        The CPUs of one running job, the CPUs of several, the number of running jobs, and the number of queued jobs
        that the scheduler considers.
    """
    alone = limit_of(counts[STARTED, ALONE], counts[REFUSED, ALONE])
    several = limit_of(counts[STARTED, SEVERAL], counts[REFUSED, SEVERAL])
    jobs = limit_of(counts[STARTED, JOBS], counts[REFUSED, JOBS])
    depth = limit_of(counts[STARTED, PLACE], counts[REFUSED, PLACE])
    return alone * site_cpus / STEPS, several * site_cpus / STEPS, jobs, depth


@njit(cache=True, nogil=True)
def limit_of(started: Counts, refused: Counts) -> float:
    """Return the step up to which jobs are started; infinity where there is no limit. O(steps)."""
    starts, refusals = above(started), above(refused)
    for lowest in range(len(starts)):
        most = refusals[lowest]
        if most >= np.float32(MIN_REFUSED) and starts[lowest] <= np.float32(MAX_STARTED) * most:
            step = len(starts) - 1
            while most - refusals[step] > np.float32(MAX_REFUSED_BELOW) * most:
                step -= 1
            return float(step)
    return np.inf


@njit(cache=True, nogil=True)
def above(counts: Counts) -> Counts:
    """Return for each step the sum of the counts above it, in the precision of float32."""
    found, whole = np.empty_like(counts), np.float32(0.0)
    for step in range(len(counts) - 1, -1, -1):
        whole += counts[step]
        found[step] = whole - counts[step]
    return found
