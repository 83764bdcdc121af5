"""Accuracy measures of the literature, updated with each job.

    AAE       mean |predicted - actual wait|                       (Murali and Vadhiyar 2015, section 4.1)
    PPE       mean |predicted - actual wait| / response time       (section 4.2)
    PPE600, PPE1200   the same with the response time at least 600 / 1200 s
    x2, x3    share of jobs predicted within a factor of 2 / 3, waits floored at 60 s
    1min, 10min       share of jobs predicted within 1 / 10 minutes
    coverage  share of jobs at or below a bound; width its mean; pinball its mean quantile loss

A job without an estimate counts as `missing` and is scored as a predicted wait of zero, so that withholding estimates
never improves the score.
"""

from bisect import bisect_left
from itertools import accumulate

import msgspec

ERROR_BUCKETS = (60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0, 57600.0, 86400.0, 172800.0)
"""Upper edges of the histogram of absolute errors, seconds."""

PPE_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0)
"""Upper edges of the histogram of errors as a share of the response time."""


class Histogram(msgspec.Struct, array_like=True):
    """Counts by bucket (the last is above every edge), and the sum."""

    counts: list[int]
    total: float = 0.0

    @classmethod
    def over(cls, edges: tuple[float, ...]) -> "Histogram":
        """Create an empty histogram with these upper edges."""
        return cls([0] * (len(edges) + 1))

    def add(self, value: float, edges: tuple[float, ...]) -> None:
        """Add one value."""
        self.counts[bisect_left(edges, value)] += 1
        self.total += value

    def cumulated(self, edges: tuple[float, ...]) -> list[tuple[str, float]]:
        """Return the number of values at or below each edge, by its name, in the format of Prometheus."""
        return list(zip([*map(str, edges), "+Inf"], accumulate(self.counts), strict=True))


class Bound(msgspec.Struct, array_like=True):
    """Accuracy of one bound: jobs, covered jobs, and the sums of widths and quantile losses in seconds."""

    jobs: int = 0
    held: int = 0
    width_s: float = 0.0
    pinball_s: float = 0.0

    def add(self, q: float, bound_s: float, wait_s: float) -> None:
        """Add one job."""
        self.jobs += 1
        self.held += wait_s <= bound_s
        self.width_s += bound_s
        beyond_s = wait_s - bound_s
        self.pinball_s += max(q * beyond_s, (q - 1) * beyond_s)


class Tally(msgspec.Struct, array_like=True):
    """Sums for the measures of an interval: those at its end minus those at its beginning.

    Only jobs with an estimate count.
    """

    jobs: int = 0
    error_s: float = 0.0
    within_x2: int = 0
    responses: int = 0
    ppe: float = 0.0
    bounds: dict[str, tuple[int, int]] = {}
    """By a bound's probability: number of jobs with the bound, and of those that it covered."""

    def since(self, begin: "Tally") -> "Tally":
        """Return the difference from the sums at `begin`."""
        return self._plus(begin, -1)

    def __add__(self, other: "Tally") -> "Tally":
        return self._plus(other, 1)

    def _plus(self, other: "Tally", sign: int) -> "Tally":
        names = ("jobs", "error_s", "within_x2", "responses", "ppe")
        sums = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        bounds = dict(self.bounds)
        for q, (jobs, held) in other.bounds.items():
            known_jobs, known_held = bounds.get(q, (0, 0))
            bounds[q] = known_jobs + sign * jobs, known_held + sign * held
        return Tally(**sums, bounds=bounds)


class RunAccuracy(msgspec.Struct):
    """Accuracy of a method for run times over the ended jobs; a missing estimate counts as 0 s.

    `held` of `intervals` jobs ran within their predicted interval; `run_s` is the sum of the actual run times.
    """

    jobs: int = 0
    missing: int = 0
    error: Histogram = msgspec.field(default_factory=lambda: Histogram.over(ERROR_BUCKETS))
    run_s: float = 0.0
    intervals: int = 0
    held: int = 0

    def add(self, predicted_s: float | None, run_s: float, interval: tuple[float, float] | None = None) -> None:
        """Add a job that ran for `run_s` seconds."""
        self.jobs += 1
        self.missing += predicted_s is None
        self.error.add(abs((predicted_s or 0.0) - run_s), ERROR_BUCKETS)
        self.run_s += run_s
        if interval is not None:
            self.intervals += 1
            self.held += interval[0] <= run_s <= interval[1]

    def measures(self) -> dict[str, float]:
        """Return the measures by name: the mean absolute error in minutes, and as a share of the mean run time."""
        found = {
            "MAE_min": self.error.total / 60 / max(self.jobs, 1),
            "share": self.error.total / max(self.run_s, 1.0),
            "missing": self.missing,
            "jobs": self.jobs,
        }
        return found | ({"within": self.held / self.intervals} if self.intervals else {})


class Accuracy(msgspec.Struct):
    """Accuracy of a method over the jobs so far.

    The error of the wait is known when a job leaves the queue (`add_wait`), its share of the response time when it has
    ended (`add_response`).

    >>> accuracy = Accuracy()
    >>> accuracy.add_wait(predicted_s=600.0, wait_s=1200.0)
    >>> accuracy.add_response(predicted_s=600.0, wait_s=1200.0, run_s=1800.0)
    >>> accuracy.measures()["AAE"], accuracy.measures()["PPE"]
    (0.16666666666666666, 0.2)
    """

    jobs: int = 0
    missing: int = 0
    within_x2: int = 0
    within_x3: int = 0
    within_1min: int = 0
    within_10min: int = 0
    error: Histogram = msgspec.field(default_factory=lambda: Histogram.over(ERROR_BUCKETS))
    responses: int = 0
    ppe: Histogram = msgspec.field(default_factory=lambda: Histogram.over(PPE_BUCKETS))
    ppe600: float = 0.0
    ppe1200: float = 0.0
    bounds: dict[str, Bound] = {}
    with_estimate: Tally = msgspec.field(default_factory=Tally)  # over the jobs with an estimate

    def add_wait(self, predicted_s: float | None, wait_s: float, bounds: dict[str, float] | None = None) -> None:
        """Add a job that left the queue after `wait_s` seconds."""
        point = 0.0 if predicted_s is None else predicted_s
        error = abs(point - wait_s)
        one, other = max(point, 60.0), max(wait_s, 60.0)
        low, high = (one, other) if one <= other else (other, one)
        within_x2, tally = high <= 2 * low, self.with_estimate
        self.jobs += 1
        self.error.add(error, ERROR_BUCKETS)
        self.within_x2 += within_x2
        self.within_x3 += high <= 3 * low
        self.within_1min += error <= 60
        self.within_10min += error <= 600
        if predicted_s is None:
            self.missing += 1
        else:
            tally.jobs += 1
            tally.error_s += error
            tally.within_x2 += within_x2
        for q, bound_s in (bounds or {}).items():
            bound = self.bounds.get(q)
            if bound is None:
                bound = self.bounds[q] = Bound()
            bound.add(float(q), bound_s, wait_s)

    def add_response(self, predicted_s: float | None, wait_s: float, run_s: float) -> None:
        """Add a job with the response time `wait_s + run_s`."""
        error = abs((predicted_s or 0.0) - wait_s)
        response = wait_s + run_s
        self.responses += 1
        self.ppe.add(error / max(response, 1.0), PPE_BUCKETS)
        if predicted_s is not None:
            self.with_estimate.responses += 1
            self.with_estimate.ppe += error / max(response, 1.0)
        self.ppe600 += error / max(response, 600.0)
        self.ppe1200 += error / max(response, 1200.0)

    def tally(self) -> Tally:
        """Return the current sums over the jobs with an estimate: a withheld estimate is no error."""
        bounds = {q: (bound.jobs, bound.held) for q, bound in self.bounds.items()}
        return msgspec.structs.replace(self.with_estimate, bounds=bounds)

    def measures(self) -> dict[str, float]:
        """Return the measures by name, AAE in hours as in the literature."""
        jobs, responses = max(self.jobs, 1), max(self.responses, 1)
        return {
            "AAE": self.error.total / 3600 / jobs,
            "PPE": self.ppe.total / responses,
            "PPE600": self.ppe600 / responses,
            "PPE1200": self.ppe1200 / responses,
            "x2": self.within_x2 / jobs,
            "x3": self.within_x3 / jobs,
            "1min": self.within_1min / jobs,
            "10min": self.within_10min / jobs,
            "missing": self.missing,
            "jobs": self.jobs,
        }
