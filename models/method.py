"""Interface of prediction methods: they predict from the current state, and learn from what happened later."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from models.arrays import Floats
from models.records import Capacity, JobKey, OrderFit
from models.site.areas import JOBS_PER_STEP, Areas
from models.site.history import History
from models.site.job import Estimate, Job, Phase, RunEstimate
from models.site.rows import PerJob, Rows
from models.site.runs import RunHistory, Template
from models.site.size import MIN_STARTED_JOBS, SizeSeen
from models.site.state import SITE, SiteState
from models.site.topology import Area, Topology, request_of
from models.site.topology.layout import Layout


class JobTransition(Enum):
    """A transition of an attempt, whether or not its wait is scored; see `WaitMethod.observe`."""

    SUBMITTED = "submitted"
    STARTED = "started"
    TASK_STARTED = "task started"  # a task of an array that is queued as one row started, and left the row
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    ENDED = "ended"  # it ran to its end
    INTERRUPTED = "interrupted"
    """It was preempted or requeued, or its node failed, so its run time is incomplete."""
    WITHDRAWN = "withdrawn"  # it left the queue without a start


class Memory(NamedTuple):
    """Length of a method's memory: what it learnt from earlier jobs is gone, or has a weight below 1/e.

    `seen` is the number of last jobs that it observed, `predicted` the number of those that it had to predict. None
    means that the method does not state it.
    """

    seen: int | None = None
    predicted: int | None = None

    @classmethod
    def longest_memory(cls, memories: "Iterable[Memory]") -> "Memory":
        """Return the longest memory of several methods."""
        return cls(*(None if None in known else max(known) for known in zip(*memories, strict=True)))


NO_MEMORY = Memory(0, 0)  # of a method that uses only the site's histories


class Method:
    """Base class of the methods for waits and run times. A method is one subclass in one file, named in
    `models.method_registry`.

    A method is a function of the calls that it received, in their order: it uses no clock, and random numbers only with
    a seed in its state. It saves and loads its own state, beyond the shared state of the site. Data on single jobs are
    `rows`, which are stored one by one. Data on live jobs are `per_job`, which is stored with each job. The rest is
    small and handled by `save` and `load`. Each checkpoint contains the result of `save`, so its size must not grow
    with the number of jobs.
    """

    name: ClassVar[str]

    tunable: ClassVar[Mapping[str, Any]] = {}
    """Tunable parameters: keyword arguments of the constructor, each with its type and bounds."""

    rows: Rows | None = None  # the method's rows, if any; set by the constructor

    per_job: PerJob[Any] | None = None
    """The method's values for live jobs, if any; set by the constructor. It is restored before `load` is called."""

    @property
    def memory(self) -> Memory:
        """The length of its memory, apart from its parts: it needs no more of a site's history."""
        return Memory()

    @property
    def parts(self) -> "Mapping[str, Method]":
        """The methods that it consists of, by name. Their rows and per-job values are stored next to its own; it stores
        the rest.
        """
        return {}

    def save(self) -> bytes:
        """Return the state of this method, from which `load` continues exactly in another process."""
        return b""

    def load(self, saved: bytes) -> None:
        """Restore the result of `save`; `rows` are restored before.

        Raises:
            ValueError: `saved` or the rows are invalid.
        """


class RunMethod(Method):
    """Base class of the methods for run times."""

    templates: tuple[Template, ...] = ()  # the categories whose run times it uses

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """Return the total run time of a job that has run for `elapsed_s` seconds (0 if it has not started)."""
        raise NotImplementedError

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        """Learn from a job that ended after `run_s` seconds of run time; `runs` does not contain it yet."""


@dataclass
class SiteContext:
    """Knowledge about a site: its live jobs, the started jobs, run times by category, and its size.

    At a site with a topology, methods get one of its areas as if it were the site (`of`). Then `state` contains the
    live jobs of the area, `capacity` its size, `layout` its resources, and `whole` the live jobs of the site.
    `prepared` are the areas of the next capacity, if they are known already.
    """

    state: SiteState
    history: History
    runs: RunHistory
    runtimes: RunMethod
    capacity: Capacity | None = field(default=None)
    size: SizeSeen = field(default_factory=SizeSeen)
    areas: Areas | None = field(default=None)
    prepared: Areas | None = field(default=None)
    layout: Layout | None = field(default=None)
    whole: SiteState | None = field(default=None)

    @property
    def cpus(self) -> int:
        """The CPUs of the site: the declared number, else the maximum that was ever in use."""
        return self.capacity.cpus if self.capacity is not None and self.capacity.cpus > 0 else self.max_cpus

    @property
    def max_cpus(self) -> int:
        """The maximum number of CPUs in use at the same time, limited to plausible values."""
        return self.size.most

    def see_cpus(self, now: float) -> None:
        """Update the maximum number of CPUs in use, after a start at `now`."""
        settled = self.history.count >= MIN_STARTED_JOBS
        self.size.see(self.state.totals(SITE, Phase.RUNNING).cpus, now, settled)

    def resize(self, capacity: Capacity | None) -> None:
        """Set the capacity of the site. O(live jobs) if its areas change and are not prepared, else O(pools)."""
        self.capacity = capacity
        topology, prepared = Topology.of(capacity), self.prepared
        if topology is None:
            self.areas, self.state.follower = None, None
            return
        if self.areas is None or not topology.same_areas(self.areas.topology):
            if prepared is None or not prepared.are_current(topology):
                prepared = Areas(topology, self.state)
                deque(prepared.fill(), maxlen=0)
            self.areas = self.state.follower = prepared
        if self.areas.topology is not topology:
            self.areas.take(topology)

    def prepare(self, capacity: Capacity) -> Iterator[None] | None:
        """Return an iterator that builds the areas of a new capacity in short steps; None if one is enough.

        Then `resize` is O(pools). A change of the live jobs in between makes this work useless, but not wrong.
        """
        if len(self.state) < JOBS_PER_STEP or (topology := Topology.of(capacity)) is None:
            return None
        if self.areas is not None and topology.same_areas(self.areas.topology):
            return None
        return self._prepare(Areas(topology, self.state))

    def _prepare(self, areas: Areas) -> Iterator[None]:
        yield from areas.fill()
        self.prepared = areas

    @property
    def all_live_jobs(self) -> SiteState:
        """The live jobs of the whole site."""
        return self.state if self.whole is None else self.whole

    def views(self) -> "list[SiteContext]":
        """Return the context of each area; of a site without a topology, this context."""
        return [self] if self.areas is None else [self._view(area) for area in self.areas.topology.areas]

    def of(self, job: Job) -> "tuple[Job, SiteContext]":
        """Return a job as methods see it, and the context of its area; without a topology both are unchanged."""
        if self.areas is None:
            return job, self
        return self.areas.seen_in_area(job), self._view(self.areas.area_of(job))

    def every_of(self, job: Job) -> "list[tuple[Job, SiteContext]]":
        """Do the same as `of` for each area in which a pending job may start."""
        if self.areas is None:
            return [(job, self)]
        topology, request = self.areas.topology, request_of(job)
        return [(self.areas.seen_in_area(job, area), self._view(area)) for area in topology.areas_of(request)]

    def earliest(self, job: Job, now: float) -> float:
        """Return the earliest start of a job that is pending `now`, by its eligible time and the reservations (Unix
        seconds).

        The job and the context are as methods see them. O(reservations).
        """
        ready = max(job.ready, now)
        if self.layout is None:
            return ready
        request = request_of(job)
        longest_s = self.layout.topology.longest_s(request)
        planned_s = job.walltime or (job.planned_run_s if longest_s == math.inf else longest_s)
        return ready + self.layout.earliest_s(request, planned_s, ready)

    def _view(self, area: Area) -> "SiteContext":
        assert self.areas is not None
        return SiteContext(
            self.areas.states[area.number],
            self.history,
            self.runs,
            self.runtimes,
            self.areas.capacity_of(area),
            self.size,
            layout=self.areas.layouts[area.number],
            whole=self.state,
        )


class WaitMethod(Method):
    """Base class of the methods for waits."""

    learns: ClassVar[bool] = True
    """Whether it learns from events, instead of using only the shared state of the site."""

    by_waits_alone: ClassVar[bool] = False
    """Whether it learns from waits only, and so also from jobs that it did not predict and whose state at submission is
    unknown."""

    @property
    def memory(self) -> Memory:
        """Empty for a method that does not learn."""
        return Memory() if self.learns else NO_MEMORY

    @property
    def degraded(self) -> str | None:
        """The reason why its predictions are currently degraded; None if they are not."""
        return None

    @property
    def order_fit(self) -> OrderFit | None:
        """Share of recent pairs of jobs that started in the order of its simulated schedule; None without one."""
        return None

    def pending(self) -> Future[Any] | None:
        """Return what the next event would wait for, such as the end of a training; None if nothing.

        Callers with other work wait for it before that event; otherwise the method itself waits.
        """
        return None

    re_estimates: ClassVar[bool] = False  # whether it estimates pending jobs again

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Return the wait of a job that is being submitted and is not yet part of the state."""
        raise NotImplementedError

    def notice(self, job: Job, context: SiteContext) -> None:
        """Observe a submitted job that this method need not predict but will learn from."""
        self.predict(job, context)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Yield the result of `predict` for considered jobs, each as if only this job were submitted.

        Hypothetical jobs have a key that no submitted job has. The call does not change the state.
        """
        for job in jobs:
            estimate = self.predict(job, context)
            self.forget(job.key)
            yield estimate

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the expected starts of the pending jobs as of `now`, Unix seconds; nan if unknown.

        The result is in the order of the visible jobs, `context.state.table.seen()`.
        """
        return np.full(len(context.state.table.visible_rows().rows), np.nan)

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        """Return the whole wait of a job that has been pending from `job.ready` until `now` (Unix seconds).

        It is at least that long. None if the method has no newer information than at submission. The call does not
        change the state.
        """
        return None

    def refresh(self, jobs: Sequence[Job], context: SiteContext, now: float) -> list[Estimate | None]:
        """Estimate the whole waits of queued jobs from the state of the site `now` (Unix seconds).

        The engine calls this when something may have changed for the jobs, and the method may learn from it. Later
        `re_estimate` continues from what was published of each.
        """
        return [self.re_estimate(job, context, now) for job in jobs]

    def observe(self, job: Job, what: JobTransition, at: float, context: SiteContext) -> None:
        """Observe a transition of an attempt at the time `at` (Unix seconds).

        The engine reports the transitions of every attempt: array tasks, requeued and preempted attempts, and those
        whose wait is not scored. Learn the usage of users and the order of starts here; the engine calls `learn`,
        `cancelled` and `ended` for scored jobs only. At its submission, start, suspension and resumption the job is
        part of the state; at its end and withdrawal it has left.
        """

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Learn from a predicted job that started after `wait_s` seconds; the history does not contain it yet."""

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """Learn from a predicted job that was cancelled after `waited_s` seconds in the queue; `forget` follows."""

    def ended(self, job: Job, wait_s: float, run_s: float, context: SiteContext) -> None:
        """Learn from a predicted job that waited `wait_s` seconds and ended after `run_s` seconds of run time."""

    def forget(self, key: JobKey) -> None:
        """Drop the data of a job that left the queue without a wait."""
