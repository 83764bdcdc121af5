"""What a method of prediction is: it predicts from what is known now and learns from what became known."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from models.arrays import Floats
from models.records import Capacity, JobKey
from models.site.areas import Areas
from models.site.history import History
from models.site.job import Estimate, Job, Phase, RunEstimate
from models.site.rows import PerJob, Rows
from models.site.runs import RunHistory, Template
from models.site.size import MIN_STARTED_JOBS, SizeSeen
from models.site.state import SITE, SiteState
from models.site.topology import Area, Topology, ask_of
from models.site.topology.layout import Layout


class JobTransition(Enum):
    """What can befall an attempt, whether or not its wait is scored; see `WaitMethod.observe`."""

    SUBMITTED = "submitted"
    STARTED = "started"
    TASK_STARTED = "task started"  # so did a task of an array that queues as one row: it leaves that row
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    ENDED = "ended"  # it ran as long as it would
    INTERRUPTED = "interrupted"
    """It was preempted or requeued, or its node failed: how long it ran says nothing of its run time."""
    WITHDRAWN = "withdrawn"  # it left the queue without having started


class Memory(NamedTuple):
    """How much of a site's past a method knows: what it learnt of earlier jobs is gone, or counts less than 1/e.

    `seen` are jobs that it was shown, the last ones; `predicted` are those of them that it had to predict. None: it
    does not say how many.
    """

    seen: int | None = None
    predicted: int | None = None

    @classmethod
    def together(cls, memories: "Iterable[Memory]") -> "Memory":
        """That of several methods: the longest."""
        return cls(*(None if None in told else max(told) for told in zip(*memories, strict=True)))


NO_MEMORY = Memory(0, 0)  # that of a method that knows what the site's histories hold, and nothing else


class Method:
    """What methods of both kinds have in common. One method is one subclass in one file, named in `models.registry`.

    A method is a function of what it was shown, in that order: no clock, and no random numbers without a seed that is
    part of its state. What it keeps for itself, beyond the site's shared knowledge, it saves and loads: what it
    remembers of single jobs as `rows`, which are stored one by one, what it keeps of live jobs as `per_job`, which is
    stored beside each, and what is small as `save` and `load` have it. `save` is written at every checkpoint, so its
    size must not grow with the number of jobs.
    """

    name: ClassVar[str]

    tunable: ClassVar[Mapping[str, Any]] = {}
    """The constructor's keywords: what the method can be tuned by, each with its type and bounds."""

    rows: Rows | None = None  # the method's rows, where it has such; it sets this when it is made

    per_job: PerJob[Any] | None = None
    """What the method keeps of single live jobs; it sets this when it is made. It is back before `load` is called."""

    @property
    def memory(self) -> Memory:
        """How much of the past it knows, beside its parts: nobody need tell it more of a site's history."""
        return Memory()

    @property
    def parts(self) -> "Mapping[str, Method]":
        """The methods that it is made of, by name: their rows, and what they keep of live jobs, are stored beside its
        own; the rest it stores itself."""
        return {}

    def save(self) -> bytes:
        """What this method keeps for itself, so that `load` in another process goes on as if nothing happened."""
        return b""

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave; `rows` are back already. ValueError where these are none of its own."""


class RunMethod(Method):
    """Predicts run times."""

    templates: tuple[Template, ...] = ()  # the categories whose histories of run times it reads

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        """The whole run time of a job that has run for `elapsed_s` seconds already (0: not started)."""
        raise NotImplementedError

    def learn(self, job: Job, run_s: float, runs: RunHistory) -> None:
        """A job ended after having run for `run_s` seconds; `runs` does not hold it yet."""


@dataclass
class SiteContext:
    """What is known of a site: its live jobs, the jobs that started, what jobs of each category ran, and its size.

    Where a site has a topology, methods are given one of its areas as if it were the site (`of`): `state` are the live
    jobs of the area, `capacity` is its size, `layout` what it consists of, and `whole` are the live jobs of the site.
    """

    state: SiteState
    history: History
    runs: RunHistory
    runtimes: RunMethod
    capacity: Capacity | None = field(default=None)
    size: SizeSeen = field(default_factory=SizeSeen)
    areas: Areas | None = field(default=None)
    layout: Layout | None = field(default=None)
    whole: SiteState | None = field(default=None)

    @property
    def cpus(self) -> int:
        """Processors: as the site said, else the most that were ever seen in use."""
        return self.capacity.cpus if self.capacity is not None and self.capacity.cpus > 0 else self.max_cpus

    @property
    def max_cpus(self) -> int:
        """The most processors that were in use at once, as far as that is believed."""
        return self.size.most

    def see_cpus(self, now: float) -> None:
        """Note how many processors are in use, after a start at `now`."""
        settled = self.history.count >= MIN_STARTED_JOBS
        self.size.see(self.state.totals(SITE, Phase.RUNNING).cpus, now, settled)

    def resize(self, capacity: Capacity | None) -> None:
        """The site is of this size now. O(live jobs) where its areas are others than before, else O(pools)."""
        self.capacity = capacity
        topology = Topology.of(capacity)
        if topology is None:
            self.areas, self.state.follower = None, None
        elif self.areas is None:
            self.areas = Areas(topology, self.state)
        else:
            self.areas.take(topology)

    @property
    def everywhere(self) -> SiteState:
        """The live jobs of the whole site."""
        return self.state if self.whole is None else self.whole

    def views(self) -> "list[SiteContext]":
        """The site area by area; itself, where it has no topology."""
        return [self] if self.areas is None else [self._view(area) for area in self.areas.topology.areas]

    def of(self, job: Job) -> "tuple[Job, SiteContext]":
        """A job as methods see it, and the area in which it competes; 5 µs. Both as they are without a topology."""
        if self.areas is None:
            return job, self
        return self.areas.seen(job), self._view(self.areas.area_of(job))

    def every_of(self, job: Job) -> "list[tuple[Job, SiteContext]]":
        """As `of`, for each of the areas in which a job may start that has not started."""
        if self.areas is None:
            return [(job, self)]
        topology, ask = self.areas.topology, ask_of(job)
        return [(self.areas.seen(job, area), self._view(area)) for area in topology.areas_of(ask)]

    def earliest(self, job: Job, now: float) -> float:
        """When a job may start that waits `now`, as far as it is ready and by the site's reservations (Unix seconds).

        The job and the context are as methods see them. O(reservations).
        """
        ready = max(job.ready, now)
        if self.layout is None:
            return ready
        ask = ask_of(job)
        longest_s = self.layout.topology.longest_s(ask)
        planned_s = job.walltime or (job.planned_run_s if longest_s == math.inf else longest_s)
        return ready + self.layout.earliest_s(ask, planned_s, ready)

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
    """Predicts waits."""

    learns: ClassVar[bool] = True
    """Whether it predicts from what it was itself shown, rather than from what is known of the site alone."""

    by_waits_alone: ClassVar[bool] = False
    """Whether it learns from waits alone, so also of jobs that it did not predict and whose state at submission is not
    known."""

    @property
    def memory(self) -> Memory:
        """None of its own where it does not learn."""
        return Memory() if self.learns else NO_MEMORY

    @property
    def degraded(self) -> str | None:
        """Why its predictions are worse than usual now, if they are."""
        return None

    def pending(self) -> Future[Any] | None:
        """What the next event would have to wait for, such as the end of a training; None where it would not.

        Whoever has other things to do waits for it before that event; else the method itself does.
        """
        return None

    re_estimates: ClassVar[bool] = False  # whether it estimates queued jobs again

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """The wait of a job that is being submitted and is not yet part of the state."""
        raise NotImplementedError

    def notice(self, job: Job, context: SiteContext) -> None:
        """See a job come that this method need not predict and will learn from."""
        self.predict(job, context)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """What `predict` would say of jobs that are only considered, each as if it alone were submitted.

        They have a key that no submitted job has. Asking changes nothing.
        """
        for job in jobs:
            estimate = self.predict(job, context)
            self.forget(job.key)
            yield estimate

    def starts(self, context: SiteContext, now: float) -> Floats:
        """When the queued jobs will start as things are `now`, Unix seconds; nan where the method cannot tell.

        They are those that are looked at, `context.state.table.seen()`, in that order.
        """
        return np.full(len(context.state.table.seen().rows), np.nan)

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        """The whole wait of a job that has queued from `job.ready` until `now` (Unix seconds).

        It is at least so long. None where the method can say nothing that it did not say at the job's submission.
        Asking changes nothing.
        """
        return None

    def refresh(self, jobs: Sequence[Job], context: SiteContext, now: float) -> list[Estimate | None]:
        """Estimate the whole waits of queued jobs from the state of the site `now` (Unix seconds).

        The engine calls this when something may have changed for the jobs, and the method may learn from it. Later
        `re_estimate` continues from what was published of each.
        """
        return [self.re_estimate(job, context, now) for job in jobs]

    def observe(self, job: Job, what: JobTransition, at: float, context: SiteContext) -> None:
        """Something has befallen an attempt at a time (`at`, Unix seconds).

        This is told of every attempt that is seen: tasks of arrays, requeued and preempted attempts, and those whose
        wait is not scored. What users hold and have used, and who overtook whom, is to be learnt here; `learn`,
        `cancelled` and `ended` are told of jobs that are scored alone. At its submission, start, suspension and
        resumption the job is part of the state as it is then; at its end and withdrawal it has left.
        """

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job that this method predicted started after `wait_s` seconds; the history does not hold it yet."""

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """A job that this method predicted was cancelled after `waited_s` seconds in the queue; `forget` follows."""

    def ended(self, job: Job, wait_s: float, run_s: float, context: SiteContext) -> None:
        """A job that this method predicted, and that had waited `wait_s`, ended after running for `run_s` seconds."""

    def forget(self, key: JobKey) -> None:
        """A job left the queue without a wait."""
