"""The live jobs of a site as events move them, and which jobs have left."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from models.engine.outgoing import Anomaly
from models.method import SiteContext
from models.records import JobKey, Start
from models.site.clock import Expiry, SiteClock
from models.site.job import EXTRAS, Estimate, Job, Phase, progress_at_start
from models.site.learnt import LearntJobs, LearntState
from models.site.rows import PerJob, Row
from models.site.shapes import HOUR_S
from models.site.size import MIN_STARTED_JOBS
from models.site.state import SITE
from models.site.unsubmitted import UnsubmittedStarts

JOB_BYTES = 1000  # bytes of a job's extras with which it counts as one more job
RENEW_S = 60.0  # a job that stands still may seem to have run for so much longer than it has


class Touched(NamedTuple):
    """What has changed of the live jobs since a state was last taken: the jobs that are here and may be others than
    they were, by their numbers; and the numbers of those that have left."""

    jobs: dict[int, Job]
    left: list[int]


class StoredJob(msgspec.Struct, array_like=True, gc=False):
    """A live job with its number, and with what methods keep of it, by their keys."""

    number: int
    job: Job
    kept: dict[str, bytes] | None = None


class SavedLive(msgspec.Struct):
    """What is stored of the live jobs. They are in the order in which they came; `numbers` are theirs, and `kept` is
    what methods keep of them, by number and key. `entered` jobs have ever come.

    In a `Cut` the jobs are not here, but `count` says how many there are.
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
        """Have the live jobs that are stored apart, in the order of their numbers.

        Returns:
            What is missing, if anything is.
        """
        self.jobs, self.numbers, self.kept = [], [], {}
        for one in jobs:  # of which none stays: to free a million at once would stop all other threads
            self.jobs.append(one.job)
            self.numbers.append(one.number)
            if one.kept is not None:
                self.kept[one.number] = one.kept
        return None if len(self.jobs) == self.count else f"{len(self.jobs)} of {self.count} live jobs"


class LiveJobs:
    """Keeps the state of a site, what is watched in it, and which jobs have left in step with each other.

    Jobs are numbered in the order in which they come. What may have changed of which job is marked here, so that a
    checkpoint need not look at the others: whoever asks for a job by its key may change it.

    Parameters:
        context: the site's, whose state holds the jobs.
        most: how many jobs may be live.
        per_job: what methods keep of the jobs here, by their keys.
    """

    def __init__(self, context: SiteContext, most: int, per_job: Mapping[str, PerJob[Any]]) -> None:
        self._context = context
        self._state = context.state
        self._most = most
        self._per_job = per_job
        self.numbers: dict[JobKey, int] = {}
        self.by_number: dict[int, Job] = {}
        self.entered = 0  # how many jobs have ever come: the number of the next one
        self._touched: set[JobKey] = set()
        self._left: list[int] = []
        self.expiry = Expiry()
        self.clock = SiteClock()
        self.learnt = LearntJobs()
        self._unsubmitted: dict[JobKey, int] = {}  # that run, with their processors
        self._unsubmitted_cpus = 0
        self.unsubmitted_starts = UnsubmittedStarts()
        self._heavy: dict[JobKey, int] = {}  # jobs with much text: for how many others each counts
        self._heavy_total = 0
        self._still: dict[JobKey, None] = {}  # that keep their processors; some may have left or run on since
        self.event_time = 0.0  # of the event that is being applied

    def get(self, key: JobKey) -> Job | None:
        """The live job of this identity, which may be changed."""
        job = self._state.jobs.get(key)
        if job is not None:
            self._touched.add(key)
        return job

    def touch(self, job: Job) -> None:
        """A live job may be changed."""
        self._touched.add(job.key)

    def take_changes(self) -> Touched:
        """What has changed since this was last called."""
        touched = self._touched.union(*(kept.take_changed() for kept in self._per_job.values()))
        jobs = {self.numbers[key]: self._state.jobs[key] for key in touched if key in self.numbers}
        marks = Touched(dict(sorted(jobs.items())), self._left)
        self._touched, self._left = set(), []
        return marks

    def has_left(self, key: JobKey) -> bool:
        """Whether a job of this identity was here, as far back as is remembered."""
        return key in self.learnt

    def may_be_forgotten(self, key: JobKey, time: float) -> bool:
        """Whether an event of this time may be of a job that was here and that nobody remembers."""
        may_have_left = self.learnt.may_have_left(time, self.clock.now)
        return may_have_left and key not in self._state.jobs and not self.has_left(key)

    @property
    def full(self) -> bool:
        """Whether the live jobs are as many as there may be; one with much text counts as several."""
        return len(self._state) + self._heavy_total >= self._most

    def enter(self, job: Job) -> None:
        """A job comes in, in the phase that it has."""
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
        """Count a job with much text as several jobs. 1 µs where it has any extras, else 50 ns."""
        if job.extras is not EXTRAS or job.key in self._heavy:
            weight = len(msgspec.msgpack.encode(job.extras)) // JOB_BYTES
            self._heavy_total += weight - self._heavy.pop(job.key, 0)
            if weight:
                self._heavy[job.key] = weight

    def no_room(self, job: str) -> Anomaly:
        """What a job is for which there is no room."""
        return Anomaly("state_full", f"job {job} comes on top of {len(self._state)} live ones", rejected=True)

    def run(self, job: Job, event: Start) -> None:
        """A job starts; the event may say what it was given."""
        self.touch(job)
        job.allocated = event.cpus
        progress = progress_at_start(event, job.progress)
        if progress is not job.progress:
            self._state.alter(job, progress=progress)
        self._state.move(job, Phase.RUNNING, event.time)
        self._context.see_cpus(self.clock.now)
        self.expiry.watch(job, job.key)

    def unsubmitted(self) -> Iterator[Job]:
        """The running jobs that were never seen submitted."""
        return (self._state.jobs[key] for key in self._unsubmitted)

    def move(self, job: Job, phase: Phase) -> None:
        """A job is held or released."""
        self.touch(job)
        self._state.move(job, phase)

    def end_before_start(self, job: Job, at: float) -> None:
        """A job has ended before its start was seen, which may still come."""
        job.end = at
        self.move(job, Phase.ENDED_BEFORE_START)
        self.expiry.watch(job, job.key)

    def alter(self, job: Job, **changes: object) -> None:
        """A job's fields change."""
        self.touch(job)
        self._state.alter(job, **changes)
        self._weigh(job)
        if job.key in self._unsubmitted:
            self._count_unsubmitted(job)
        self.expiry.watch(job, job.key)

    def watch_still(self, job: Job) -> None:
        """A job was suspended."""
        if job.keeps_still:
            self._still[job.key] = None

    def keep_still(self, now: float) -> None:
        """Have the jobs that stand still with their processors be no nearer to their ends; 10 µs each.

        Methods tell how long a job has run from when it began, so its beginning moves on with the time.
        """
        for key in list(self._still):
            job = self.get(key)
            if job is None or not job.keeps_still:
                del self._still[key]
            elif now >= (job.progress.suspended_at or 0.0) + RENEW_S:
                self.alter(job, progress=job.progress.but(suspended_at=now, suspended_s=job.stood_s(now)))

    def leave(self, job: Job) -> None:
        """A job leaves."""
        self._state.leave(job)
        self._touched.discard(job.key)
        number = self.numbers.pop(job.key)
        del self.by_number[number]
        self._heavy_total -= self._heavy.pop(job.key, 0)
        self._left.append(number)
        for kept in self._per_job.values():
            kept.pop(job.key)
        self._unsubmitted_cpus -= self._unsubmitted.pop(job.key, 0)
        self.learnt.add(job.key, max(self.clock.now, self.event_time))

    def _count_unsubmitted(self, job: Job) -> None:
        """Know a running job that was never seen submitted, with the processors that it has now."""
        if job.requested:
            self._unsubmitted_cpus -= self._unsubmitted.pop(job.key, 0)
        else:
            self._unsubmitted_cpus += job.counted_cpus - self._unsubmitted.get(job.key, 0)
            self._unsubmitted[job.key] = job.counted_cpus

    def note_left(self, key: JobKey) -> None:
        """A job that is not here has left, or will never come."""
        if key not in self.learnt:
            self.learnt.add(key, max(self.clock.now, self.event_time))

    def give_up(self) -> Iterator[Job]:
        """Jobs whose end was never reported leave."""
        for job in self.expiry.overdue(self._state):
            self.leave(job)
            yield job

    def crowd_out(self) -> Iterator[Job]:
        """Where more processors are in use than the site has, running jobs leave that were never seen submitted.

        Their ends were lost, or they are made up. The first to come leaves first, and none within an hour of its
        start: its submit may only have been overtaken. But all of them together never have more than the site has,
        those included that are not confirmed.
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
        """Have a running job count whose start arrived without a submit: that submit or its end has come."""
        self.unsubmitted_starts.confirm(max(self.clock.now, self.event_time))
        if job.phase is Phase.UNCONFIRMED:
            self.touch(job)
            self._state.move(job, Phase.RUNNING, job.start)
            self.expiry.watch(job, job.key)

    def stored(self, number: int, job: Job) -> StoredJob:
        """A live job as it is to be stored."""
        key = job.key
        kept = {name: kept.encoded(key) for name, kept in self._per_job.items() if key in kept}
        return StoredJob(number, job, kept or None)

    def save(self) -> SavedLive:
        """What is to be stored, without the jobs."""
        return SavedLive(
            clock=self.clock,
            times=list(self.expiry.times),
            learnt=self.learnt.state,
            entered=self.entered,
            count=len(self._state),
            unsubmitted_starts=self.unsubmitted_starts,
        )

    def restore(self, saved: SavedLive) -> None:
        """Take back what was stored, but for which jobs have left; 10 µs a job."""
        self.clock, self.expiry = saved.clock, Expiry(saved.times)
        self.unsubmitted_starts = saved.unsubmitted_starts
        alike: dict[Estimate, Estimate] = {}
        for job, number in zip(saved.jobs, saved.numbers, strict=True):
            for name, estimate in job.estimates.items():
                if estimate.bounds is None:  # many are the same, and were one until they were stored
                    job.estimates[name] = alike.setdefault(estimate, estimate)
            key = self._state.enter(job)
            self._number(key, job, number)
            self._weigh(job)
            self._count_unsubmitted(job)
            self.watch_still(job)
            self.expiry.watch(job, key)
            for name, encoded in saved.kept.get(number, {}).items():
                if name in self._per_job:
                    self._per_job[name].restore(key, encoded)
        self.entered = saved.entered

    def restore_learnt(self, saved: LearntState, rows: Iterable[Row] | None, count: int, oldest: int) -> None:
        """Take back which jobs have left; where the rows are lost (None), any that is unknown may have, up to now.

        Raises:
            ValueError: rows are missing.
        """
        if rows is None:
            saved.lose(self.clock.now)
            rows, count, oldest = (), 0, 0
        self.learnt.restore(saved, rows, count, oldest)
