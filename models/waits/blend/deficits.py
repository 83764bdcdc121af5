"""Deficits in the coverage of the upper bounds, and the corrections that follow from them.

The shifts of the bounds follow the last jobs. Deficits adapt more slowly: they are averages over thousands of jobs,
outside of bursts and within them, and over the bursts of each user. The excess over all bursts is accumulated in a sum,
and so is the excess of the other jobs of each queue. A job counts as soon as it has waited longer than its bound.
"""

import numpy as np

from models.arrays import Floats
from models.kernels import njit
from models.waits.blend.mixture_snapshot import PROBABILITIES, QUANTILES

BURST_WEIGHT = 0.04
"""Jobs with a lower weight, with 25 of their user before them, have their own shifts of the upper bounds. The bounds of
a burst hold or fail together, before the outcome of any is certain. Each job therefore moves these shifts by its share
of that weight. Else hundreds of jobs that start at the same time would undo what the burst before has taught, and a
bound would be only as wide as the last one."""

DEFICIT_JOBS, CATCH_UP = 5000.0, 2.0
"""Number of jobs over which the deficit in the coverage of an upper bound is averaged; and the additional coverage that
corrects it, as a factor of the deficit."""

FIRST_JOBS = 1000.0
"""The initial deficit of bursts counts as this many jobs."""

BURST_DEFICIT, WIDER, WIDEST = 0.04, 4.0, 0.3
"""Initial deficit of the jobs of bursts. A higher deficit widens their upper bounds, on the scale: by `WIDER` times the
excess, as a share of them, at most by `WIDEST`. The shifts forget a burst within a hundred jobs; the deficit covers
thousands."""

SUM_STEP, SUM_LEAST, SUM_MOST = 0.005, -0.5, 6.0
"""Step by which a job of a burst moves the shift of the bounds of bursts, up or down, on the scale; and its limits. The
sum does not fade, so that in the long run the coverage is right, even if the experts are too confident (the integrator
of Angelopoulos, Candès and Tibshirani 2023, as in `follow`)."""

QUEUE_STEP, QUEUE_LEAST, QUEUE_MOST = 0.03, -0.5, 2.0
"""The same for the jobs of one queue outside of bursts, with its limits. The other shifts are those of the kinds of
jobs in any queue. If a queue's jobs wait longer or shorter than others of their kind, its bounds would have a wrong
coverage for ever. The limits change a bound of 0 to 4 min, and of 10 h to 14 h or 9 h. A queue that has been empty for
long is no evidence about its waits when it is full, so a bound of 0 that holds does not count."""

SUM = 2
"""The row of the deficits with these sums, after those outside of bursts and in them."""

USER_FIRST, USER_JOBS = 100.0, 1000.0
"""As `FIRST_JOBS` and `DEFICIT_JOBS`, for the jobs of one user's bursts, with an initial deficit of 0."""

USER_WIDER, USER_NARROWEST, USER_SHARES = 2.0, 0.1, (0.0, 0.0, 1.0, 0.5)
"""Factor by which the deficit of a user's bursts widens their bounds, at most by `WIDEST`. They become narrower if the
coverage is too high, at most by the second value. The last value is the share of this for each bound. Users whose
bursts got too low bounds will get them again, so the next job of a burst that exceeds its bound gets a wider one
immediately."""

NOBODY = np.zeros((2, QUANTILES))
"""State of a user without bursts: deficits, and the number of jobs behind them, (2, quantiles)."""

NO_QUEUE = np.zeros(QUANTILES)
"""State of a queue without data: the shift of its bounds outside of bursts, (quantiles,)."""


@njit(cache=True)
def in_burst(weight: float) -> int:
    """Return the row of a job's deficits: 1 in a burst, else 0."""
    return 1 if weight < BURST_WEIGHT else 0


@njit(cache=True)
def count(
    deficits: Floats, counted: Floats, bursts: Floats, queue: Floats, weight: float, q: int, bound_s: float, held: bool
) -> None:
    """Update the deficits with whether a job's bound covered its wait; a bound is exceeded before the start."""
    row, excess = in_burst(weight), PROBABILITIES[q] - (1.0 if held else 0.0)
    counted[row, q] += 1.0
    jobs = min(counted[row, q] + FIRST_JOBS, DEFICIT_JOBS) if row else DEFICIT_JOBS
    deficits[row, q] += (excess - deficits[row, q]) / jobs
    if row:
        deficits[SUM, q] = min(max(deficits[SUM, q] + SUM_STEP * excess, SUM_LEAST), SUM_MOST)
        bursts[1, q] += 1.0
        bursts[0, q] += (excess - bursts[0, q]) / min(bursts[1, q] + USER_FIRST, USER_JOBS)
    elif not (held and bound_s <= 0.0):
        queue[q] = min(max(queue[q] + QUEUE_STEP * excess, QUEUE_LEAST), QUEUE_MOST)


@njit(cache=True)
def adjusted_bound(value: float, q: int, deficits: Floats, of_user: float) -> float:
    """Return the upper bound of a burst's job, on the scale, adjusted by the deficits."""
    by_user = min(max(USER_WIDER * of_user, -USER_NARROWEST), WIDEST)
    by_all = min(WIDER * max(deficits[1, q] - BURST_DEFICIT, 0.0), WIDEST)
    return float(value * (1.0 + by_all + USER_SHARES[q] * by_user) + deficits[SUM, q])


@njit(cache=True)
def aim(q: int, deficits: Floats) -> float:
    """Return the target coverage of the bound at this place: higher than nominal where past coverage was too low.

    This is adaptive conformal inference (Gibbs and Candès 2021). The coverage of the current bounds, where these have
    moved by `FAR`, misses the jobs of a burst that exceeded the bounds published for them. The deficits count these
    jobs.
    """
    rest = 1.0 - PROBABILITIES[q]
    wanted = PROBABILITIES[q] + CATCH_UP * deficits[q]
    return float(min(max(wanted, PROBABILITIES[q] - rest / 2.0), 1.0 - rest / 4.0))
