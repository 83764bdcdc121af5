"""Accuracy by how long jobs waited, by week and by queue: what a report draws."""

from bisect import bisect_right

import msgspec

from models.engine.settings import EngineSettings
from models.records import Outcome
from models.site.history import FEATURES
from models.site.job import Job

WAIT_EDGES = (60.0, 600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 48 * 3600.0)  # the classes of waits: their edges, seconds
WAIT_NAMES = ("under 1 min", "1 to 10 min", "10 to 60 min", "1 to 4 h", "4 to 12 h", "12 to 48 h", "over 48 h")

WEEK_S = 7 * 86_400.0
MAX_QUEUES = 200  # how many queues are told apart; jobs of further ones are counted together
OTHER_QUEUES = "other queues"
NO_QUEUE = "no queue"
_USER_QUEUED = FEATURES.index("user_queued_jobs")


class Cell(msgspec.Struct, array_like=True):
    """Sums over jobs of one kind: their waits and errors in seconds, and by bound how many had it and how many held."""

    jobs: int = 0
    wait_s: float = 0.0
    error_s: float = 0.0
    within_x2: int = 0
    bounds: dict[str, tuple[int, int]] = {}

    def add(self, outcome: Outcome) -> None:
        """Count a job that has left the queue."""
        wait_s, said_s = outcome.actual_wait_s, outcome.predicted_wait_s or 0.0
        low, high = sorted((max(said_s, 60.0), max(wait_s, 60.0)))
        self.jobs += 1
        self.wait_s += wait_s
        self.error_s += abs(said_s - wait_s)
        self.within_x2 += high <= 2 * low
        for q, bound_s in (outcome.bounds or {}).items():
            jobs, held = self.bounds.get(q, (0, 0))
            self.bounds[q] = (jobs + 1, held + (wait_s <= bound_s))

    @property
    def error_h(self) -> float:
        """The mean absolute error, hours."""
        return self.error_s / 3600 / max(self.jobs, 1)

    def held(self, q: str) -> float | None:
        """The share of jobs that waited no longer than their bound of this probability; None where none had one."""
        jobs, held = self.bounds.get(q, (0, 0))
        return held / jobs if jobs else None


class Breakdown(msgspec.Struct):
    """One method's accuracy: of all jobs, by class of wait, by week since the first event, and by queue.

    `beside` has the jobs that rivals have estimates for, by rival: what this method said of the same jobs. `bursts`
    has, by bound, what the jobs that had it weigh, and those of them that held. Each weighs 1/(1 + n), where n jobs of
    its user queued when it came, so that a burst is not thousands of pieces of evidence.
    """

    every: Cell = msgspec.field(default_factory=Cell)
    by_wait: list[Cell] = msgspec.field(default_factory=lambda: [Cell() for _ in WAIT_NAMES])
    by_week: dict[int, Cell] = {}
    by_queue: dict[str, Cell] = {}
    beside: dict[str, Cell] = {}
    bursts: dict[str, tuple[float, float]] = {}

    def add(self, outcome: Outcome, week: int, queue: str, weight: float = 1.0) -> None:
        """Count a job that has left the queue."""
        if queue not in self.by_queue and len(self.by_queue) >= MAX_QUEUES:
            queue = OTHER_QUEUES
        self.every.add(outcome)
        self.by_wait[bisect_right(WAIT_EDGES, outcome.actual_wait_s)].add(outcome)
        self.by_week.setdefault(week, Cell()).add(outcome)
        self.by_queue.setdefault(queue, Cell()).add(outcome)
        for q, bound_s in (outcome.bounds or {}).items():
            jobs, held = self.bursts.get(q, (0.0, 0.0))
            self.bursts[q] = (jobs + weight, held + weight * (outcome.actual_wait_s <= bound_s))

    def held_by_burst(self, q: str) -> float | None:
        """As `Cell.held`, by the weights of bursts."""
        jobs, held = self.bursts.get(q, (0.0, 0.0))
        return held / jobs if jobs else None


class Counted(msgspec.Struct):
    """What `Breakdowns` has counted, by method, and the outcomes of the last job."""

    found: dict[str, Breakdown] = {}
    same: list[Outcome] = []


class Breakdowns:
    """Breaks the outcomes of a replay down, by method, and by weeks from `begin` (Unix time); `counted` may be kept and
    set again.

    Cancelled jobs count as if they had started then. Outcomes of none of the settings' methods are of rivals.
    """

    def __init__(self, begin: float, settings: EngineSettings) -> None:
        self.counted = Counted()
        self._begin = begin
        self._methods = frozenset(settings.methods)
        self._only_runs = frozenset(settings.run_methods) - self._methods

    @property
    def found(self) -> dict[str, Breakdown]:
        """The accuracy by method."""
        return self.counted.found

    @property
    def rivals(self) -> list[str]:
        """Whose outcomes came that are of no method."""
        return sorted(name for name in self.found if name not in self._methods)

    def add(self, outcome: Outcome, job: Job | None = None) -> None:
        """Count an outcome of a wait of this job, as the engine has it; one of a run time is passed over."""
        if outcome.actual_run_s is not None or outcome.method in self._only_runs:
            return
        queue, weight = (NO_QUEUE, 1.0) if job is None else (job.queue or NO_QUEUE, burst_weight(job))
        week = int((outcome.observed_at - self._begin) // WEEK_S)
        self.found.setdefault(outcome.method, Breakdown()).add(outcome, week, queue, weight)
        self._compare(outcome)

    def _compare(self, outcome: Outcome) -> None:
        """Count, for each rival of a job, what the methods said of it; a job's outcomes come one after the other."""
        same = self.counted.same
        if same and (same[0].site, same[0].job, same[0].attempt) != (outcome.site, outcome.job, outcome.attempt):
            same.clear()
        for other in same:
            if (outcome.method in self._methods) != (other.method in self._methods):
                rival, method = (outcome, other) if other.method in self._methods else (other, outcome)
                self.found[method.method].beside.setdefault(rival.method, Cell()).add(method)
        same.append(outcome)


def burst_weight(job: Job) -> float:
    """What a job weighs where a burst is not to be thousands of pieces of evidence: 1/(1 + n), where n jobs of its user
    queued, in its part of the machine, when it came.
    """
    return 1.0 if job.features is None else 1.0 / (1.0 + job.features.item(_USER_QUEUED))
