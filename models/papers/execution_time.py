"""Means of run times with their confidence, and the execution time function, by Gibbons (1997).

See `models.papers.gibbons`, which uses them.
"""

import math
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from models.arrays import Floats
from models.linear import dot, inverse_of_triangle, moments, orthogonalize, products

CONFIDENCE = 0.95
"""The confidence of the intervals of predictions: that of the thesis' schedulers (section 5.3)."""

MIN_RUNS = 2  # runs in a range before its mean is used: with fewer, its confidence interval is not defined


class Sample(msgspec.Struct, frozen=True):
    """Summary of observed runs: their number, and the mean and standard deviation of their run times, in seconds."""

    count: int
    mean: float
    deviation: float

    def error(self, confidence: float = CONFIDENCE) -> float:
        """Half the width of the mean's confidence interval, by Student's t; infinite for a single run."""
        if self.count < MIN_RUNS:
            return math.inf
        return student(self.count - 1, (1 + confidence) / 2) * self.deviation / math.sqrt(self.count)


def student(freedom: float, probability: float) -> float:
    """Return the quantile of Student's t distribution with `freedom` degrees of freedom."""
    return float(stdtrit(freedom, probability))


def welch(x: Sample, y: Sample, difference_s: float) -> tuple[float, float]:
    """Section 4.3.3: the statistic t of the hypothesis μx - μy > d0, and its degrees of freedom v.

    Both samples have two runs or more. Where neither varies t is infinite, with the sign of what is observed.
    """
    excess = x.mean - y.mean - difference_s
    of_x, of_y = x.deviation**2 / x.count, y.deviation**2 / y.count
    if of_x + of_y == 0:
        return math.copysign(math.inf, excess) if excess else 0.0, x.count + y.count - 2
    share = of_x / (of_x + of_y)
    freedom = 1 / (share**2 / (x.count - 1) + (1 - share) ** 2 / (y.count - 1))
    return excess / math.sqrt(of_x + of_y), freedom


def runs_longer(x: Sample, y: Sample, difference_s: float = 0.0, confidence: float = CONFIDENCE) -> bool:
    """Test whether jobs like x run on average more than `difference_s` longer than jobs like y, at this confidence."""
    statistic, freedom = welch(x, y, difference_s)
    return statistic > student(freedom, confidence)


class ExecutionTime(NamedTuple):
    """T(p) of a job, in seconds, with its uncertainty.

    `coefficients` are φW, α and β; `root` (3, 3) is R⁻¹ of X'V⁻¹X = R'R, `observations` the number of runs behind it.
    """

    coefficients: Floats
    root: Floats
    observations: int

    @classmethod
    def fitted(
        cls, cpus: npt.ArrayLike, times: npt.ArrayLike, variances: npt.ArrayLike, observations: int
    ) -> "ExecutionTime | None":
        """Fit the function through mean run times on `cpus` CPUs each.

        Args:
            cpus: the CPUs of each mean.
            times: the means, in seconds.
            variances: the variances of the means.
            observations: number of runs behind the means.

        Returns:
            The function; None if its three terms cannot be separated, with fewer than three different numbers of CPUs.

        >>> function = ExecutionTime.fitted([1, 4, 8], [8350, 2500, 1700], [4175**2, 1250**2, 850**2], 60)
        >>> function.coefficients.round(6), round(function.estimate_time(16)[0], 6)
        (array([8000.,  300.,   50.]), 1600.0)
        """
        weights = 1 / np.sqrt(np.asarray(variances, np.float64))
        design = _terms(np.asarray(cpus, np.float64)) * weights
        q, r = orthogonalize(design.T)  # of V^(-½)X, since the normal equations square it and lose digits
        if np.abs(r.diagonal()).min() < 1e-12 * np.abs(r).max():
            return None
        root = inverse_of_triangle(r)
        shares = moments(q, np.asarray(times, np.float64) * weights)
        return cls(products(root, shares), root, observations)

    def estimate_time(self, cpus: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """T(p) in seconds, and half the width of its confidence interval."""
        terms = _terms(np.float64(cpus))
        scaled = moments(self.root, terms)
        deviation = math.sqrt(dot(scaled, scaled))
        return dot(terms, self.coefficients), student(self.observations, (1 + confidence) / 2) * deviation


def _terms(cpus: Floats | np.float64) -> Floats:
    """Return the regressors of φW, α and β: 1/p, 1 and p."""
    return np.array([1 / cpus, np.ones_like(cpus), cpus])
