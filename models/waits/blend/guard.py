"""Choice of the final estimate: the mixture or a simpler combination, by the errors of the last week.

The mixture learns which expert is best, but it fails on cases that it has not seen: thousands of jobs of one user that
get a prediction before any of them has started. Medians of the experts, and the mean of the two that were closest
recently, learn almost nothing, so such jobs do not mislead them. Where they differ from the mixture, they have often
been closer to the waits of bursts. Where a schedule with later arrivals exists (`models.waits.order.arrivals`), its
mean with the mixture is another choice: most experts know present jobs only. A choice has the more weight the smaller
its error was (N. Littlestone and M. K. Warmuth, "The weighted majority algorithm", 1994). The errors are those in
seconds, since users notice these.

A job that is predicted while others of its user still queue has no more information than these: they count as one job
together. The errors of each choice for the job's own user count in addition, job by job and less sharply. The later
jobs of a burst therefore benefit from the first ones.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats, Ints
from models.kernels import njit
from models.stored_values import check_alike
from models.waits.blend.users import user_state

CHOICES = (
    "the mixture",
    "the experts' median",
    "the median with the baselines",
    "the two best",
    "the schedule with later arrivals",
)
MIXTURE, EXPERTS, ALL, TWO_BEST, ARRIVALS = range(len(CHOICES))

MEMORY_S = 7 * 86400.0
"""After this time the weight of an error is 1/e."""

UNKNOWN_S = 3600.0
"""Sum to which all errors fade: it keeps a few jobs from deciding."""

FIRST_S, FIRST_ERRORS = 30 * 3600.0, (1.0, 1.3, 1.6, 1.3, 1.3)
"""Initial errors of the choices: seconds, and shares of these. Before the experts have been scored at a site, the
mixture has the best estimate, from their weights at other sites. They fade as errors do. With smaller ones the first
few jobs decided, and one burst replaced the mixture."""

SHARPNESS = 30.0
"""With an error that is a tenth higher, the weight of a choice is 0.06 times as high."""

USER_KEEP = 0.97
"""Factor of a user's errors with each job."""

USER_UNKNOWN_S, USER_SHARPNESS = 360_000.0, 20.0
"""As `UNKNOWN_S` and `SHARPNESS`, for the errors for the job's user: here all jobs of a burst count."""

FAR_FACTOR, FAR_S = 2.0, 3600.0
"""No estimate or bound is longer than the site's longest wait times this factor plus this many seconds, except that of
the simulated schedule."""

MIN_NAMED = 0.2
"""Minimum weight of a choice beside the mixture to be named in the reason."""


class Choice(NamedTuple):
    """Each choice's estimate of a job's wait, (choices,) in seconds (nan: none), its weight, and the limit of them all.

    No estimate or bound exceeds `most_s`, in seconds.
    """

    waits_s: Floats
    weights: Floats
    most_s: float

    @property
    def wait_s(self) -> float:
        """The estimate, in seconds; nan if there is none."""
        return float(_mixed(self.waits_s, self.weights))

    @property
    def reason(self) -> str:
        """The choices beside the mixture that have a notable weight, as text; empty if there are none."""
        weighed = zip(CHOICES[1:], self.weights[1:].tolist(), strict=True)
        return ", ".join(f"{name} {100 * weight:.0f} %" for name, weight in weighed if weight >= MIN_NAMED)


class _Places(NamedTuple):
    """Positions of the baselines and of the rivals' estimates among the experts, and the rival of each estimate."""

    trivial: Ints
    places: Ints
    whose: Ints


class _Errors(NamedTuple):
    """Errors of the choices and of the rivals in the last week, in seconds."""

    choices: Floats
    rivals: Floats


_NOTHING = np.zeros(len(CHOICES))


class GuardState(msgspec.Struct, array_like=True):
    """The errors, faded until the time `at`; the longest wait, in seconds; and each user's errors of the choices.

    `users` has the users whose jobs left last, in order: the latest is last.
    """

    errors: _Errors
    at: float = -math.inf
    longest_s: float = 0.0
    users: dict[str, Floats] = {}


class Guard:
    """Errors of the choices and of the experts in the last week, and the final estimate that follows.

    Args:
        trivial: positions of the baselines among the experts.
        rivals: the other experts that count, with the positions of their estimates; several are averaged.
        schedule: position of the simulated schedule, whose estimate may exceed every past wait.
    """

    def __init__(self, trivial: Sequence[int], rivals: Mapping[str, Sequence[int]], schedule: int) -> None:
        numbers = [[nth] * len(places) for nth, places in enumerate(rivals.values())]
        self._places = _Places(*map(np.array, (trivial, [*chain(*rivals.values())], [*chain(*numbers)])))
        self.state = GuardState(_Errors(FIRST_S * np.array(FIRST_ERRORS), np.full(len(rivals), UNKNOWN_S)))
        """Learned state; up to 10 KB."""
        self._schedule = schedule

    def choose(
        self, mixture_s: float, medians_s: Floats, user: str | None = None, arrivals_s: float = math.nan
    ) -> Choice:
        """Return each choice's estimate for a job of the user.

        Args:
            mixture_s: the mixture's estimate, in seconds; nan: none.
            medians_s: the experts' estimates, (experts,) in seconds; nan: none.
            user: the job's user.
            arrivals_s: the estimate of a schedule with later arrivals, in seconds; nan: none.
        """
        own, found = self.state.users.get(user or "", _NOTHING), np.empty((2, len(CHOICES)))
        learnt = *self.state.errors, own, self.state.longest_s
        most_s = _choose(mixture_s, medians_s, arrivals_s, *self._places, *learnt, self._schedule, found)
        return Choice(found[0], found[1], most_s)

    def check(self, found: GuardState) -> None:
        """Check that kernels can read a saved state.

        Raises:
            ValueError: they cannot.
        """
        check_alike(found, self.state)
        for value in found.users.values():
            check_alike(value, _NOTHING, "users")

    def waited(self, waited_s: float) -> None:
        """Update the longest wait, in seconds."""
        self.state.longest_s = max(self.state.longest_s, waited_s)

    def begin_to_leave(self, wait_s: float, at: float, user: str | None) -> tuple[float, Floats]:
        """Return the remaining share of the errors at the Unix time `at`, when a job leaves the queue, and its user's
        errors.
        """
        state = self.state
        faded = math.exp(-max(at - state.at, 0.0) / MEMORY_S) if math.isfinite(state.at) else 1.0
        state.at, state.longest_s = max(state.at, at), max(state.longest_s, wait_s)
        return faded, user_state(state.users, user, _NOTHING.shape)

    @property
    def learnt(self) -> tuple[Floats | Ints, ...]:
        """Arrays that the kernels read and update."""
        return *self._places, *self.state.errors


@njit(cache=True)
def _choose(
    mixture_s: float,
    medians_s: Floats,
    arrivals_s: float,
    trivial: Ints,
    places: Ints,
    whose: Ints,
    errors: Floats,
    rivals: Floats,
    own: Floats,
    longest_s: float,
    schedule: int,
    found: Floats,
) -> float:
    """Fill in each choice's estimate and weight, as in `Choice`; return the limit that no estimate exceeds."""
    rivals_s, waits_s = _rivals(medians_s, places, whose, len(rivals)), found[0]
    experts_s = np.empty(1 + len(places))
    experts_s[0], experts_s[1:] = mixture_s, medians_s[places]
    every_s = np.concatenate((medians_s[trivial], rivals_s))
    most_s = FAR_FACTOR * longest_s + FAR_S
    if medians_s[schedule] > most_s:
        most_s = medians_s[schedule]
    waits_s[0], waits_s[1] = mixture_s, _median(experts_s)
    waits_s[2], waits_s[3] = _median(every_s), _mean_of_two(rivals_s, rivals)
    waits_s[4] = (mixture_s + arrivals_s) / 2.0
    for choice in range(len(waits_s)):
        if waits_s[choice] > most_s:
            waits_s[choice] = most_s
    found[1] = _weights(waits_s, errors, USER_UNKNOWN_S + own)
    return most_s


@njit(cache=True)
def _rivals(medians_s: Floats, places: Ints, whose: Ints, rivals: int) -> Floats:
    """Return each rival's estimate: the mean of its available estimates; nan if there are none."""
    whole, known = np.zeros(rivals), np.zeros(rivals)
    for nth in range(len(places)):
        expert_s = medians_s[places[nth]]
        if not np.isnan(expert_s):
            whole[whose[nth]] += expert_s
            known[whose[nth]] += 1.0
    for rival in range(rivals):
        whole[rival] = whole[rival] / known[rival] if known[rival] else np.nan
    return whole


@njit(cache=True)
def judge(
    trivial: Ints,
    places: Ints,
    whose: Ints,
    choices: Floats,
    rivals: Floats,
    choices_s: Floats,
    medians_s: Floats,
    before_s: float,
    wait_s: float,
    is_final: bool,
    weight: float,
    faded: float,
) -> None:
    """Fade the errors, and add what is now certain of a job's wait beyond `before_s`, which has been added.

    Before the error `is_final`, it is the amount by which the wait exceeds the estimate so far. A choice without an
    estimate is scored by the mixture's.

    Args:
        `trivial`, `places`, `whose`: as in `_Places`.
        choices, rivals: the errors to update, seconds.
        choices_s, medians_s: the estimates of the choices and of the experts, seconds; nan: none.
        before_s: the wait that was counted before, seconds.
        wait_s: the wait by now, seconds.
        is_final: whether the job has left the queue.
        weight: the job's weight as evidence.
        faded: the share of the errors that remains.
    """
    passed_s = min(before_s, wait_s) if is_final else before_s
    rivals_s = _rivals(medians_s, places, whose, len(rivals))
    for known, estimates_s in ((choices, choices_s), (rivals, rivals_s)):
        for place in range(len(known)):
            if is_final:
                known[place] = UNKNOWN_S + faded * (known[place] - UNKNOWN_S)
            estimate_s = choices_s[MIXTURE] if np.isnan(estimates_s[place]) else estimates_s[place]
            error_s = abs(wait_s - estimate_s) if is_final else max(wait_s - estimate_s, 0.0)
            known[place] += weight * (error_s - max(passed_s - estimate_s, 0.0))


@njit(cache=True)
def judge_for_user(errors: Floats, choices_s: Floats, wait_s: float) -> None:
    """Add each choice's error to the user's errors."""
    for place in range(len(errors)):
        estimate_s = choices_s[MIXTURE] if np.isnan(choices_s[place]) else choices_s[place]
        errors[place] = USER_KEEP * errors[place] + abs(wait_s - estimate_s)


@njit(cache=True)
def _median(values: Floats) -> float:
    """Return the median of the values that are not nan; nan if there are none."""
    known = np.sort(values[~np.isnan(values)])
    count = len(known)
    return float((known[(count - 1) // 2] + known[count // 2]) / 2.0) if count else np.nan


@njit(cache=True)
def _mean_of_two(values: Floats, errors: Floats) -> float:
    """Return the mean of the two values with the least errors that are not nan."""
    first = second = -1
    for place in range(len(values)):
        if np.isnan(values[place]):
            continue
        if first < 0 or errors[place] < errors[first]:
            first, second = place, first
        elif second < 0 or errors[place] < errors[second]:
            second = place
    if second < 0:
        return float(values[first]) if first >= 0 else np.nan
    return float((values[first] + values[second]) / 2.0)


@njit(cache=True)
def _weights(places: Floats, errors: Floats, own: Floats) -> Floats:
    found = np.zeros(len(places))
    for place in range(len(places)):
        if not np.isnan(places[place]):
            by_user = (own[place] / own.min()) ** -USER_SHARPNESS
            found[place] = (errors[place] / errors.min()) ** -SHARPNESS * by_user
    return found / found.sum() if found.sum() > 0.0 else found


@njit(cache=True)
def _mixed(waits_s: Floats, weights: Floats) -> float:
    """Return the weighted sum of the waits that are not nan; nan where all are."""
    total, silent = 0.0, True
    for place in range(len(waits_s)):
        if not np.isnan(waits_s[place]):
            total += waits_s[place] * weights[place]
            silent = False
    return np.nan if silent else total
