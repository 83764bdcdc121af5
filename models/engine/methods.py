"""The methods that run at one site, created from its settings."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Any

import msgspec
import numpy as np

from models.arrays import Floats
from models.engine.declared import no_earlier
from models.engine.settings import EngineSettings
from models.method import JobTransition, Memory, Method, RunMethod, SiteContext, WaitMethod
from models.method_registry import method_named, run_method_named
from models.records import JobKey
from models.site.history import features_of
from models.site.job import Estimate, Job
from models.site.rows import PerJob, Rows
from models.site.runs import RunHistory
from models.site.topology import request_of
from models.waits.blend.remaining import RemainingWait
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.prior import Prior, shipped
from models.waits.simulated import SimulatedEasy


class SavedMethods(msgspec.Struct):
    """Saved state of the methods for waits and for run times, by their names."""

    waits: dict[str, bytes]
    runs: dict[str, bytes]


class SiteMethods:
    """The methods that run at one site.

    `waits` and `runs` map names to the methods that predict every job, the default first. `counting` is the default
    method for waits, and `what_if_method` the one for considered jobs. `rows` are the rows of methods by their storage
    keys, and `per_job` the values that they keep for each live job.

    Raises:
        ValueError: a method or parameter does not exist, or a method cannot be loaded.
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
        self.memory = Memory.longest_memory([Memory(settings.history, 0), *(method.memory for _, method in every)])
        """How much of the site's past the methods know together, with the history that they compare with."""
        for _, method in every:
            if isinstance(method, RemainingWait) and settings.prior != "none":
                method.forests.start_from_prior()
        self._forests = [method for _, method in every if isinstance(method, Boosted)]
        for forests in self._forests:
            prior = None if settings.prior == "none" else shipped()
            forests.start_from(prior, may_change=settings.prior == "grid")

    @property
    def trains(self) -> bool:
        """True if any of the methods is trained."""
        return bool(self._forests)

    def use_prior(self, encoded: bytes) -> int:
        """Start the forests from this pre-trained model; return the number of jobs that it was trained on.

        Raises:
            ValueError: the model is invalid.
        """
        prior = Prior.decode(encoded)
        for forests in self._forests:
            forests.use_prior(encoded)
        return prior.jobs

    def learning_from(self, job: Job) -> list[WaitMethod]:
        """Return the methods that learn from a job: those that predicted or noticed it."""
        return [method for name, method in self.waits.items() if job.progress.old or name in job.estimates]

    def learn_late(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Learn the wait of a job that was reported only at its start, by the methods that use waits only."""
        for method in self.waits.values():
            if method.by_waits_alone:
                method.learn(job, wait_s, context)

    def run_history(self) -> RunHistory:
        """Return an empty history of run times, with the categories that the methods use."""
        return RunHistory(template for method in self.runs.values() for template in method.templates)

    def predict_run(self, job: Job, context: SiteContext) -> None:
        """Store each method's estimate of the run time in the job, and the run time to plan with."""
        for name, method in self.runs.items():
            job.run_estimates[name] = method.predict(job, context.runs)
        plan_run(job, self._runtimes)

    def predict_wait(self, job: Job, context: SiteContext) -> None:
        """Store the features of the current state and each method's estimate of the wait in the job."""
        seen, there = context.of(job)
        job.features = seen.features = features_of(seen, there.state, job.submit)
        for name, method in self.waits.items():
            job.estimates[name] = no_earlier(method.predict(seen, there), seen, there, job.submit)

    def notice(self, job: Job, context: SiteContext) -> None:
        """Store the features of the current state in the job, and notify the methods, which will learn from it."""
        seen, there = context.of(job)
        job.features = seen.features = features_of(seen, there.state, job.submit)
        for method in self.waits.values():
            if method.learns:
                method.notice(seen, there)

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        """Return the estimate in force of a pending job, by the default method."""
        seen, there = context.of(job)
        estimate = self.counting.re_estimate(seen, there, now)
        return None if estimate is None else no_earlier(estimate, seen, there, now)

    def refresh(self, jobs: Sequence[Job], context: SiteContext, now: float) -> Iterable[Estimate | None]:
        """Return estimates of pending jobs from the current state of the site, by the default method, area by area."""
        if context.areas is None:
            return self.counting.refresh(jobs, context, now)
        found = dict[JobKey, Estimate | None]()
        for _, some in groupby(sorted(map(context.of, jobs), key=_area_number), key=_area_number):
            seen, contexts = zip(*some, strict=True)
            for job, estimate in zip(seen, self.counting.refresh(seen, contexts[0], now), strict=True):
                found[job.key] = None if estimate is None else no_earlier(estimate, job, contexts[0], now)
        return (found[job.key] for job in jobs)

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the expected starts of the visible jobs of an area as of `now` (Unix seconds); nan if unknown.

        The what-if method estimates them, and none is earlier than the site's reservations allow.
        """
        starts = self.what_if_method.starts(context, now)
        if context.layout is not None:
            table, earliest = context.state.table, dict[tuple[object, ...], float]()
            for place in np.flatnonzero(~np.isnan(starts)).tolist():
                key = table.keys[table.visible_rows().rows[place]]
                assert key is not None
                job = context.state.jobs[key]
                like = (request_of(job), job.walltime, job.planned_run_s, max(job.ready, now))
                if like not in earliest:
                    earliest[like] = context.earliest(job, now)
                starts[place] = max(starts[place], earliest[like])
        return starts

    def start(self, job: Job, context: SiteContext, now: float) -> float | None:
        """Return the expected start of a pending job that is not visible in its area."""
        estimate = self.what_if_method.re_estimate(job, context, now)
        if estimate is None or estimate.wait_s is None:
            return None
        return max(job.ready + estimate.wait_s, context.earliest(job, now))

    def observe(self, job: Job, what: JobTransition, at: float, context: SiteContext) -> None:
        """Report a transition of an attempt to the methods, whether or not the attempt is scored."""
        seen, there = context.of(job)
        for method in self.waits.values():
            method.observe(seen, what, at, there)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Learn from a started job whose wait is scored."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.learn(seen, wait_s, there)

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """Report a job that was cancelled while pending and whose wait is scored."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.cancelled(seen, waited_s, there)

    def ended(self, job: Job, wait_s: float, run_s: float, context: SiteContext) -> None:
        """Report the end of a predicted job."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.ended(seen, wait_s, run_s, there)

    def last_task_s(self, job: Job, context: SiteContext) -> float | None:
        """Return the seconds between the starts of the first and the last task of an array row, under EASY."""
        if job.extras.array_size is None:
            return None
        seen, there = context.of(job)
        return SimulatedEasy().last_task_s(seen, job.extras.array_size, job.extras.array_limit, there)

    def pending(self) -> Future[Any] | None:
        """Return what the next event would wait for, the first of several; None if nothing."""
        found = (method.pending() for method in self.waits.values())
        return next((future for future in found if future is not None), None)

    def forget(self, key: JobKey) -> None:
        """Report a job that left the queue with an unknown wait."""
        for method in self.waits.values():
            method.forget(key)

    def save(self) -> SavedMethods:
        """Return the state of the methods, without their rows and per-job values."""
        waits = {name: method.save() for name, method in self.waits.items()}
        return SavedMethods(waits, {name: method.save() for name, method in self.runs.items()})

    def load(self, saved_methods: SavedMethods, with_rows: bool) -> None:
        """Restore the state of the methods; a method with rows, its own or those of a part, is restored only with them.

        Otherwise it starts empty, because its saved state counts rows that are missing.
        """
        every: list[tuple[Method, bytes | None]]
        every = [(method, saved_methods.waits.get(name)) for name, method in self.waits.items()]
        every += [(method, saved_methods.runs.get(name)) for name, method in self.runs.items()]
        for method, saved in every:
            if saved is not None and (with_rows or all(one.rows is None for _, one in _with_parts("", method))):
                method.load(saved)


def _with_parts(name: str, method: Method) -> Iterator[tuple[str, Method]]:
    """Yield a method and its parts, with the keys under which their rows are stored."""
    yield name, method
    for part, inner in method.parts.items():
        yield from _with_parts(f"{name}.{part}", inner)


def _area_number(job_in_area: tuple[Job, SiteContext]) -> int:
    layout = job_in_area[1].layout
    return -1 if layout is None else layout.area.number


def plan_run(job: Job, runtimes: str) -> None:
    """Set the run time with which schedules are simulated, by the method `runtimes`."""
    job.run_s = job.run_estimates[runtimes].schedule_s
    job.planned_run_s = planned_run_s(job.walltime, job.run_s)


def planned_run_s(walltime: float | None, run_s: float | None) -> float:
    """Return the run time to plan with, in seconds: time limit (0 for none), else predicted run time, else 0."""
    return walltime or run_s or 0.0
