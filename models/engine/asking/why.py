"""Explain why a job waits, in words and numbers, and suggest requests that would start sooner. Read-only."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from models.arrays import Floats
from models.durations import AT_ONCE_S, counted, duration
from models.engine.asking.what_if import consider
from models.engine.engine import Engine
from models.method import SiteContext
from models.records import Alternative, Prediction, Why
from models.site.job import Job, Phase
from models.site.shapes import HOUR_S
from models.site.state import SITE, SiteState

MIN_WALLTIME_S = 600.0  # minimum walltime of an alternative
MAX_QUEUES, MAX_ALTERNATIVES = 4, 3  # maximum number of queues to try and of alternatives to suggest
MAX_NAMES = 3  # maximum number of partitions in the name of an area
EVIDENCE_JOBS = 32  # started jobs needed to infer how a site schedules
MAY_BE_HELD = "jobs like it have waited longer: a limit or a priority may hold it back"
NEW = "few jobs have started here yet, so how long it waits is a guess"

MIN_SOONER_S, MIN_SOONER_RATIO = 300.0, 0.2
"""Minimum saving of an alternative: seconds, and a share of the wait."""

MUCH_LONGER = 2.0
"""Ratio of wait to work ahead above which a job also waits for something else."""


class WorkAhead(NamedTuple):
    """The pending jobs that are expected to start before another: their number, those in its queue, and their work."""

    jobs: int
    same_queue: int
    work_cpu_s: float


class FreeNow(NamedTuple):
    """The free resources of an area.

    Attributes:
        cpus: free CPUs.
        free_cpus: the free part of the area in units of `Job.cpus` there, which counts the dominant resource of a job.
        place: the name of the area; empty if it is the whole machine.
    """

    cpus: int
    free_cpus: int
    place: str

    def words(self) -> str:
        """Return `16 CPUs are free`, with the area."""
        return f"{counted(self.cpus, 'CPU')} {self.are_free()}"

    def are_free(self) -> str:
        """Return `are free`, with the area."""
        verb = "is" if self.cpus == 1 else "are"
        return f"{verb} free in {self.place}" if self.place else f"{verb} free"


def _free(there: SiteContext) -> FreeNow:
    """Return the free resources of an area, or of a site without areas. O(running jobs)."""
    free_cpus = max(there.cpus - there.state.totals(SITE, Phase.RUNNING).cpus, 0)
    if there.layout is None:
        return FreeNow(free_cpus, free_cpus, "")
    running = (there.all_live_jobs.jobs[job.key].counted_cpus for job in there.state.in_phase(Phase.RUNNING))
    whole = len(there.layout.topology.areas) == 1
    return FreeNow(max(there.cpus - sum(running), 0), free_cpus, "" if whole else _names(there.layout.area.partitions))


def _names(partitions: tuple[str, ...]) -> str:
    """Join the names of partitions; of many, only the first ones."""
    if len(partitions) <= MAX_NAMES:
        return " and ".join(filter(None, (", ".join(partitions[:-1]), partitions[-1])))
    shown = MAX_NAMES - 1
    return f"{', '.join(partitions[:shown])} and {len(partitions) - shown} other partitions"


class Order:
    """The pending jobs of an area by expected start. O(n · log n) in the visible jobs.

    Args:
        starts: the expected start of each, Unix seconds, as of `WaitMethod.starts`; nan is left out.
    """

    def __init__(self, state: SiteState, starts: Floats) -> None:
        self._table, seen, columns = state.table, state.table.visible_rows(), state.table.columns()
        predicted = np.flatnonzero(~np.isnan(starts))
        order = predicted[np.argsort(starts[predicted], kind="stable")]
        rows = seen.rows[order]
        known = columns.planned_s[rows] > 0.0  # jobs without a known run time count as no work
        work = columns.cpus[rows] * columns.tasks[rows] * np.where(known, columns.run_s[rows], 0.0)
        self._rows, self._by_row, self._stands_for = seen.rows, starts, seen.stands_for[order]
        self._starts, self._queues = starts[order], columns.queue[rows]
        self._jobs, self._work = _sums(self._stands_for), _sums(work * self._stands_for)
        self._same: dict[str | None, Floats] = {}

    def start(self, job: Job) -> float | None:
        """Return the expected start of a job; None if it is unknown or the job is not visible."""
        row = self._table.row(job.key)
        place = int(np.searchsorted(self._rows, row))
        if place == len(self._rows) or self._rows[place] != row or np.isnan(self._by_row[place]):
            return None
        return float(self._by_row[place])

    def ahead(self, queue: str | None, start: float) -> WorkAhead:
        """Return the jobs that start before `start` (Unix seconds); approximate if not all jobs are visible."""
        jobs = int(np.searchsorted(self._starts, start))
        if queue not in self._same:
            code = self._table.code("queue", queue)
            same = (self._queues == code) & (code >= 0 or queue is None)
            self._same[queue] = _sums(np.where(same, self._stands_for, 0.0))
        same_queue = round(float(self._same[queue][jobs]))
        return WorkAhead(round(float(self._jobs[jobs])), same_queue, float(self._work[jobs]))


def _sums(values: Floats) -> Floats:
    """Return the cumulative sums of the values, from 0 on; (values + 1,)."""
    return np.concatenate(([0.0], np.cumsum(values)))


class Orders:
    """The order of each area of a site, or of the whole site without a topology; created on demand."""

    def __init__(self, engine: Engine, now: float) -> None:
        self._engine, self.now = engine, now
        self._orders: dict[int, Order] = {}
        self._free_now: dict[int, FreeNow] = {}

    def of(self, job: Job) -> tuple[Order, Job, SiteContext]:
        """Return the order that contains a job, the view of the job there, and the context of its area."""
        seen, there = self._engine.context.of(job)
        number = _number(there)
        if number not in self._orders:
            self._orders[number] = Order(there.state, self._engine.methods.starts(there, self.now))
        return self._orders[number], seen, there

    def free_now(self, there: SiteContext) -> FreeNow:
        """Return the free resources of an area."""
        number = _number(there)
        if number not in self._free_now:
            self._free_now[number] = _free(there)
        return self._free_now[number]

    def start(self, job: Job) -> float | None:
        """Return the expected start of a live job, Unix seconds; None if it is not pending, or unknown."""
        if job.phase is not Phase.QUEUED:
            return None
        order, seen, there = self.of(job)
        start = order.start(job)
        return self._engine.methods.start(seen, there, self.now) if start is None else start


def _number(there: SiteContext) -> int:
    return -1 if there.layout is None else there.layout.area.number


def explain_wait(engine: Engine, job: Job, prediction: Prediction) -> Why:
    """Explain why a considered job would wait, and which changes would start it sooner.

    Costs a simulation of the queue, and one what-if query for each alternative, at most 12.
    """
    found = explained(Orders(engine, job.submit), job, prediction.predicted_wait_s, prediction.reason)
    guessed = not found.ahead_jobs and found.free_cpus >= job.cpus and _is_new(engine.context)
    return msgspec.structs.replace(found, instead=[] if guessed else _sooner(engine, job, prediction))


def _is_new(there: SiteContext) -> bool:
    """Return whether too few jobs have started to infer how the site schedules."""
    return len(there.history) < EVIDENCE_JOBS


def explained(orders: Orders, job: Job, wait_s: float | None, reason: str = "") -> Why:
    """Explain the wait of a job.

    At a site with a topology, all numbers are those of the area in which the job competes.

    Args:
        wait_s: the expected total wait in seconds.
        reason: why there is no estimate.
    """
    order, seen, there = orders.of(job)
    site_cpus = there.cpus
    here = orders.free_now(there)
    if wait_s is None:
        return Why(text=reason, free_cpus=here.cpus)
    if job.ready > orders.now + AT_ONCE_S:
        return Why(text=_before_eligible(job.ready - orders.now, wait_s), free_cpus=here.cpus)
    starts = job.ready + wait_s
    ahead = order.ahead(job.queue, starts)
    work_s = ahead.work_cpu_s / site_cpus if site_cpus else None
    remaining_s = max(starts - orders.now, 0.0)
    return Why(
        text=_words(seen, wait_s, remaining_s, here, ahead, work_s, _is_new(there)),
        free_cpus=here.cpus,
        ahead_jobs=ahead.jobs,
        ahead_in_queue=ahead.same_queue,
        ahead_cpu_hours=ahead.work_cpu_s / HOUR_S,
        ahead_work_s=work_s,
    )


def _before_eligible(eligible_in_s: float, wait_s: float) -> str:
    """Describe a job that the scheduler does not consider yet, with its wait from then on."""
    then = "start then" if wait_s <= AT_ONCE_S else f"wait {duration(wait_s)} from then on"
    return f"it becomes eligible in {duration(eligible_in_s)}, and is expected to {then}"


def _words(
    job: Job, wait_s: float, remaining_s: float, here: FreeNow, ahead: WorkAhead, work_s: float | None, is_new: bool
) -> str:
    """Explain in one or two sentences the wait of a job that is expected to start in `remaining_s` seconds."""
    beside = NEW if is_new else MAY_BE_HELD
    fits = here.free_cpus >= job.cpus
    wanted = job.cpus if job.requested_cpus is None else job.requested_cpus
    if wait_s <= AT_ONCE_S:
        return (
            f"{here.words()}: it starts immediately"
            if here.cpus >= wanted
            else "it starts immediately, as a running job ends"
        )
    if ahead.jobs:
        more = work_s is not None and remaining_s > max(MUCH_LONGER * work_s, AT_ONCE_S)
        less = work_s is not None and work_s > MUCH_LONGER * remaining_s
        line = _in_line(job, ahead, work_s, here.place) + (", but it may start beside them" if less else "")
        return f"{line}; {here.words()}{_other_obstacles(fits, beside) if more else ''}"
    if fits:
        return f"{here.words()} and no job is ahead of it, but {beside}"
    if here.cpus >= wanted:
        return "no job is ahead of it, but the resources it requests are not free: running jobs must end first"
    free = f"{here.cpus} {here.are_free()}"
    return f"no job is ahead of it; it requests {wanted} CPUs and {free}: running jobs must end first"


def _other_obstacles(fits: bool, beside: str) -> str:
    """Return what a job waits for apart from the work ahead of it."""
    if fits:
        return f", but {beside}"
    return ", so running jobs must end first"


def _in_line(job: Job, ahead: WorkAhead, work_s: float | None, place: str) -> str:
    """Describe the queue: `12 jobs ahead of it, 7 of them in batch, need 3,400 CPU-hours, about 3h of the machine`."""
    one = ahead.jobs == 1
    part = "all" if ahead.same_queue == ahead.jobs else f"{ahead.same_queue} of them"
    among = f", {part} in {job.queue}," if ahead.same_queue and job.queue and not one else ""
    jobs, need = ("1 job", "needs") if one else (f"{ahead.jobs:,} jobs", "need")
    hours = ahead.work_cpu_s / HOUR_S
    if hours < 0.1:
        return f"{jobs} ahead of it{among} {need} less than 0.1 CPU-hours"
    machine = "" if work_s is None else f", about {duration(work_s)} of {place or 'the machine'}"
    return f"{jobs} ahead of it{among} {need} {hours:,.{0 if hours >= 10 else 1}f} CPU-hours{machine}"


def _sooner(engine: Engine, job: Job, prediction: Prediction) -> list[Alternative]:
    """Return the alternatives that start sooner by a significant time, the best first."""
    wait_s = prediction.predicted_wait_s
    if wait_s is None or wait_s <= AT_ONCE_S:
        return []
    tried = list(_variants(engine, job))
    found = []
    for variant, answer in zip(tried, consider(engine, tried), strict=True):
        if answer.predicted_wait_s is None:
            continue
        sooner_s = wait_s - answer.predicted_wait_s
        if sooner_s >= max(MIN_SOONER_S, MIN_SOONER_RATIO * wait_s):
            found.append(_alternative(job, variant, answer.predicted_wait_s, sooner_s))
    found.sort(key=lambda one: -one.sooner_s)
    return found[:MAX_ALTERNATIVES]


def _variants(engine: Engine, job: Job) -> Iterator[Job]:
    """Yield the same job with a shorter time limit, with fewer CPUs, or in another queue."""
    for share in (0.5, 0.25):
        if job.limit_s is not None and job.limit_s * share >= MIN_WALLTIME_S:
            yield _like(job, walltime=job.limit_s * share)
    for parts in (2, 4):
        if job.cpus >= 2 * parts:
            yield _like(job, cpus=job.cpus // parts)
    if job.queue is not None:
        others: Iterable[str] = engine.open_queues(MAX_QUEUES + 1)
        for queue in [name for name in others if name != job.queue][:MAX_QUEUES]:
            yield _like(job, queue=queue)


def _like(job: Job, **changes: object) -> Job:
    """Return a considered job with a changed request and without predictions."""
    return Job(job.id, job.attempt, job.submit, **job.request | changes)


def _alternative(job: Job, variant: Job, wait_s: float, sooner_s: float) -> Alternative:
    """Return the changed fields of an alternative, and the time that it saves."""
    differing = {
        name: getattr(variant, name)
        for name in ("cpus", "walltime", "queue")
        if getattr(variant, name) != getattr(job, name)
    }
    return Alternative(**differing, predicted_wait_s=wait_s, sooner_s=sooner_s)
