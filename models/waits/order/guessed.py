"""Estimate of the priority that the scheduler would give a hypothetical job, from the priorities of queued jobs.

It has no state: it is fitted to the current queue. A priority is modelled as the sum of a term of its user, a term of
its queue and QOS, and slopes of age, size and length. A user without a queued job is ranked among the users with queued
jobs by usage.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from models.arrays import Floats, Ints
from models.durations import DAY_S
from models.linear import dot, gram, moments, products, solve
from models.waits.order.order_features import MIN_PLANNED_S, QueuedJobs

AGES_D = (1.0, 7.0, np.inf)  # days after which age may have no more effect; each has a slope of its own

SCALES = (*(3.0 for _ in AGES_D), 0.25, 4.0, 0.025)
"""Factors of the age in days, log2 of CPUs, the share of the machine and log2 of the planned run time: the expected
size of their slopes."""

NOISE = 1e-3  # added to the squares of factors, so that a few jobs give no steep slope
MOST_KINDS = 12  # maximum number of queues with QOS that have a term of their own, the first in the queue

MIN_USERS, MIN_EXPLAINED = 3, 0.5
"""Minimum number of users with queued jobs, and the share of the variance of their terms that usage must explain."""


@dataclass(frozen=True, eq=False)
class PriorityModel:
    """The fitted model.

    Attributes:
        site_cpus: the size of the site.
        kinds: queues with QOS, by number.
        slopes: the coefficients, those of the kinds last.
        users: the terms of users with queued jobs, by code; NaN: no job.
        half: the half-life of the usage in `used`.
        used: usage of users, ascending; empty where it does not explain their terms.
        worth: the terms of users with this usage.
    """

    site_cpus: int
    kinds: dict[Hashable, int]
    slopes: Floats
    users: Floats
    half: int
    used: Floats
    worth: Floats

    @classmethod
    def of(cls, queued: QueuedJobs, kinds: Sequence[Hashable], used: Floats, site_cpus: int) -> "PriorityModel":
        """Fit the priorities of these jobs, which must all be reported; O(jobs).

        Args:
            queued: the jobs.
            kinds: the queue and QOS of each job.
            used: the usage of users, by code, (codes, half-lives).
            site_cpus: the size of the site.
        """
        numbers: dict[Hashable, int] = {}
        for kind in kinds:
            if len(numbers) < MOST_KINDS:
                numbers.setdefault(kind, len(numbers))
        factors = _factors(queued, kinds, numbers, site_cpus)
        jobs = np.bincount(queued.user, minlength=len(used)).astype(np.float64)
        inside = factors - _means(factors, queued.user, jobs)[queued.user]
        priority = queued.priority[:, None]
        varying = (priority - _means(priority, queued.user, jobs)[queued.user])[:, 0]
        spread = NOISE * np.eye(factors.shape[1])
        slopes = solve(gram(inside) + spread, moments(inside, varying))
        users = _means(priority - products(factors, slopes)[:, None], queued.user, jobs)[:, 0]
        users[jobs == 0] = np.nan
        found = cls(site_cpus, numbers, np.asarray(slopes, np.float64), users, 0, *np.empty((2, 0)))
        return found._by_usage(queued.user, used)

    def _by_usage(self, user: Ints, used: Floats) -> "PriorityModel":
        """Return a copy with the users' terms by usage, over the half-life that explains them best."""
        codes = np.array(list(dict.fromkeys(user.tolist())))  # in an order that a restart does not change
        best, explained = self, MIN_EXPLAINED
        if len(codes) < MIN_USERS:
            return self
        worth = self.users[codes]
        whole = float(((worth - worth.mean()) ** 2).sum())
        for half in range(used.shape[1]):
            steps, which, many = np.unique(used[codes, half], return_inverse=True, return_counts=True)
            fitted = _descending(np.asarray(np.bincount(which, worth) / many), many.astype(np.float64))
            unexplained = float(((worth - fitted[which]) ** 2).sum())
            if whole > 0.0 and 1.0 - unexplained / whole > explained:
                explained = 1.0 - unexplained / whole
                best = PriorityModel(self.site_cpus, self.kinds, self.slopes, self.users, half, steps, fitted)
        return best

    def priority(self, queued: QueuedJobs, kind: Hashable, used: Floats) -> float:
        """Return the priority of the last of these jobs; NaN if its user has no term.

        A user with less usage than all others comes before them.
        """
        user = int(queued.user[-1])
        worth = float(self.users[user]) if user < len(self.users) else np.nan
        if np.isnan(worth) and len(self.used):
            its = float(used[user, self.half])
            worth = np.inf if its < self.used[0] else float(np.interp(its, self.used, self.worth))
        last = QueuedJobs._make(column[-1:] for column in queued)
        factors = np.ascontiguousarray(_factors(last, [kind], self.kinds, self.site_cpus)[0])
        return float(worth + dot(factors, np.ascontiguousarray(self.slopes)))


def _factors(queued: QueuedJobs, kinds: Sequence[Hashable], numbers: dict[Hashable, int], site_cpus: int) -> Floats:
    """Return the regressors of the slopes, (jobs, `SCALES` + kinds)."""
    age_d = np.maximum(queued.age_s, 0.0) / DAY_S
    found = np.zeros((len(age_d), len(SCALES) + len(numbers)))
    for place, most_d in enumerate(AGES_D):
        found[:, place] = np.minimum(age_d, most_d)
    after = len(AGES_D)
    found[:, after] = np.log2(queued.cpus)
    found[:, after + 1] = queued.cpus / max(site_cpus, 1)
    found[:, after + 2] = np.log2(np.maximum(queued.planned_s, MIN_PLANNED_S))
    found[:, : len(SCALES)] *= SCALES
    for job, kind in enumerate(kinds):
        if kind in numbers:
            found[job, len(SCALES) + numbers[kind]] = 1.0
    return found


def _means(values: Floats, code: Ints, many: Floats) -> Floats:
    """Return the means of the rows by their codes, (codes, columns), 0 for a code without rows."""
    sums = np.stack([np.bincount(code, column, len(many)) for column in values.T], axis=1)
    return np.asarray(sums / np.maximum(many, 1.0)[:, None])


def _descending(values: Floats, weights: Floats) -> Floats:
    """Return the nearest non-increasing values by least squares, by pooling adjacent violators."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        mean, whole, length = value, weight, 1
        while blocks and blocks[-1][0] < mean:
            before, its, more = blocks.pop()
            mean, whole, length = (mean * whole + before * its) / (whole + its), whole + its, length + more
        blocks.append((mean, whole, length))
    return np.repeat([mean for mean, _, _ in blocks], [length for _, _, length in blocks])
