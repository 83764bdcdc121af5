"""Probabilities from bounds on waits: that a wait ends within a time, and which of several waits is the shortest."""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, groupby

POINTS = 40
"""Number of equally likely values that represent a distribution."""

CAUTION = 0.1
"""Share of the bound of 0.9 that is added to a wait when sites are compared."""

SMALLEST = 1e-9
"""A smaller remaining share counts as 0."""


def cautious_s(wait_s: float, bounds_s: Mapping[str, float] | None, schedule_s: float | None = None) -> float:
    """Return the wait in seconds by which to compare sites for a job; it is longer if the estimate is less certain.

    An estimate is a median, which does not express the risk: if it is the same at several sites, the bound decides. The
    result is at least `schedule_s`, the wait by a simulated schedule, if that is one of several experts in the
    estimate: the simulation considers this very job.

    >>> cautious_s(60.0, {"0.5": 60.0, "0.9": 600.0}), cautious_s(60.0, None), cautious_s(60.0, None, 900.0)
    (120.0, 66.0, 900.0)
    """
    return max(wait_s + CAUTION * (bounds_s or {}).get("0.9", wait_s), schedule_s or 0.0)


def spread(median_s: float, bounds_s: Mapping[str, float]) -> list[float]:
    """Return equally likely waits, (POINTS,) ascending, in seconds.

    The distribution is linear between two bounds, and from 0 to the lowest one; above the highest bound it is
    extrapolated.

    >>> spread(100.0, {"0.25": 50.0, "0.75": 150.0})[::13]
    [2.5, 67.5, 132.5, 197.5]
    """
    at, waits_s = _known(median_s, bounds_s)
    found = []
    for point in range(POINTS):
        q = (point + 0.5) / POINTS
        end = min(max(bisect_left(at, q), 1), len(at) - 1)
        slope = (waits_s[end] - waits_s[end - 1]) / (at[end] - at[end - 1])
        found.append(waits_s[end - 1] + slope * (q - at[end - 1]))
    return found


def chance_within(seconds: float, median_s: float, bounds_s: Mapping[str, float]) -> float:
    """Return the probability that a wait is at most `seconds`, limited to that of the highest bound.

    >>> [chance_within(s, 100.0, {"0.25": 50.0, "0.9": 300.0}) for s in (25.0, 100.0, 200.0, 9e9)]
    [0.125, 0.5, 0.7, 0.9]
    """
    at, waits_s = _known(median_s, bounds_s)
    place = bisect_right(waits_s, seconds)
    if place in (0, len(at)):
        return at[max(place - 1, 0)]
    slope = (at[place] - at[place - 1]) / (waits_s[place] - waits_s[place - 1])
    return at[place - 1] + slope * (seconds - waits_s[place - 1])


def _known(median_s: float, bounds_s: Mapping[str, float]) -> tuple[list[float], list[float]]:
    """Return probabilities from 0, and the waits in seconds at these quantiles, both ascending."""
    known = sorted({0.0: 0.0, **{float(q): bound_s for q, bound_s in bounds_s.items()}, 0.5: median_s}.items())
    return [q for q, _ in known], list(accumulate((max(wait_s, 0.0) for _, wait_s in known), max))


def chances_of_least(values: Sequence[Sequence[float]]) -> list[float]:
    """Return the probability of each variable to be the smallest of independent ones; ties share it.

    O(values · log values).

    Args:
        values: equally likely values of each variable.

    >>> chances_of_least([[1.0, 3.0], [2.0, 4.0]])
    [0.75, 0.25]
    >>> chances_of_least([[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]])
    [0.5, 0.5, 0.0]
    """
    every = sorted((value, place) for place, of_one in enumerate(values) for value in of_one)
    shares_above = [1.0 for _ in values]  # the share of each above the current value
    beyond = 0.0  # the logarithm of their product
    found = [0.0] * len(values)
    for _, alike in groupby(every, lambda one: one[0]):
        shares = {place: count / len(values[place]) for place, count in Counter(place for _, place in alike).items()}
        middle = beyond + math.fsum(math.log1p(-share / 2 / shares_above[place]) for place, share in shares.items())
        for place, share in shares.items():
            found[place] += share * math.exp(middle - math.log(shares_above[place] - share / 2))
        if any(shares_above[place] - share < SMALLEST for place, share in shares.items()):
            break
        beyond += math.fsum(math.log1p(-share / shares_above[place]) for place, share in shares.items())
        for place, share in shares.items():
            shares_above[place] -= share
    whole = math.fsum(found)
    return [chance / whole for chance in found]
