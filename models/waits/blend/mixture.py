"""Mixture of the experts' estimates, weighted by recent performance: Bernstein online aggregation.

O. Wintenberger, "Optimal learning with Bernstein online aggregation", Machine Learning 106 (2017): an expert's weight
grows with its regret, the loss of the mixture less its own, at its own learning rate. With the gradients of the
quantile loss the mixture is as good as the best weighted average of the experts, so also as the best of them. Each
quantile is mixed separately (J. Berrisch and F. Ziel, "CRPS learning", Journal of Econometrics 237, 2023). Earlier
regrets fade, so the mixture follows a change of the best expert.

Waits are compared on the scale of the power 0.35. It lies between seconds, where a few long waits dominate, and
logarithms, where a minute matters as much at ten hours as at one. On CTC and KTH its mean error was lower than on the
fourth root, with as many waits within a factor of 2.
"""

from typing import NamedTuple

import numpy as np

from models.arrays import Floats
from models.kernels import njit

UNIT_S = 10.0
"""Below this the scale is linear: single seconds matter where half of the jobs start within a few."""

EXPONENT = 0.35
"""Exponent of the scale."""

LONGEST_S = 1e10

MIN_EXTENT = 1e-3
MIN_SQUARES = 10.0
"""Initial sum of squared regrets: small, so the first regrets set the rate."""

EAGERNESS = 0.25
"""Learning rate of the weights, as a share of the optimum in the worst case."""

MAX_EXPONENT = 50.0
"""Minimum of the weights: exp(-50) of the largest."""

SITE_JOBS, KIND_JOBS = 5000.0, 3000.0
"""After this many jobs the weight of a regret is 1/e: for the site, and for a kind of job."""

TRUSTED_JOBS = 200.0
"""Jobs of a kind after which its own weights count as much as the site's."""

SITE_SHARE = 0.3
"""Step of one job for the shift of the site, as a share of its step for that of its kind."""

FLOOR = 1e-4
"""Minimum added to the site's weights in a kind's prior, so that no expert is excluded by it."""


@njit(cache=True)
def scaled(wait_s: float) -> float:
    """A wait in seconds on the scale.

    >>> [round(scaled(wait_s), 3) for wait_s in (0.0, 150.0, 3600.0)]
    [0.0, 1.639, 6.855]
    """
    return float((1.0 + wait_s / UNIT_S) ** EXPONENT - 1.0)


@njit(cache=True)
def seconds(value: float) -> float:
    """The inverse of `scaled`; what is below 0 is 0.

    >>> round(seconds(scaled(150.0)), 6), seconds(-1.0)
    (150.0, 0.0)
    """
    return float(min(UNIT_S * ((1.0 + max(value, 0.0)) ** (1.0 / EXPONENT) - 1.0), LONGEST_S))


class MixtureState(NamedTuple):
    """Learned state for each kind of job, quantile and expert. Kind 0 is the whole site.

    `total` (kinds, quantiles, experts) is the sum of the regrets less their second order, `squares` the sum of their
    squares, and `extent` the largest recent one. `seen` (kinds, quantiles) counts the jobs. `shift` is added to the
    mixture, on the scale; after its rows of the kinds come those of each kind's bursts, without the site.
    """

    total: Floats
    squares: Floats
    extent: Floats
    seen: Floats
    shift: Floats

    @classmethod
    def empty(cls, kinds: int, quantiles: int, experts: int) -> "MixtureState":
        """Return the state before any job."""
        each, shape = (kinds, quantiles, experts), (kinds, quantiles)
        shift = np.zeros((2 * kinds - 1, quantiles))
        return cls(np.zeros(each), np.zeros(each), np.full(each, MIN_EXTENT), np.zeros(shape), shift)


class MixedEstimate(NamedTuple):
    """A mixture on the scale: by the site's weights, by those of the job's kind, and by both."""

    site: float
    kind: float
    both: float


@njit(cache=True)
def weights(prior: Floats, total: Floats, squares: Floats, extent: Floats) -> Floats:
    """Return the experts' weights, (experts,). An expert with prior 0 has no estimate now and weight 0. O(experts)."""
    count = len(prior)
    found, logs, best = np.zeros(count), np.zeros(count), -np.inf
    for k in range(count):
        if prior[k] > 0.0:
            rate = _rate(count, squares[k], extent[k])
            logs[k] = np.log(prior[k] * rate) + rate * total[k]
            best = max(best, logs[k])
    for k in range(count):
        if prior[k] > 0.0:
            found[k] = np.exp(max(logs[k] - best, -MAX_EXPONENT))
    whole = found.sum()
    if whole > 0.0:
        for k in range(count):
            found[k] /= whole
    return found


@njit(cache=True)
def _rate(experts: int, squares: float, extent: float) -> float:
    return float(min(0.5 / extent, EAGERNESS * np.sqrt(np.log(experts + 1.0) / (squares + MIN_SQUARES))))


@njit(cache=True)
def mix(estimates: Floats, prior: Floats, learnt: MixtureState, kind: int, q: int) -> MixedEstimate:
    """Mix the experts' estimates, (experts,) on the scale; nan: none. The result is nan if there are none."""
    heard, own = np.zeros(len(estimates)), np.zeros(len(estimates))
    for k in range(len(estimates)):
        if not np.isnan(estimates[k]):
            heard[k] = prior[k]
    if heard.sum() <= 0.0:
        return MixedEstimate(np.nan, np.nan, np.nan)
    by_site = weights(heard, learnt.total[0, q], learnt.squares[0, q], learnt.extent[0, q])
    for k in range(len(estimates)):
        if heard[k] > 0.0:
            own[k] = by_site[k] + FLOOR
    by_kind = weights(own, learnt.total[kind, q], learnt.squares[kind, q], learnt.extent[kind, q])
    site = own_value = 0.0
    for k in range(len(estimates)):
        if heard[k] > 0.0:
            site += by_site[k] * estimates[k]
            own_value += by_kind[k] * estimates[k]
    trust = learnt.seen[kind, q] / (learnt.seen[kind, q] + TRUSTED_JOBS)
    return MixedEstimate(site, own_value, (1.0 - trust) * site + trust * own_value)


@njit(cache=True)
def learn(
    learnt: MixtureState,
    kind: int,
    q: int,
    probability: float,
    estimates: Floats,
    mixed: MixedEstimate,
    held: bool,
    weight: float,
) -> None:
    """Update the weights with a job: `held` is whether its wait is within the mixture by both. O(experts).

    This is certain at its start, or as soon as it has waited longer. The job counts as `weight` jobs.
    """
    slope = 1.0 - probability if held else -probability
    _learn(learnt, np.int64(0), q, estimates, mixed.site, slope, SITE_JOBS, weight)
    _learn(learnt, kind, q, estimates, mixed.kind, slope, KIND_JOBS, weight)


@njit(cache=True)
def _learn(
    learnt: MixtureState, kind: int, q: int, estimates: Floats, mixed: float, slope: float, memory: float, weight: float
) -> None:
    total, squares, extent = learnt.total[kind, q], learnt.squares[kind, q], learnt.extent[kind, q]
    keep = 1.0 - weight / memory
    for k in range(len(estimates)):
        if not np.isnan(estimates[k]):
            regret = weight * slope * (mixed - estimates[k])
            rate = _rate(len(estimates), squares[k], extent[k])
            total[k] = keep * total[k] + regret - rate * regret * regret
            squares[k] = keep * squares[k] + regret * regret
            extent[k] = max(extent[k] * keep, abs(regret), MIN_EXTENT)
    learnt.seen[kind, q] += weight


@njit(cache=True)
def follow(learnt: MixtureState, row: int, q: int, probability: float, step: float, held: bool) -> None:
    """Move the shift: up where a bound was exceeded, by a smaller step down where it held.

    A quantile tracker (A. Angelopoulos, E. Candès, R. Tibshirani, "Conformal PID control for time series prediction",
    NeurIPS 2023; I. Gibbs, E. Candès, "Adaptive conformal inference under distribution shift", NeurIPS 2021). For any
    sequence of waits, the coverage converges to the bound's probability, for each kind of job.
    """
    moved = step * (probability - 1.0 if held else probability)
    learnt.shift[0, q] += SITE_SHARE * moved
    learnt.shift[row, q] += moved
