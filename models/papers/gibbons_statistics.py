"""The statistics of the Historical Profiler: its fit of T(p), and how sure means are (Gibbons 1997, section 4.3.3)."""

import math
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from models.arrays import Floats

CONFIDENCE = 0.95
"""The confidence of the intervals that go out with predictions: that of the thesis' schedulers (section 5.3)."""

MIN_RUNS = 2  # runs in a range before their mean is believed: with fewer there is no telling how sure it is
COEFFICIENTS = 3  # the coefficients of T(p): this many ranges must have runs for a fit


class Sample(msgspec.Struct, frozen=True):
    """What was observed of some runs: how many, and the mean and the deviation of their run times, in seconds."""

    count: int
    mean: float
    deviation: float

    def error(self) -> float:
        """Half the width of the mean's confidence interval, by Student's t; infinite for a single run."""
        if self.count < MIN_RUNS:
            return math.inf
        return student(self.count - 1, (1 + CONFIDENCE) / 2) * self.deviation / math.sqrt(self.count)


def student(freedom: float, probability: float) -> float:
    """The quantile of Student's t distribution with `freedom` degrees of freedom; 1 µs."""
    return float(stdtrit(freedom, probability))


class ExecutionTime(NamedTuple):
    """T(p) of a job, in seconds, and how sure it is.

    `coefficients` are φW, α and β; `root` (3, 3) is R⁻¹ of X'V⁻¹X = R'R, `observations` the number of runs behind it.
    """

    coefficients: Floats
    root: Floats
    observations: int

    @classmethod
    def fitted(
        cls, cpus: npt.ArrayLike, times: npt.ArrayLike, variances: npt.ArrayLike, observations: int
    ) -> "ExecutionTime | None":
        """The fit through n mean run times, on `cpus` processors each; `variances` are those of the means.

        None where the three terms cannot be told apart: at least three different numbers of processors are needed.

        >>> function = ExecutionTime.fitted([1, 4, 8], [8350, 2500, 1700], [4175**2, 1250**2, 850**2], 60)
        >>> function.coefficients.round(6), round(function.estimate_time(16)[0], 6)
        (array([8000.,  300.,   50.]), 1600.0)
        """
        weights = 1 / np.sqrt(np.asarray(variances, np.float64))
        design = _terms(np.asarray(cpus, np.float64)) * weights
        q, r = np.linalg.qr(design.T)  # of V^(-½)X, whose squares the normal equations would lose digits to
        if r.shape[0] < COEFFICIENTS or np.abs(r.diagonal()).min() < 1e-12 * np.abs(r).max():
            return None
        root = np.linalg.inv(r)
        return cls(root @ (q.T @ (np.asarray(times, np.float64) * weights)), root, observations)

    def estimate_time(self, cpus: float) -> tuple[float, float]:
        """T(p) in seconds, and half the width of its confidence interval."""
        terms = _terms(np.float64(cpus))
        deviation = float(np.linalg.norm(terms @ self.root))
        return float(terms @ self.coefficients), student(self.observations, (1 + CONFIDENCE) / 2) * deviation


def _terms(cpus: Floats | np.float64) -> Floats:
    """What φW, α and β are multiplied with."""
    return np.array([1 / cpus, np.ones_like(cpus), cpus])
