"""Waits by simulating the scheduler on predicted run times (Smith, Taylor and Foster 1999, section 3).

When a job is submitted, those that run and queue are scheduled until it starts, as if no other came. Each method is one
policy. Later jobs matter little under backfilling, and much under least work first, where small ones overtake: with
true run times the paper finds errors of 3 to 10 % and of 39 to 43 % of the mean wait (table 4).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np

from models.method import SiteContext, WaitMethod
from models.records import JobKey
from models.site.state import Estimate, Job, Phase
from models.waits.schedules import Jobs, Live, Schedule, conservative, easy, easy_openings, fcfs, lwf, wait_s

DEFAULT_RUN_S = 3600.0
"""The run time of a job that has neither an estimate nor a walltime."""

MIN_REMAINING_S = 1.0
"""The least time that a job runs, or runs on: until its end event it is running."""

MAX_TASK_ROWS = 256
"""Rows by which the tasks of an array are simulated, at most."""

Plans = Literal["walltime", "predicted"]

JobRow = tuple[int, float, float]
"""Of a job: its processors, how long it holds them from now on, and how long the scheduler plans with."""

Starts = Callable[[int, float, float], float]
"""Gives the seconds from now until a job starts, from its row."""

Outlived = dict[JobKey, float]
"""Whole run times in seconds, predicted again, of jobs that have run for longer than was predicted before."""


class Simulated(WaitMethod):
    """The schedule of a policy, up to the start of the job. O(live jobs), 1 µs each, and what the schedule costs.

    A job runs for what was predicted when it was submitted; without a prediction for its walltime, and without both for
    an hour. A job that runs for longer is predicted again; if it has outlived that too, it runs for as long again. None
    runs beyond its walltime. Jobs that are held, or not yet eligible, or larger than the site, are left out.

    Parameters:
        plans: what the scheduler plans with: "walltime", or the prediction where there is none; or always
            "predicted", as in the paper.
    """

    schedule: ClassVar[Schedule]
    tunable: ClassVar[Mapping[str, Any]] = {"plans": Plans}
    learns = False

    def __init__(self, plans: Plans = "walltime") -> None:
        self.plans = plans
        self._outlived: Outlived = {}

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """The wait; none where the job is larger than the site, or the size of the site is not known."""
        live, self._outlived = self._look(context, job.submit)
        return self._estimate(job, context, live, partial(wait_s, type(self).schedule, live))

    def waits(self, job: Job, context: SiteContext, schedules: Mapping[str, Schedule]) -> dict[str, float] | None:
        """The waits that `predict` would give by each of several schedules; None where one of them gives none."""
        live, self._outlived = self._look(context, job.submit)
        found = {}
        for name, schedule in schedules.items():
            estimate = self._estimate(job, context, live, partial(wait_s, schedule, live))
            if estimate.wait_s is None:
                return None
            found[name] = estimate.wait_s
        return found

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """The wait of each; jobs that are submitted at the same time share one view of the site.

        Of a job only `submit`, `eligible`, `cpus`, `run_s` and `walltime` count.
        """
        for now, alike in groupby(jobs, lambda job: job.submit):
            live = self.live(context, now)
            starts = self._starts(live)
            for job in alike:
                yield self._estimate(job, context, live, starts)

    def _starts(self, live: Live) -> Starts:
        """Gives the start of each of many jobs."""
        return partial(wait_s, type(self).schedule, live)

    def starts(self, context: SiteContext, now: float) -> dict[JobKey, float]:
        """When each queued job starts that is ready and not larger than the site, if no other comes."""
        starts_s = type(self).schedule(self.live(context, now), True)
        ready = (job.key for job in context.state.jobs.values() if _is_ready(job, context.cpus, now))
        told = zip(ready, starts_s.tolist(), strict=True)
        return {key: now + start_s for key, start_s in told if start_s < np.inf}

    def last_task_s(self, job: Job, tasks: int, at_once: int | None, context: SiteContext) -> float | None:
        """How many seconds after the first the last of so many tasks starts, each of them like the job; None: unknown.

        Where at most `at_once` of them run at once, so many rows queue, each for the tasks that run one after the other
        in it. Many are taken together: what is simulated are `MAX_TASK_ROWS` rows at most.
        """
        live = self.live(context, job.submit)
        if not 0 < job.cpus <= live.cpus:
            return None
        abreast = min(tasks, at_once or tasks)
        width = min(-(-abreast // MAX_TASK_ROWS), live.cpus // job.cpus)
        rows = min(-(-abreast // width), MAX_TASK_ROWS)
        rounds = -(-tasks // (rows * width))
        rows = -(-tasks // (rounds * width))
        _, run_s, planned_s = self._row(job, _expected(job))
        row = job.cpus * width, run_s * rounds, planned_s * rounds
        queued = (np.append(known, [value] * rows) for known, value in zip(live.queued, row, strict=True))
        starts_s = type(self).schedule(live._replace(queued=Jobs(*queued)), True)[-rows:]
        return float(starts_s.max() - starts_s.min() + (rounds - 1) * run_s) if np.isfinite(starts_s).all() else None

    def live(self, context: SiteContext, now: float) -> Live:
        """The site as it is simulated, for `models.waits.schedules.wait_s` to ask of many jobs."""
        return self._look(context, now)[0]

    def _look(self, context: SiteContext, now: float) -> tuple[Live, Outlived]:
        """The site as it is simulated, and the jobs that run for longer than was expected."""
        cpus = context.cpus
        running: list[JobRow] = []
        queued: list[JobRow] = []
        outlived: Outlived = {}
        for job in context.state.jobs.values():
            if job.phase is Phase.RUNNING:
                elapsed_s = job.ran_s(now)
                run_s = _expected(job)
                if run_s <= elapsed_s:
                    run_s = self._outlived.get(job.key, 0.0)
                    if run_s <= elapsed_s:
                        run_s = _expected_beyond(elapsed_s, job, context)
                    outlived[job.key] = run_s
                running.append(self._row(job, run_s, elapsed_s))
            elif _is_ready(job, cpus, now):
                queued.append(self._row(job, _expected(job)))
        return Live(cpus, _columns(running), _columns(queued)), outlived

    def _row(self, job: Job, run_s: float, elapsed_s: float = 0.0) -> JobRow:
        planned_s = job.walltime or run_s if self.plans == "walltime" else run_s
        left_s = max(run_s - elapsed_s, MIN_REMAINING_S)
        return job.counted_cpus, left_s, max(planned_s - elapsed_s, left_s)

    def _estimate(self, job: Job, context: SiteContext, live: Live, starts: Starts) -> Estimate:
        if live.cpus <= 0:
            return Estimate(None, "size of the site unknown")
        if job.cpus > live.cpus:
            return Estimate(None, f"larger than the site: {job.cpus} of {live.cpus} processors")
        start_s = starts(*self._row(job, _expected(job)))
        among = f"{len(live.running.cpus)} running and {len(live.queued.cpus)} queued jobs"
        reason = f"{self.name}: {among}, run times by {context.runtimes.name}"
        return Estimate(max(start_s - (job.ready - job.submit), 0.0), reason)

    def save(self) -> bytes:
        """The run times that were predicted again."""
        return msgspec.msgpack.encode([(*key, run_s) for key, run_s in self._outlived.items()])

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
        rows = msgspec.msgpack.decode(saved, type=list[tuple[str, int, float]])
        self._outlived = {(job, attempt): run_s for job, attempt, run_s in rows}


def _is_ready(job: Job, cpus: int, now: float) -> bool:
    """Whether a job could start now, if there were room."""
    return job.phase is Phase.QUEUED and job.ready <= now and job.cpus <= cpus


def _expected(job: Job) -> float:
    """How long the job runs, as predicted at its submission."""
    run_s = job.walltime or DEFAULT_RUN_S if job.run_s is None else job.run_s
    return min(run_s, job.walltime) if job.walltime else run_s


def _expected_beyond(elapsed_s: float, job: Job, context: SiteContext) -> float:
    """How long a job runs that has run for longer than was expected."""
    limit_s = job.walltime or np.inf
    if elapsed_s >= limit_s:
        return limit_s
    run_s = context.runtimes.predict(job, context.runs, elapsed_s).run_s
    return min(limit_s, 2 * elapsed_s if run_s is None or run_s <= elapsed_s else run_s)


def _columns(rows: list[JobRow]) -> Jobs:
    table = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return Jobs(table[0].astype(np.int64), table[1].copy(), table[2].copy())


class SimulatedFcfs(Simulated):
    """As if the site served first come, first served."""

    name = "fcfs"
    schedule = staticmethod(fcfs)


class SimulatedLwf(Simulated):
    """As if the site served least work first."""

    name = "lwf"
    schedule = staticmethod(lwf)


class SimulatedEasy(Simulated):
    """As if the site backfilled and reserved processors for the head of its queue."""

    name = "easy"
    schedule = staticmethod(easy)

    def _starts(self, live: Live) -> Starts:
        openings = easy_openings(live)
        return lambda cpus, _, planned_s: openings.first(cpus, planned_s)


class SimulatedConservative(Simulated):
    """As if the site backfilled and reserved processors for every queued job: the paper's backfill."""

    name = "conservative"
    schedule = staticmethod(conservative)
