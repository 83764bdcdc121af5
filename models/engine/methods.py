"""The methods that run at one site, made from its settings."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from models.arrays import Floats
from models.engine.declared import no_earlier
from models.engine.settings import EngineSettings
from models.method import Happened, Memory, Method, RunMethod, SiteContext, WaitMethod
from models.records import JobKey
from models.registry import method_named, run_method_named
from models.site.history import features_of
from models.site.job import Estimate, Job
from models.site.rows import PerJob, Rows
from models.site.runs import RunHistory
from models.site.topology import ask_of
from models.waits.boosted.method import Boosted
from models.waits.boosted.prior import Prior, shipped
from models.waits.simulated import SimulatedEasy


class SavedMethods(msgspec.Struct):
    """What methods for waits and for run times saved, by their names."""

    waits: dict[str, bytes]
    runs: dict[str, bytes]


class SiteMethods:
    """The methods that run at one site.

    `waits` and `runs` predict every job and are by name, the one that counts first; `counting` is that for waits.
    `what_if_method` is the one of `waits` that answers for jobs that are only considered. `rows` are the
    methods' own, by the key under which they are stored, and `per_job` is what they keep of live jobs.

    Raises:
        ValueError: there is no such method or parameter, or a method cannot be loaded.
    """

    def __init__(self, site: str, settings: EngineSettings) -> None:
        parameters, self._runtimes = settings.parameters, settings.runtimes
        self.waits: dict[str, WaitMethod]
        self.waits = {name: method_named(name, parameters.get(name)) for name in settings.methods_at(site)}
        self.runs: dict[str, RunMethod]
        self.runs = {name: run_method_named(name, parameters.get(name)) for name in settings.run_methods}
        self.counting = self.waits[settings.method]
        self.what_if_method = self.waits[settings.what_if_at(site)]
        named = [*self.waits.items(), *((f"run.{name}", method) for name, method in self.runs.items())]
        every = [one for name, method in named for one in _with_parts(name, method)]
        self.rows: dict[str, Rows] = {key: method.rows for key, method in every if method.rows is not None}
        self.per_job: dict[str, PerJob[Any]]
        self.per_job = {key: method.per_job for key, method in every if method.per_job is not None}
        self.memory = Memory.together([Memory(settings.history, 0), *(method.memory for _, method in every)])
        """How much of the site's past the methods know together, with the history that they compare with."""
        self._forests = [method for _, method in every if isinstance(method, Boosted)]
        for forests in self._forests:
            prior = None if settings.prior == "none" else shipped()
            forests.begin_with(prior, may_change=settings.prior == "grid")

    @property
    def trains(self) -> bool:
        """Whether any of them has trainings."""
        return bool(self._forests)

    def use_prior(self, encoded: bytes) -> int:
        """Have forests start from this prior; gives how many jobs it knows.

        Raises:
            ValueError: it is none.
        """
        prior = Prior.decode(encoded)
        for forests in self._forests:
            forests.use_prior(encoded)
        return prior.jobs

    def learning_from(self, job: Job) -> list[WaitMethod]:
        """Those that learn what became of a job: the ones that predicted or noticed it."""
        return [method for name, method in self.waits.items() if job.progress.old or name in job.estimates]

    def learn_late(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started that was not known before: those learn from its wait that go by waits alone."""
        for method in self.waits.values():
            if method.by_waits_alone:
                method.learn(job, wait_s, context)

    def run_history(self) -> RunHistory:
        """An empty history of run times, with the categories that the methods read."""
        return RunHistory(template for method in self.runs.values() for template in method.templates)

    def predict_run(self, job: Job, context: SiteContext) -> None:
        """Note in the job what each method says of its run time, and what is planned with."""
        for name, method in self.runs.items():
            job.run_estimates[name] = method.predict(job, context.runs)
        plan_run(job, self._runtimes)

    def predict_wait(self, job: Job, context: SiteContext) -> None:
        """Note in the job the state that it finds and what each method says of its wait."""
        seen, there = context.of(job)
        job.features = seen.features = features_of(seen, there.state, job.submit)
        for name, method in self.waits.items():
            job.estimates[name] = no_earlier(method.predict(seen, there), seen, there, job.submit)

    def notice(self, job: Job, context: SiteContext) -> None:
        """Note in the job the state that it finds; methods see it come, and will learn from it."""
        seen, there = context.of(job)
        job.features = seen.features = features_of(seen, there.state, job.submit)
        for method in self.waits.values():
            if method.learns:
                method.notice(seen, there)

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        """Return the estimate in force of a queued job, by the method that counts."""
        seen, there = context.of(job)
        estimate = self.counting.re_estimate(seen, there, now)
        return None if estimate is None else no_earlier(estimate, seen, there, now)

    def refresh(self, jobs: Sequence[Job], context: SiteContext, now: float) -> Iterator[Estimate | None]:
        """Yield estimates of queued jobs from the state of the site now, by the method that counts, area by area."""
        found = dict[JobKey, Estimate | None]()
        for _, some in groupby(sorted(map(context.of, jobs), key=_area_number), key=_area_number):
            seen, theres = zip(*some, strict=True)
            for job, estimate in zip(seen, self.counting.refresh(seen, theres[0], now), strict=True):
                found[job.key] = None if estimate is None else no_earlier(estimate, job, theres[0], now)
        return (found[job.key] for job in jobs)

    def starts(self, context: SiteContext, now: float) -> Floats:
        """When the jobs of an area that are looked at will start as things are `now` (Unix seconds); nan: unknown.

        By the method that answers, and no earlier than the site's reservations let them.
        """
        starts = self.what_if_method.starts(context, now)
        if context.layout is not None:
            table, earliest = context.state.table, dict[tuple[object, ...], float]()
            for place in np.flatnonzero(~np.isnan(starts)).tolist():
                key = table.keys[table.seen().rows[place]]
                assert key is not None
                job = context.state.jobs[key]
                like = (ask_of(job), job.walltime, job.planned_run_s, max(job.ready, now))
                if like not in earliest:
                    earliest[like] = context.earliest(job, now)
                starts[place] = max(starts[place], earliest[like])
        return starts

    def start(self, job: Job, context: SiteContext, now: float) -> float | None:
        """When a queued job will start, as it is seen in its area, where it is not among those that are looked at."""
        estimate = self.what_if_method.re_estimate(job, context, now)
        if estimate is None or estimate.wait_s is None:
            return None
        return max(job.ready + estimate.wait_s, context.earliest(job, now))

    def observe(self, job: Job, what: Happened, at: float, context: SiteContext) -> None:
        """Something has befallen an attempt, whether or not it is scored."""
        seen, there = context.of(job)
        for method in self.waits.values():
            method.observe(seen, what, at, there)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started whose wait is scored."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.learn(seen, wait_s, there)

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """A job was cancelled in the queue whose wait is scored."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.cancelled(seen, waited_s, there)

    def ended(self, job: Job, wait_s: float, run_s: float, context: SiteContext) -> None:
        """A job that was predicted ended."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.ended(seen, wait_s, run_s, there)

    def last_task_s(self, job: Job, context: SiteContext) -> float | None:
        """Of an array that queues as one row: how many seconds after its first task the last one starts, under EASY."""
        if job.extras.array_size is None:
            return None
        seen, there = context.of(job)
        return SimulatedEasy().last_task_s(seen, job.extras.array_size, job.extras.array_limit, there)

    def pending(self) -> Future[Any] | None:
        """What the next event would have to wait for; of several things the first. 1 µs."""
        found = (method.pending() for method in self.waits.values())
        return next((future for future in found if future is not None), None)

    def forget(self, key: JobKey) -> None:
        """A job left the queue and its wait will not be known."""
        for method in self.waits.values():
            method.forget(key)

    def save(self) -> SavedMethods:
        """What the methods keep for themselves, beside their rows and what they keep of live jobs."""
        waits = {name: method.save() for name, method in self.waits.items()}
        return SavedMethods(waits, {name: method.save() for name, method in self.runs.items()})

    def load(self, saved_methods: SavedMethods, with_rows: bool) -> None:
        """Take back what the methods saved; one that has rows, or a part with rows, goes on only with these.

        Else it begins empty: what it saved counts rows that are not there any more.
        """
        every: list[tuple[Method, bytes | None]]
        every = [(method, saved_methods.waits.get(name)) for name, method in self.waits.items()]
        every += [(method, saved_methods.runs.get(name)) for name, method in self.runs.items()]
        for method, saved in every:
            if saved is not None and (with_rows or all(one.rows is None for _, one in _with_parts("", method))):
                method.load(saved)


def _with_parts(name: str, method: Method) -> Iterator[tuple[str, Method]]:
    """A method and those that it is made of, by the keys under which their rows are stored."""
    yield name, method
    for part, inner in method.parts.items():
        yield from _with_parts(f"{name}.{part}", inner)


def _area_number(job_in_area: tuple[Job, SiteContext]) -> int:
    layout = job_in_area[1].layout
    return -1 if layout is None else layout.area.number


def plan_run(job: Job, runtimes: str) -> None:
    """Take the run time that counts from the job's estimates: that of the method `runtimes`."""
    job.run_s = job.run_estimates[runtimes].run_s
    job.planned_run_s = planned_run_s(job.walltime, job.run_s)


def planned_run_s(walltime: float | None, run_s: float | None) -> float:
    """The run time to plan with, seconds: the requested walltime (0 is none), else the predicted run time, else 0."""
    return walltime or run_s or 0.0
