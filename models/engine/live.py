"""The live jobs of a site as events move them, and the names of jobs that have left."""

from collections.abc import Callable, Iterable, Iterator

from models.engine.outgoing import Anomaly
from models.method import SiteContext
from models.records import JobKey, Start
from models.site.clock import SiteClock
from models.site.expiry import Expiry
from models.site.extras import progress_at_start
from models.site.learnt import LearntJobs
from models.site.shapes import HOUR_S
from models.site.size import MIN_STARTED_JOBS
from models.site.state import SITE, Job, Phase

MAX_LIVE_BYTES = 60_000_000
"""What the live jobs may take in a stored state, which is one message: about 150,000 jobs with ordinary names."""


class LiveJobs:
    """Keeps the state of a site, what is watched in it, and the names of jobs that have left in step with each other.

    Parameters:
        context: the site's, whose state holds the jobs.
        estimates: how many estimates each job carries, which bounds what it takes when it is stored.
        remembered: how many jobs that have left are known by name.
        forget: called with the key of a job that will never start: its end came, and its start did not.
    """

    def __init__(self, context: SiteContext, estimates: int, remembered: int, forget: Callable[[JobKey], None]) -> None:
        self._context = context
        self._state = context.state
        self._job_bytes = 128 + 48 * estimates  # measured: less than half of it
        self._most_remembered = remembered
        self._forget = forget
        self.remembered: dict[JobKey, None] = {}
        self.expiry = Expiry()
        self.clock = SiteClock()
        self.learnt = LearntJobs()
        self._unsubmitted: dict[JobKey, int] = {}  # that run, with their processors
        self._unsubmitted_cpus = 0
        self.event_time = 0.0  # of the event that is being applied

    def get(self, key: JobKey) -> Job | None:
        """The live job of this identity."""
        return self._state.jobs.get(key)

    def has_left(self, key: JobKey) -> bool:
        """Whether a job of this identity was here, as far back as is remembered."""
        return key in self.remembered or key in self.learnt

    def may_be_forgotten(self, key: JobKey, time: float) -> bool:
        """Whether an event of this time may be of a job that was here and that nobody remembers."""
        if time > self.learnt.forgotten_until or time > self.clock.now - HOUR_S:
            return False
        return key not in self._state.jobs and not self.has_left(key)

    @property
    def full(self) -> bool:
        """Whether the live jobs are as many as can be stored."""
        return self._state.text_bytes + len(self._state) * self._job_bytes > MAX_LIVE_BYTES

    def enter(self, job: Job) -> None:
        """A job comes in, in the phase that it has."""
        self._state.enter(job)
        self._count_unsubmitted(job)
        if job.phase is Phase.RUNNING:
            self._context.see_cpus(self.clock.now)
        self.expiry.watch(job)

    def make_room(self, name: str) -> None:
        """Each job may have an estimate more from now on, by this name."""
        self._job_bytes += 16 + len(name.encode())

    def no_room(self, job: str) -> Anomaly:
        """What a job is for which there is no room."""
        return Anomaly("state_full", f"job {job} comes on top of {len(self._state)} live ones", rejected=True)

    def run(self, job: Job, event: Start) -> None:
        """A job starts; the event may say what it was given."""
        job.allocated = event.cpus
        progress = progress_at_start(event, job.progress)
        if progress is not job.progress:
            self._state.alter(job, progress=progress)
        self._state.move(job, Phase.RUNNING, event.time)
        self._context.see_cpus(self.clock.now)
        self.expiry.watch(job)

    def unsubmitted(self) -> Iterator[Job]:
        """The running jobs that were never seen submitted."""
        return (self._state.jobs[key] for key in self._unsubmitted)

    def move(self, job: Job, phase: Phase) -> None:
        """A job is held or released, or has ended before its start was seen."""
        self._state.move(job, phase)

    def alter(self, job: Job, **changes: object) -> None:
        """A job's fields change."""
        self._state.alter(job, **changes)
        if job.key in self._unsubmitted:
            self._count_unsubmitted(job)
        self.expiry.watch(job)

    def leave(self, job: Job) -> None:
        """A job leaves, and its name is remembered."""
        self._leave(job)
        self.remember(job.key)

    def _leave(self, job: Job) -> None:
        self._state.leave(job)
        self._unsubmitted_cpus -= self._unsubmitted.pop(job.key, 0)
        self.learnt.add(job.key, max(self.clock.now, self.event_time))

    def _count_unsubmitted(self, job: Job) -> None:
        """Know a running job that was never seen submitted, with the processors that it has now."""
        if job.requested:
            self._unsubmitted_cpus -= self._unsubmitted.pop(job.key, 0)
        else:
            self._unsubmitted_cpus += job.counted_cpus - self._unsubmitted.get(job.key, 0)
            self._unsubmitted[job.key] = job.counted_cpus

    def remember(self, key: JobKey) -> None:
        """Know a job that is here no longer by its name; the oldest name is forgotten."""
        self.remembered[key] = None
        if len(self.remembered) > self._most_remembered:
            oldest = next(iter(self.remembered))
            del self.remembered[oldest]
            job = self.get(oldest)
            if job is not None:  # its end came and its start never did
                self._leave(job)
                self._forget(job.key)

    def give_up(self) -> Iterator[Job]:
        """Jobs whose end was never reported leave."""
        for job in self.expiry.overdue(self._state):
            if job.key in self._state.jobs:  # else it was forgotten while another was remembered
                self.leave(job)
                yield job

    def crowd_out(self) -> Iterator[Job]:
        """Where more processors are in use than the site has, running jobs leave that were never seen submitted.

        Their ends were lost, or they are made up. The first to come leaves first, and none within an hour of its
        start: its submit may only have been overtaken. But all of them together never have more than the site has.
        """
        context, now = self._context, max(self.clock.now, self.event_time)
        if not self._unsubmitted or context.history.count < MIN_STARTED_JOBS:
            return
        while self._unsubmitted and self._state.totals(SITE, Phase.RUNNING).cpus > context.cpus:
            job = self._state.jobs[next(iter(self._unsubmitted))]
            recent = job.start is not None and abs(now - job.start) <= HOUR_S
            if recent and self._unsubmitted_cpus <= context.cpus:
                return
            self.leave(job)
            yield job

    def restore(self, jobs: Iterable[Job], remembered: Iterable[JobKey], times: list[float], clock: SiteClock) -> None:
        """Take back what was saved: the jobs, the names, the times of the last events, and the clock."""
        self.clock = clock
        for job in jobs:
            self._state.enter(job)
            self._count_unsubmitted(job)
        self.remembered = dict.fromkeys(remembered)
        self.expiry = Expiry(times)
        self.expiry.watch_all(self._state)
