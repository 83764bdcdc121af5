"""Waits by simulating the scheduler on predicted run times (Smith, Taylor and Foster 1999, section 3).

When a job is submitted, the running and queued jobs are scheduled until it starts, without future jobs. Each method is
one policy. Later jobs matter little under backfilling, and much under least work first, where small ones overtake. With
true run times the paper finds errors of 3 to 10 % and of 39 to 43 % of the mean wait (table 4).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from models.arrays import Floats, Ints, Records
from models.kernels import njit
from models.method import SiteContext, WaitMethod
from models.records import JobKey
from models.site.job import Estimate, Job
from models.site.rows import PerJob
from models.site.table import QUEUED, RUNNING
from models.waits.schedules import Jobs, Live, Schedule, conservative, easy, easy_openings, fcfs, lwf, wait_s

MIN_REMAINING_S = 1.0
"""Minimum run time of a job, in total or remaining: until its end event it is running."""

MAX_TASK_ROWS = 256
"""Maximum number of rows in the simulation of an array's tasks."""

Plans = Literal["walltime", "predicted"]

JobRow = tuple[int, float, float]
"""A job's CPUs, the time that it holds them from now on, and the time that the scheduler plans with."""

Starts = Callable[[int, float, float], float]
"""Return the seconds from now until a job starts, from its row."""

Outlived = dict[JobKey, float]
"""Whole run times in seconds, predicted again, of jobs that have exceeded the earlier prediction."""


MAX_SIMULATED = 500
"""Maximum number of simulated jobs if not all are considered (`models.site.seen`): the first by the policy."""


_NONE, _NO_TIMES = np.zeros(0, np.int64), np.zeros(0)


class UnsimulatedJobs(NamedTuple):
    """The queued jobs that are not simulated, in the policy's order, (jobs,).

    `work` is the work by which the policy sorts. `done_s` is the time that the site needs for them, up to each, in
    seconds.
    """

    work: Floats
    done_s: Floats

    def before(self, work: float) -> float:
        """Return the seconds that the site needs for those before a job of this work that was submitted last."""
        jobs = int(np.searchsorted(self.work, work, side="right"))
        return float(self.done_s[jobs - 1]) if jobs else 0.0


class Site(NamedTuple):
    """The site in the form for simulation.

    `rows` are those of the queued jobs in the table, `outlived` the jobs that run longer than expected, and `queued` is
    the number of all queued jobs. A deep queue has a `rest`.
    """

    live: Live
    rows: Ints
    outlived: Outlived
    queued: int
    rest: UnsimulatedJobs | None = None
    bound: str = ""


class Simulated(WaitMethod):
    """The schedule of a policy, up to the start of the job. O(live jobs), plus the cost of the schedule.

    A job's run time is the prediction at its submission; without a prediction it is its walltime, and without both an
    hour. A job that runs for longer is predicted again; if it exceeds that too, it runs for as long again. No job runs
    beyond its walltime. Jobs that are held, not yet eligible, or larger than the site, are left out. If only a part of
    a deep queue is considered, `MAX_SIMULATED` jobs are simulated, and the rest counts as work.

    Args:
        plans: the run times that the scheduler plans with: "walltime", or the prediction where there is none; or always
            "predicted", as in the paper.
    """

    schedule: ClassVar["staticmethod[[Live, bool], Floats]"]
    by_work: ClassVar[bool] = False
    """True if jobs with less work start first; else those that were submitted first."""

    tunable: ClassVar[Mapping[str, Any]] = {"plans": Plans}
    learns = False

    def __init__(self, plans: Plans = "walltime") -> None:
        self.plans = plans
        self.per_job: PerJob[float] = PerJob(float)
        """Whole run times in seconds, predicted again, of jobs that have exceeded the earlier prediction."""

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait; none if the job is larger than the site, or the size of the site is missing."""
        site = self._take(context, job.submit)
        return self._estimate(job, context, site, partial(wait_s, type(self).schedule, site.live))

    def waits(self, job: Job, context: SiteContext, schedules: Mapping[str, Schedule]) -> dict[str, float] | None:
        """Return the waits that `predict` would return by each of several schedules; None if one of them is missing."""
        site = self._take(context, job.submit)
        found = {}
        for name, schedule in schedules.items():
            estimate = self._estimate(job, context, site, partial(wait_s, schedule, site.live))
            if estimate.wait_s is None:
                return None
            found[name] = estimate.wait_s
        return found

    def _take(self, context: SiteContext, now: float) -> Site:
        site = self.site(context, now)
        self.per_job.replace(site.outlived)
        return site

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Return the wait of each; jobs with the same submission time share one snapshot of the site.

        Only the job's `submit`, `eligible`, `cpus`, `run_s` and `walltime` count.
        """
        for now, alike in groupby(jobs, lambda job: job.submit):
            site = self.site(context, now)
            starts = self._starts(site.live)
            for job in alike:
                yield self._estimate(job, context, site, starts)

    def _starts(self, live: Live) -> Starts:
        """Return the function that computes the start of each of many jobs."""
        return partial(wait_s, type(self).schedule, live)

    def starts(self, context: SiteContext, now: float) -> Floats:
        """Return the start times of queued jobs that are ready, fit the site and are simulated, without future jobs."""
        site, seen = self.site(context, now), context.state.table.visible_rows()
        rows, first = np.unique(site.rows, return_index=True)
        starts_s, found = type(self).schedule(site.live, True)[first], np.full(len(seen.rows), np.nan)
        found[np.searchsorted(seen.rows, rows)] = np.where(np.isfinite(starts_s), now + starts_s, np.nan)
        return found

    def last_task_s(self, job: Job, tasks: int, at_once: int | None, context: SiteContext) -> float | None:
        """Return the seconds from the start of the first of these tasks to that of the last; None: missing.

        Each task is like the job. Where at most `at_once` of them run at the same time, that many rows queue, each for
        the tasks that run one after the other in it. Many rows are combined: at most `MAX_TASK_ROWS` are simulated.
        """
        live = self.site(context, job.submit).live
        if not 0 < job.cpus <= live.cpus:
            return None
        abreast = min(tasks, at_once or tasks)
        width = min(-(-abreast // MAX_TASK_ROWS), live.cpus // job.cpus)
        rows = min(-(-abreast // width), MAX_TASK_ROWS)
        rounds = -(-tasks // (rows * width))
        rows = -(-tasks // (rounds * width))
        _, run_s, planned_s = self._row(job, job.expected_run_s)
        row = job.cpus * width, run_s * rounds, planned_s * rounds
        queued = (np.append(known, [value] * rows) for known, value in zip(live.queued, row, strict=True))
        starts_s = type(self).schedule(live._replace(queued=Jobs(*queued)), True)[-rows:]
        return float(starts_s.max() - starts_s.min() + (rounds - 1) * run_s) if np.isfinite(starts_s).all() else None

    def site(self, context: SiteContext, now: float) -> Site:
        """Return the site in the form for simulation, for many calls of `models.waits.schedules.wait_s`."""
        cpus, table = context.cpus, context.state.table
        seen, places = table.visible_rows(), np.empty((3, len(table)), np.int64)
        started, outran, waiting = _divide(table.records, seen.rows, float(now), cpus, places)
        on, late, waits = places[0, :started], places[1, :outran], places[2, :waiting]
        rows, outlived = seen.rows[waits], self._outlived(context, on[late], now)
        longer_s = np.array([*outlived.values()], np.float64)
        running = self._jobs(table.records, on, float(now), late, longer_s)
        queued = self._jobs(table.records, rows, -np.inf, _NONE, _NO_TIMES)
        if seen.whole:
            return Site(Live(cpus, running, queued), rows, outlived, len(rows))
        stands_for = seen.stands_for[waits]
        work = queued.cpus * queued.planned_s if self.by_work else np.zeros(len(rows))
        order = np.argsort(work, kind="stable")
        ends = np.rint(np.cumsum(stands_for[order])).astype(np.int64)
        jobs = np.diff(np.minimum(ends, MAX_SIMULATED), prepend=0)
        line = np.repeat(order, jobs)
        rest_s = (np.diff(ends, prepend=0) - jobs) * queued.cpus[order] * queued.run_s[order]
        rest = UnsimulatedJobs(work[order], np.cumsum(rest_s) / max(int(running.cpus.sum()), 1))
        first = Jobs._make(column[line] for column in queued)
        return Site(Live(cpus, running, first), rows[line], outlived, int(ends[-1]), rest, seen.bound)

    def _outlived(self, context: SiteContext, rows: Ints, now: float) -> Outlived:
        """Return the running jobs, of these rows of the table, that have exceeded their expected run times."""
        outlived: Outlived = {}
        if not len(rows):
            return outlived
        table, known = context.state.table, self.per_job.get
        keys, starts = table.keys, table.records["start"][rows].tolist()
        for row, start in zip(rows.tolist(), starts, strict=True):
            key = keys[row]
            assert key is not None
            elapsed_s, longer_s = max(now - start, 0.0), known(key) or 0.0
            if longer_s <= elapsed_s:
                longer_s = _expected_beyond(elapsed_s, context.state.jobs[key], context)
            outlived[key] = longer_s
        return outlived

    def _jobs(self, table: Records, rows: Ints, now: float, late: Ints, longer_s: Floats) -> Jobs:
        found = Jobs(np.empty(len(rows), np.int64), np.empty(len(rows)), np.empty(len(rows)))
        _fill_in(*found, table, rows, now, late, longer_s, self.plans == "walltime")
        return found

    def _row(self, job: Job, run_s: float) -> JobRow:
        planned_s = job.walltime or run_s if self.plans == "walltime" else run_s
        remaining_s = max(run_s, MIN_REMAINING_S)
        return job.cpus, remaining_s, max(planned_s, remaining_s)

    def _estimate(self, job: Job, context: SiteContext, site: Site, starts: Starts) -> Estimate:
        live = site.live
        if live.cpus <= 0:
            return Estimate(None, "size of the site unknown")
        if job.cpus > live.cpus:
            return Estimate(None, f"larger than the site: {job.cpus} of {live.cpus} CPUs")
        cpus, run_s, planned_s = self._row(job, job.expected_run_s)
        start_s = starts(cpus, run_s, planned_s)
        if site.rest is not None:
            start_s += site.rest.before(cpus * planned_s if self.by_work else 0.0)
        among = f"{len(live.running.cpus)} running and {site.queued} queued jobs"
        reason = f"{self.name}: {among}, run times by {context.runtimes.name}{site.bound}"
        return Estimate(max(start_s - (job.ready - job.submit), 0.0), reason)


def _expected_beyond(elapsed_s: float, job: Job, context: SiteContext) -> float:
    """Return the expected run time of a job that has exceeded its prediction."""
    limit_s = job.walltime or np.inf
    if elapsed_s >= limit_s:
        return limit_s
    run_s = context.runtimes.predict(job, context.runs, elapsed_s).schedule_s
    return min(limit_s, 2 * elapsed_s if run_s is None or run_s <= elapsed_s else run_s)


@njit(cache=True, nogil=True)
def _divide(table: Records, rows: Ints, now: float, cpus: int, places: Ints) -> tuple[int, int, int]:
    """Sort these rows into running, late and queued jobs, in `places`; return the number of each.

    Late jobs run longer than expected. The queued jobs are those that are ready and not larger than the site.
    """
    running = late = waiting = 0
    for nth in range(len(rows)):
        job = table[rows[nth]]
        if job.phase == RUNNING:
            places[0, running] = rows[nth]
            if job.run_s <= max(now - job.start, 0.0):
                places[1, late] = running
                late += 1
            running += 1
        elif job.phase == QUEUED and job.ready <= now and job.cpus <= cpus:
            places[2, waiting] = nth
            waiting += 1
    return running, late, waiting


@njit(cache=True, nogil=True)
def _fill_in(
    cpus: Ints,
    remaining_s: Floats,
    planned_s: Floats,
    table: Records,
    rows: Ints,
    now: float,
    late: Ints,
    longer_s: Floats,
    by_walltime: bool,
) -> None:
    """Fill in the `Jobs` of these rows.

    Running jobs have started before `now`; those at the places `late` run for `longer_s` in total. With `now` at -inf,
    the jobs have not started.
    """
    nth = 0
    for place in range(len(rows)):
        job = table[rows[place]]
        run_s, elapsed_s = job.run_s, max(now - job.start, 0.0)
        if nth < len(late) and late[nth] == place:
            run_s = longer_s[nth]
            nth += 1
        plan_s = job.walltime if by_walltime and job.walltime > 0.0 else run_s
        cpus[place] = job.cpus
        remaining_s[place] = max(run_s - elapsed_s, MIN_REMAINING_S)
        planned_s[place] = max(plan_s - elapsed_s, remaining_s[place])


class SimulatedFcfs(Simulated):
    """Simulated first come, first served."""

    name = "fcfs"
    schedule = staticmethod(fcfs)


class SimulatedLwf(Simulated):
    """Simulated least work first."""

    name = "lwf"
    schedule = staticmethod(lwf)
    by_work = True


class SimulatedEasy(Simulated):
    """Simulated backfilling with a reservation for the head of the queue."""

    name = "easy"
    schedule = staticmethod(easy)

    def _starts(self, live: Live) -> Starts:
        openings = easy_openings(live)
        return lambda cpus, _, planned_s: openings.first(cpus, planned_s)


class SimulatedConservative(Simulated):
    """Simulated backfilling with a reservation for every queued job: the paper's backfill."""

    name = "conservative"
    schedule = staticmethod(conservative)
