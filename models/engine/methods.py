"""The methods that run at one site, made from its settings."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from models.engine.declared import no_earlier
from models.engine.settings import EngineSettings
from models.method import Method, RunMethod, SiteContext, WaitMethod
from models.records import JobKey
from models.registry import method_named, run_method_named
from models.site.features import features_of
from models.site.rows import Rows
from models.site.runs import RunHistory
from models.site.state import Estimate, Job
from models.waits.simulated import SimulatedEasy


class SiteMethods:
    """The methods that run at one site.

    `waits` and `runs` predict every job and are by name, the one that counts first; `counting` is that for waits.
    `what_if_method` answers for jobs that are only considered: one of `waits`, or one of its own. `rows` are the
    methods' own, by the key under which they are stored.

    Raises:
        ValueError: there is no such method or parameter, or a method cannot be loaded.
    """

    def __init__(self, site: str, settings: EngineSettings) -> None:
        parameters, self._runtimes = settings.parameters, settings.runtimes
        self.waits: dict[str, WaitMethod]
        self.waits = {name: method_named(name, parameters.get(name)) for name in settings.methods}
        self.runs: dict[str, RunMethod]
        self.runs = {name: run_method_named(name, parameters.get(name)) for name in settings.run_methods}
        self.counting = self.waits[settings.method]
        what_if = settings.what_if_at(site)
        self.what_if_method = self.waits.get(what_if) or method_named(what_if, parameters.get(what_if))
        self.rows = self._rows()

    def _rows(self) -> dict[str, Rows]:
        named = [*self.learning.items(), *((f"run.{name}", method) for name, method in self.runs.items())]
        return {key: rows for name, method in named for key, rows in _rows_of(name, method)}

    @property
    def learning(self) -> dict[str, WaitMethod]:
        """The methods for waits that are shown what happens: those that run, and the one for considered jobs."""
        what_if = self.what_if_method
        return self.waits | {what_if.name: what_if} if what_if.learns else self.waits

    def learning_from(self, job: Job) -> list[WaitMethod]:
        """Those of them that learn what became of a job: of those that run, the ones that predicted it."""
        learning = [method for name, method in self.waits.items() if name in job.estimates]
        if self.what_if_method.learns and self.what_if_method.name not in self.waits:
            learning.append(self.what_if_method)
        return learning

    def learn_late(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started that was not known before: those learn from its wait that go by waits alone."""
        for method in self.learning.values():
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
        if self.what_if_method.name not in self.waits and self.what_if_method.learns:
            self.what_if_method.notice(seen, there)

    def re_estimate(self, job: Job, context: SiteContext, now: float) -> Estimate | None:
        """What the method that counts says `now` of a job that still queues."""
        seen, there = context.of(job)
        estimate = self.counting.re_estimate(seen, there, now)
        return None if estimate is None else no_earlier(estimate, seen, there, now)

    def starts(self, context: SiteContext, now: float) -> Mapping[JobKey, float]:
        """When the queued jobs will start as things are `now`, by the method that answers (Unix seconds)."""
        if context.areas is None:
            return self.what_if_method.starts(context, now)
        found = {}
        for view in context.views():
            for key, start in self.what_if_method.starts(view, now).items():
                found[key] = max(start, view.earliest(view.state.jobs[key], now))
        return found

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started."""
        seen, there = context.of(job)
        for method in self.learning_from(job):
            method.learn(seen, wait_s, there)

    def cancelled(self, job: Job, waited_s: float, context: SiteContext) -> None:
        """A job was cancelled in the queue."""
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
        found = (method.pending() for method in self.learning.values())
        return next((future for future in found if future is not None), None)

    def forget(self, key: JobKey) -> None:
        """A job left the queue and its wait will not be known."""
        for method in self.learning.values():
            method.forget(key)

    def load(self, waits: Mapping[str, bytes], runs: Mapping[str, bytes], with_rows: bool) -> None:
        """Take back what the methods saved; one that has rows goes on only with these, else it begins anew."""
        kinds: tuple[tuple[Mapping[str, Method], Mapping[str, bytes]], ...] = (
            (self.learning, waits),
            (self.runs, runs),
        )
        for methods, saved in kinds:
            for name, method in methods.items():
                if name in saved and (with_rows or method.rows is None):
                    method.load(saved[name])


def _rows_of(name: str, method: Method) -> Iterator[tuple[str, Rows]]:
    """The rows of a method and of those that it is made of, by their keys."""
    if method.rows is not None:
        yield name, method.rows
    for part, inner in method.parts.items():
        yield from _rows_of(f"{name}.{part}", inner)


def plan_run(job: Job, runtimes: str) -> None:
    """Take the run time that counts from the job's estimates: that of the method `runtimes`."""
    job.run_s = job.run_estimates[runtimes].run_s
    job.planned_run_s = planned_run_s(job.walltime, job.run_s)


def planned_run_s(walltime: float | None, run_s: float | None) -> float:
    """The run time to plan with, seconds: the requested walltime (0 is none), else the predicted run time, else 0."""
    return walltime or run_s or 0.0
