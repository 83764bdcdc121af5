"""Accuracy by wait time, week and queue, as shown in a report."""

from bisect import bisect_right

import msgspec

from models.durations import WEEK_S
from models.engine.settings import EngineSettings
from models.records import Outcome

WAIT_EDGES = (60.0, 600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 48 * 3600.0)  # the classes of waits: their edges, seconds
WAIT_NAMES = ("under 1 min", "1 to 10 min", "10 to 60 min", "1 to 4 h", "4 to 12 h", "12 to 48 h", "over 48 h")

MAX_QUEUES = 200  # maximum number of distinct queues; further ones are counted together
OTHER_QUEUES = "other queues"
NO_QUEUE = "no queue"


class GroupScores(msgspec.Struct, array_like=True):
    """Sums over jobs of one kind: waits and errors in seconds, and for each bound the jobs that had it and that it
    covered.
    """

    jobs: int = 0
    wait_s: float = 0.0
    error_s: float = 0.0
    within_x2: int = 0
    bounds: dict[str, tuple[int, int]] = {}

    def add(self, outcome: Outcome) -> None:
        """Count a job that has left the queue."""
        wait_s, estimate_s = outcome.actual_wait_s, outcome.predicted_wait_s or 0.0
        low, high = sorted((max(estimate_s, 60.0), max(wait_s, 60.0)))
        self.jobs += 1
        self.wait_s += wait_s
        self.error_s += abs(estimate_s - wait_s)
        self.within_x2 += high <= 2 * low
        for q, bound_s in (outcome.bounds or {}).items():
            jobs, held = self.bounds.get(q, (0, 0))
            self.bounds[q] = (jobs + 1, held + (wait_s <= bound_s))

    @property
    def error_h(self) -> float:
        """Mean absolute error in hours."""
        return self.error_s / 3600 / max(self.jobs, 1)

    def held(self, q: str) -> float | None:
        """Return the coverage of the bound of this probability; None if no job had one."""
        jobs, held = self.bounds.get(q, (0, 0))
        return held / jobs if jobs else None


class Breakdown(msgspec.Struct):
    """One method's accuracy: overall, by class of wait, by week since the first event, and by queue.

    `beside` has, by external estimator, this method's accuracy on the jobs that it also estimated. `bursts` has, by
    bound, the total weight of the jobs that had it and of those it covered. A weight is 1/(1 + n), where n jobs of the
    same user were pending at the submission, so that a burst does not count as thousands of independent jobs.
    """

    every: GroupScores = msgspec.field(default_factory=GroupScores)
    by_wait: list[GroupScores] = msgspec.field(default_factory=lambda: [GroupScores() for _ in WAIT_NAMES])
    by_week: dict[int, GroupScores] = {}
    by_queue: dict[str, GroupScores] = {}
    beside: dict[str, GroupScores] = {}
    bursts: dict[str, tuple[float, float]] = {}

    def add(self, outcome: Outcome, week: int, queue: str, weight: float = 1.0) -> None:
        """Count a job that has left the queue."""
        if queue not in self.by_queue and len(self.by_queue) >= MAX_QUEUES:
            queue = OTHER_QUEUES
        self.every.add(outcome)
        self.by_wait[bisect_right(WAIT_EDGES, outcome.actual_wait_s)].add(outcome)
        self.by_week.setdefault(week, GroupScores()).add(outcome)
        self.by_queue.setdefault(queue, GroupScores()).add(outcome)
        for q, bound_s in (outcome.bounds or {}).items():
            jobs, held = self.bursts.get(q, (0.0, 0.0))
            self.bursts[q] = (jobs + weight, held + weight * (outcome.actual_wait_s <= bound_s))

    def held_by_burst(self, q: str) -> float | None:
        """Return the coverage as `GroupScores.held`, weighted by bursts."""
        jobs, held = self.bursts.get(q, (0.0, 0.0))
        return held / jobs if jobs else None


class BreakdownCounts(msgspec.Struct):
    """The counts of `Breakdowns` by method, and the outcomes of the last job."""

    found: dict[str, Breakdown] = {}
    same: list[Outcome] = []


class Breakdowns:
    """Break down the outcomes of a replay by method, and by weeks from `begin` (Unix time).

    `counted` is the state, which may be saved and restored. Cancelled jobs count as if they had started then. Outcomes
    of names that are not methods of the settings are external estimates.
    """

    def __init__(self, begin: float, settings: EngineSettings) -> None:
        self.counted = BreakdownCounts()
        self._begin = begin
        self._methods = frozenset(settings.methods)
        self._only_runs = frozenset(settings.run_methods) - self._methods

    @property
    def found(self) -> dict[str, Breakdown]:
        """Accuracy by method."""
        return self.counted.found

    @property
    def rivals(self) -> list[str]:
        """Names of the external estimators in the outcomes."""
        return sorted(name for name in self.found if name not in self._methods)

    def add(self, outcome: Outcome, queue: str = NO_QUEUE, weight: float = 1.0) -> None:
        """Count the outcome of a job's wait; outcomes of run times are ignored.

        Args:
            queue: the job's queue.
            weight: the job's `burst_weight`.
        """
        if outcome.actual_run_s is not None or outcome.method in self._only_runs:
            return
        week = int((outcome.observed_at - self._begin) // WEEK_S)
        self.found.setdefault(outcome.method, Breakdown()).add(outcome, week, queue, weight)
        self._compare(outcome)

    def _compare(self, outcome: Outcome) -> None:
        """Count the methods' outcomes on a job with external estimates; a job's outcomes arrive in sequence."""
        same = self.counted.same
        if same and (same[0].site, same[0].job, same[0].attempt) != (outcome.site, outcome.job, outcome.attempt):
            same.clear()
        for other in same:
            if (outcome.method in self._methods) != (other.method in self._methods):
                rival, method = (outcome, other) if other.method in self._methods else (other, outcome)
                self.found[method.method].beside.setdefault(rival.method, GroupScores()).add(method)
        same.append(outcome)
