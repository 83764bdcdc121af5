"""Probability of an immediate start: a wait of less than a minute."""

from typing import NamedTuple

import numpy as np

from models.arrays import Floats
from models.durations import AT_ONCE_S
from models.kernels import njit

RATE = 0.3
"""Learning rate of the regression: the first jobs move a coefficient by this much, later ones by less (AdaGrad)."""

BINS, BIN_RATE = 8, 0.05
"""Ranges of the regression's result that are corrected separately, and the step of one job for the correction."""

MAX_LOGIT = 6.0
"""Limit of the logit of a probability."""

SOFT_S, MAX_FAR = 10.0, 4.0
"""Waits are compared with a minute by their logarithms, after `SOFT_S` seconds are added to both. The difference is
limited to `MAX_FAR`, which is over an hour."""


class ImmediateStartState(NamedTuple):
    """Learned coefficients, the squares of their gradients, and the correction of each range of probability."""

    coefficients: Floats
    squares: Floats
    corrections: Floats


class ImmediateStartModel:
    """Online logistic regression on the distance of each estimate and bound from one minute.

    The coefficients are trained by AdaGrad (J. Duchi, E. Hazan, Y. Singer, JMLR 12, 2011). The remaining bias is
    corrected in each range of probabilities, so that 80 % of the jobs with a predicted probability of 80 % start
    immediately.

    Args:
        inputs: number of estimates and bounds.
    """

    def __init__(self, inputs: int) -> None:
        self.learnt = ImmediateStartState(np.zeros(1 + inputs), np.zeros(1 + inputs), np.zeros(BINS))

    def probability(self, waits_s: Floats) -> float:
        """Return the probability of an immediate start, from the estimates and bounds, (inputs,) in seconds; nan:
        missing.
        """
        return float(_probability_of(waits_s, self.learnt.coefficients, self.learnt.corrections))


@njit(cache=True)
def _input(wait_s: float) -> float:
    if np.isnan(wait_s):
        return 0.0
    far = np.log((wait_s + SOFT_S) / (AT_ONCE_S + SOFT_S))
    return float(min(max(-far, -MAX_FAR), MAX_FAR))


@njit(cache=True)
def _logit(waits_s: Floats, coefficients: Floats) -> float:
    logit = coefficients[0]
    for i in range(len(waits_s)):
        logit += coefficients[1 + i] * _input(waits_s[i])
    return float(min(max(logit, -MAX_LOGIT), MAX_LOGIT))


@njit(cache=True)
def _bin(logit: float) -> int:
    return min(int(_probability(logit) * BINS), BINS - 1)


@njit(cache=True)
def _probability(logit: float) -> float:
    return float(1.0 / (1.0 + np.exp(-min(max(logit, -MAX_LOGIT), MAX_LOGIT))))


@njit(cache=True)
def _probability_of(waits_s: Floats, coefficients: Floats, corrections: Floats) -> float:
    logit = _logit(waits_s, coefficients)
    return float(_probability(logit + corrections[_bin(logit)]))


@njit(cache=True)
def learn_at_once(waits_s: Floats, coefficients: Floats, squares: Floats, corrections: Floats, at_once: bool) -> None:
    """Update the model with a job: its estimates and bounds, and whether it started immediately."""
    logit = _logit(waits_s, coefficients)
    place, truth = _bin(logit), 1.0 if at_once else 0.0
    corrections[place] += BIN_RATE * (truth - _probability(logit + corrections[place]))
    error = truth - _probability(logit)
    for i in range(len(coefficients)):
        value = 1.0 if i == 0 else _input(waits_s[i - 1])
        slope = error * value
        squares[i] += slope * slope
        if squares[i] > 0.0:
            coefficients[i] += RATE * slope / np.sqrt(squares[i] + 1e-2)
