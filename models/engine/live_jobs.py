"""The live jobs of a site, updated by events, and the jobs that have departed."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from models.engine.outgoing import Anomaly
from models.method import SiteContext
from models.records import JobKey, Start
from models.site.clock import SiteClock
from models.site.expiry import Expiry
from models.site.job import EXTRAS, Estimate, Job, Phase, progress_at_start
from models.site.learnt import LearntJobs, LearntState
from models.site.rows import PerJob, Row
from models.site.shapes import HOUR_S
from models.site.size import MIN_STARTED_JOBS
from models.site.state import SITE
from models.site.unsubmitted import UnsubmittedStarts

JOB_BYTES = 1000  # bytes of extras that count as one more job
RENEW_S = 60.0  # maximum error of the run time of a suspended job


class DirtyJobs(NamedTuple):
    """Changes of the live jobs since the last snapshot.

    Attributes:
        jobs: live jobs that may have changed, by number.
        departed: numbers of the jobs that have departed.
    """

    jobs: dict[int, Job]
    departed: list[int]


class StoredJob(msgspec.Struct, array_like=True, gc=False):
    """A live job with its number, and with the per-job values of methods, by their keys."""

    number: int
    job: Job
    kept: dict[str, bytes] | None = None


class SavedLive(msgspec.Struct):
    """Stored form of the live jobs.

    In an `EngineSnapshot` the jobs are missing here, but `count` is their number.

    Attributes:
        entered: number of jobs that have ever entered.
        count: number of live jobs.
        jobs: the live jobs in the order of their arrival.
        numbers: their numbers.
        kept: the per-job values of methods, by number and key.
    """

    clock: SiteClock
    times: list[float]
    learnt: LearntState
    entered: int
    count: int
    jobs: list[Job] = []
    numbers: list[int] = []
    kept: dict[int, dict[str, bytes]] = {}
    unsubmitted_starts: UnsubmittedStarts = msgspec.field(default_factory=UnsubmittedStarts)

    def take_in(self, jobs: Iterable[StoredJob]) -> str | None:
        """Add live jobs that are stored separately, in the order of their numbers.

        Returns:
            A description of what is missing; None if all jobs are there.
        """
        self.jobs, self.numbers, self.kept = [], [], {}
        for one in jobs:  # none is kept: freeing a million objects in one step would block all other threads
            self.jobs.append(one.job)
            self.numbers.append(one.number)
            if one.kept is not None:
                self.kept[one.number] = one.kept
        return None if len(self.jobs) == self.count else f"{len(self.jobs)} of {self.count} live jobs"


class LiveJobs:
    """Keeps the state of a site, its timers, and the set of departed jobs consistent.

    Jobs are numbered in the order of their arrival. This class marks jobs that may have changed, so that a checkpoint
    can skip the others: a caller that gets a job by its key may change it.

    Args:
        context: the context of the site, whose state holds the jobs.
        most: maximum number of live jobs.
        per_job: the per-job values of methods, by their keys.
    """

    def __init__(self, context: SiteContext, most: int, per_job: Mapping[str, PerJob[Any]]) -> None:
        self._context = context
        self._state = context.state
        self._most = most
        self._per_job = per_job
        self.numbers: dict[JobKey, int] = {}
        self.by_number: dict[int, Job] = {}
        self.entered = 0  # number of jobs that have ever entered, and the number of the next one
        self._touched: set[JobKey] = set()
        self._departed: list[int] = []
        self.expiry = Expiry(self._state)
        self.clock = SiteClock()
        self.learnt = LearntJobs()
        self._unsubmitted: dict[JobKey, int] = {}  # CPUs of running jobs without a submit event
        self._unsubmitted_cpus = 0
        self.unsubmitted_starts = UnsubmittedStarts()
        self._heavy: dict[JobKey, int] = {}  # number of additional jobs that each job with much text counts as
        self._heavy_total = 0
        self._still: dict[JobKey, None] = {}  # suspended jobs that keep their CPUs; some may have departed or resumed
        self.event_time = 0.0  # time of the current event; 0 between events

    def get(self, key: JobKey) -> Job | None:
        """Return the live job with this key for reading or changing it; None if there is none."""
        job = self._state.jobs.get(key)
        if job is not None:
            self._touched.add(key)
        return job

    def touch(self, job: Job) -> None:
        """Mark a live job as changed."""
        self._touched.add(job.key)

    def take_changes(self) -> DirtyJobs:
        """Return the changes since the last call."""
        touched = self._touched.union(*(kept.take_changed() for kept in self._per_job.values()))
        jobs = {self.numbers[key]: self._state.jobs[key] for key in touched if key in self.numbers}
        marks = DirtyJobs(dict(sorted(jobs.items())), self._departed)
        self._touched, self._departed = set(), []
        return marks

    def has_departed(self, key: JobKey) -> bool:
        """Return whether a job with this key has departed, as far as departed jobs are remembered."""
        return key in self.learnt

    def may_be_forgotten(self, key: JobKey, time: float) -> bool:
        """Return whether an event of this time may belong to a departed job that is no longer remembered."""
        may_have_departed = self.learnt.may_have_departed(time, self.clock.now)
        return may_have_departed and key not in self._state.jobs and not self.has_departed(key)

    @property
    def full(self) -> bool:
        """True if the maximum number of live jobs is reached; a job with much text counts as several."""
        return len(self._state) + self._heavy_total >= self._most

    def enter(self, job: Job) -> None:
        """Add a job in its phase."""
        key = self._state.enter(job)
        self._number(key, job, self.entered)
        self._touched.add(key)
        self._weigh(job)
        self._count_unsubmitted(job)
        if job.phase is Phase.RUNNING:
            self._context.see_cpus(self.clock.now)
        self.expiry.watch(job, key)

    def _number(self, key: JobKey, job: Job, number: int) -> None:
        self.numbers[key], self.by_number[number] = number, job
        self.entered = number + 1

    def _weigh(self, job: Job) -> None:
        """Count a job with much text as several jobs."""
        if job.extras is not EXTRAS or job.key in self._heavy:
            weight = len(msgspec.msgpack.encode(job.extras)) // JOB_BYTES
            self._heavy_total += weight - self._heavy.pop(job.key, 0)
            if weight:
                self._heavy[job.key] = weight

    def no_room(self, job: str) -> Anomaly:
        """Return the anomaly for a job beyond the maximum number of live jobs."""
        return Anomaly(
            "state_full",
            f"job {job}: site is full with {len(self._state)} live jobs",
            rejected=True,
        )

    def run(self, job: Job, event: Start) -> None:
        """Start a job; the event may contain its allocation."""
        self.touch(job)
        job.allocated = event.cpus
        progress = progress_at_start(event, job.progress)
        if progress is not job.progress:
            self._state.alter(job, progress=progress)
        self._state.move(job, Phase.RUNNING, event.time)
        self._context.see_cpus(self.clock.now)
        self.expiry.watch(job, job.key)

    def unsubmitted(self) -> Iterator[Job]:
        """Return the running jobs whose submission is missing."""
        return (self._state.jobs[key] for key in self._unsubmitted)

    def move(self, job: Job, phase: Phase) -> None:
        """Move a job to another phase, when it is held or released."""
        self.touch(job)
        self._state.move(job, phase)

    def end_before_start(self, job: Job, at: float) -> None:
        """End a job whose start is missing; the start may come later."""
        job.end = at
        self.move(job, Phase.ENDED_BEFORE_START)
        self.expiry.watch(job, job.key)

    def alter(self, job: Job, **changes: object) -> None:
        """Change fields of a job."""
        self.touch(job)
        self._state.alter(job, **changes)
        self._weigh(job)
        if job.key in self._unsubmitted:
            self._count_unsubmitted(job)
        self.expiry.watch(job, job.key)

    def track_suspended(self, job: Job) -> None:
        """Track a suspended job that keeps its CPUs."""
        if job.keeps_still:
            self._still[job.key] = None

    def keep_still(self, now: float) -> None:
        """Update suspended jobs that keep their CPUs, so that their expected ends do not come nearer.

        Methods compute the elapsed run time of a job from its start, so its start is shifted with time.
        """
        for key in list(self._still):
            job = self.get(key)
            if job is None or not job.keeps_still:
                del self._still[key]
            elif now >= (job.progress.suspended_at or 0.0) + RENEW_S:
                self.alter(
                    job, progress=job.progress.replaced(suspended_at=now, suspended_s=job.total_suspended_s(now))
                )

    def leave(self, job: Job) -> None:
        """Remove a job."""
        key = job.key
        self._state.leave(job)
        self._touched.discard(key)
        number = self.numbers.pop(key)
        del self.by_number[number]
        self._heavy_total -= self._heavy.pop(key, 0)
        self._departed.append(number)
        for kept in self._per_job.values():
            kept.pop(key)
        self._unsubmitted_cpus -= self._unsubmitted.pop(key, 0)
        self.learnt.add(key, max(self.clock.now, self.event_time))

    def _count_unsubmitted(self, job: Job) -> None:
        """Track a running job whose submission is missing, with its current CPUs."""
        if job.requested:
            self._unsubmitted_cpus -= self._unsubmitted.pop(job.key, 0)
        else:
            self._unsubmitted_cpus += job.counted_cpus - self._unsubmitted.get(job.key, 0)
            self._unsubmitted[job.key] = job.counted_cpus

    def note_departure(self, key: JobKey) -> None:
        """Mark a job that is not live as departed, so that later events of it are rejected."""
        if key not in self.learnt:
            self.learnt.add(key, max(self.clock.now, self.event_time))

    def give_up(self) -> Iterator[Job]:
        """Remove and yield jobs whose end was never reported."""
        for job in self.expiry.overdue():
            self.leave(job)
            yield job

    def crowd_out(self) -> Iterator[Job]:
        """Remove running jobs with a missing submission while more CPUs are in use than the site has.

        Their ends were lost, or the jobs never existed. The oldest job is removed first. A job that started less than
        an hour ago stays, because its submit event may only be late. But these jobs together, including the unconfirmed
        ones, never exceed the site.
        """
        context, now = self._context, max(self.clock.now, self.event_time)
        if not self._unsubmitted or context.history.count < MIN_STARTED_JOBS:
            return
        while self._unsubmitted:
            in_use = max(self._state.totals(SITE, Phase.RUNNING).cpus, self._unsubmitted_cpus)
            if in_use <= context.cpus:
                return
            job = self._state.jobs[next(iter(self._unsubmitted))]
            recent = job.start is not None and abs(now - job.start) <= HOUR_S
            if recent and self._unsubmitted_cpus <= context.cpus:
                return
            self.leave(job)
            self.unsubmitted_starts.refute(now)
            yield job

    def confirm(self, job: Job) -> None:
        """Confirm the start of a job without a submit event, after its submit or end has arrived, so that the job
        counts.
        """
        self.unsubmitted_starts.confirm(max(self.clock.now, self.event_time))
        if job.phase is Phase.UNCONFIRMED:
            self.touch(job)
            self._state.move(job, Phase.RUNNING, job.start)
            self.expiry.watch(job, job.key)

    def stored(self, number: int, job: Job) -> StoredJob:
        """Return the stored form of a live job."""
        key = job.key
        kept = {name: kept.encoded(key) for name, kept in self._per_job.items() if key in kept}
        return StoredJob(number, job, kept or None)

    def save(self) -> SavedLive:
        """Return the stored form, without the jobs."""
        return SavedLive(
            clock=self.clock,
            times=list(self.expiry.times),
            learnt=self.learnt.state,
            entered=self.entered,
            count=len(self._state),
            unsubmitted_starts=self.unsubmitted_starts,
        )

    def restore(self, saved: SavedLive) -> None:
        """Restore the stored state, except for the departed jobs."""
        self.clock, self.expiry = saved.clock, Expiry(self._state, saved.times)
        self.unsubmitted_starts = saved.unsubmitted_starts
        alike: dict[Estimate, Estimate] = {}
        for job, number in zip(saved.jobs, saved.numbers, strict=True):
            for name, estimate in job.estimates.items():
                if estimate.bounds is None:  # many are equal: share one object, as before they were stored
                    job.estimates[name] = alike.setdefault(estimate, estimate)
            key = self._state.enter(job)
            self._number(key, job, number)
            self._weigh(job)
            self._count_unsubmitted(job)
            self.track_suspended(job)
            self.expiry.watch(job, key)
            for name, encoded in saved.kept.get(number, {}).items():
                if name in self._per_job:
                    self._per_job[name].restore(key, encoded)
        self.entered = saved.entered

    def restore_learnt(self, saved: LearntState, rows: Iterable[Row] | None, count: int, oldest: int) -> None:
        """Restore the departed jobs. If the rows are lost (None), any unknown job up to now may have departed.

        Raises:
            ValueError: rows are missing.
        """
        if rows is None:
            saved.lose(self.clock.now)
            rows, count, oldest = (), 0, 0
        self.learnt.restore(saved, rows, count, oldest)
