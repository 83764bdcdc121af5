"""Accuracy by how long jobs waited, by week and by queue: what a report draws."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Container

import msgspec

from models.engine.settings import EngineSettings
from models.records import Alter, AnyEvent, Cancel, End, JobKey, Outcome, Start, Submit

WAIT_EDGES = (60.0, 600.0, 3600.0, 4 * 3600.0, 12 * 3600.0, 48 * 3600.0)
"""The classes of waits: their edges, seconds."""

WAIT_NAMES = ("under 1 min", "1 to 10 min", "10 to 60 min", "1 to 4 h", "4 to 12 h", "12 to 48 h", "over 48 h")

WEEK_S = 7 * 86_400.0

MAX_QUEUES = 200
"""How many queues are told apart; jobs of further ones are counted together."""

OTHER_QUEUES = "other queues"
NO_QUEUE = "no queue"


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


class LiveJob(msgspec.Struct, array_like=True):
    """What is kept of a live job: its queue, its user, what it weighs, and whether it still queues."""

    queue: str
    user: str | None
    weight: float
    queued: bool = True


class SavedBreakdowns(msgspec.Struct):
    """What `Breakdowns` has counted, and the live jobs."""

    found: dict[str, Breakdown]
    live: list[tuple[JobKey, LiveJob]]
    same: list[Outcome]


class Breakdowns:
    """Breaks the outcomes of a replay down, by method.

    Show it each event before (`see`) and after (`forget`) its records, so that it knows each job's queue and user;
    memory goes with the live jobs.

    Parameters:
        begin: Unix time from which weeks count.
        settings: those of the replay. Outcomes of none of their methods are of rivals.
        included: the jobs that count.
        cancelled: whether jobs cancelled in the queue count, as if they had started then.
    """

    def __init__(
        self, begin: float, settings: EngineSettings, included: Container[str] | None = None, cancelled: bool = True
    ) -> None:
        self.found: dict[str, Breakdown] = {}
        self._begin = begin
        self._methods = frozenset(settings.methods)
        self._only_runs = frozenset(settings.run_methods) - self._methods
        self._included = included
        self._cancelled = cancelled
        self._live: dict[JobKey, LiveJob] = {}
        self._queued: Counter[str] = Counter()  # jobs by user
        self._key: tuple[str, str, int] | None = None
        self._same: list[Outcome] = []

    def see(self, event: AnyEvent) -> None:
        """An event is about to be applied."""
        if isinstance(event, Submit) and event.key not in self._live:
            before = 0 if event.user is None else self._queued[event.user]
            self._live[event.key] = LiveJob(event.queue or NO_QUEUE, event.user, 1.0 / (1.0 + before))
            self._count(event.user, 1)
        elif isinstance(event, Alter) and event.queue is not None and event.key in self._live:
            self._live[event.key].queue = event.queue
        elif isinstance(event, Start):
            self._leaves(self._live.get(event.key))

    def forget(self, event: AnyEvent) -> None:
        """The event's records are all there."""
        if isinstance(event, End | Cancel):
            self._leaves(self._live.pop(event.key, None))

    def _leaves(self, job: LiveJob | None) -> None:
        """It queues no more."""
        if job is not None and job.queued:
            job.queued = False
            self._count(job.user, -1)

    def _count(self, user: str | None, jobs: int) -> None:
        if user is not None:
            self._queued[user] += jobs
            if not self._queued[user]:
                del self._queued[user]

    def save(self) -> SavedBreakdowns:
        """What was counted so far."""
        return SavedBreakdowns(self.found, list(self._live.items()), self._same)

    def restore(self, saved: SavedBreakdowns) -> None:
        """Take back what `save` gave."""
        self.found, self._live, self._same = saved.found, dict(saved.live), saved.same
        self._queued = Counter(job.user for job in self._live.values() if job.queued and job.user is not None)
        if self._same:
            first = self._same[0]
            self._key = first.site, first.job, first.attempt

    @property
    def rivals(self) -> list[str]:
        """Whose outcomes came that are of no method."""
        return sorted(name for name in self.found if name not in self._methods)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome of a wait; one of a run time is passed over."""
        if outcome.actual_run_s is not None or outcome.method in self._only_runs:
            return
        if (outcome.censored and not self._cancelled) or (
            self._included is not None and outcome.job not in self._included
        ):
            return
        job = self._live.get((outcome.job, outcome.attempt), LiveJob(NO_QUEUE, None, 1.0))
        week = int((outcome.observed_at - self._begin) // WEEK_S)
        self.found.setdefault(outcome.method, Breakdown()).add(outcome, week, job.queue, job.weight)
        self._compare(outcome)

    def _compare(self, outcome: Outcome) -> None:
        """Count, for each rival of a job, what the methods said of it; a job's outcomes come one after the other."""
        key = (outcome.site, outcome.job, outcome.attempt)
        if key != self._key:
            self._key, self._same = key, []
        for other in self._same:
            if (outcome.method in self._methods) != (other.method in self._methods):
                rival, method = (outcome, other) if other.method in self._methods else (other, outcome)
                self.found[method.method].beside.setdefault(rival.method, Cell()).add(method)
        self._same.append(outcome)
