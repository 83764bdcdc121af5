"""What it does to a running job that it is suspended, and that it is resumed."""

from collections.abc import Callable, Iterable, Iterator

from models.engine.live import LiveJobs
from models.engine.outgoing import Anomaly, stale
from models.method import Happened
from models.records import JobKey, Resume, Suspend
from models.site.job import Job, Phase

RENEW_S = 60.0  # a job that stands still may seem to have run for so much longer than it has


class Suspensions:
    """Has the jobs of a site stand still and run on; their run times are without the time that they stood still.

    Parameters:
        observe: called with a job that is suspended or resumed, which of the two, and when.
    """

    def __init__(self, live: LiveJobs, observe: Callable[[Job, Happened, float], None]) -> None:
        self._live = live
        self._observe = observe
        self._still: dict[JobKey, None] = {}  # with their processors; some may have left or run on since

    def watch(self, jobs: Iterable[Job]) -> None:
        """Know those of the jobs, which were read back, that stand still with their processors."""
        self._still = dict.fromkeys(job.key for job in jobs if _keeps_processors(job))

    def keep_still(self, now: float) -> None:
        """Have the jobs that stand still with their processors be no nearer to their ends; 10 µs each.

        Methods tell how long a job has run from when it began, so its beginning moves on with the time.
        """
        for key in list(self._still):
            job = self._live.get(key)
            if job is None or not _keeps_processors(job):
                del self._still[key]
            elif now >= (job.progress.suspended_at or 0.0) + RENEW_S:
                progress = job.progress.but(suspended_at=now, suspended_s=job.stood_s(now))
                self._live.alter(job, progress=progress)

    def suspend(self, event: Suspend) -> Iterator[Anomaly]:
        """A running job stands still; it counts as running still where it keeps its processors."""
        job = self._live.get(event.key)
        overtaken = job is not None and _overtaken(job, event.time)
        if job is None or job.start is None or job.progress.suspended_at is not None:
            yield Anomaly("suspend_of_job_not_running", f"job {event.job} is not running")
        elif overtaken:
            yield stale(event)
        else:
            phase = Phase.SUSPENDED if event.releases else job.phase
            at = max(event.time, job.start)
            self._live.alter(job, phase=phase, progress=job.progress.but(suspended_at=at))
            if _keeps_processors(job):
                self._still[job.key] = None
            self._observe(job, Happened.SUSPENDED, event.time)

    def resume(self, event: Resume) -> Iterator[Anomaly]:
        """A suspended job runs on."""
        job = self._live.get(event.key)
        overtaken = job is not None and _overtaken(job, event.time)
        if job is None or job.progress.suspended_at is None:
            yield Anomaly("resume_of_job_not_suspended", f"job {event.job} is not suspended")
        elif overtaken:
            yield stale(event)
        else:
            progress = job.progress.but(suspended_at=None, suspended_s=job.stood_s(event.time))
            self._live.alter(job, phase=Phase.RUNNING, progress=progress)
            self._observe(job, Happened.RESUMED, event.time)


def _keeps_processors(job: Job) -> bool:
    """Whether it stands still and nobody else has its processors meanwhile."""
    return job.phase is Phase.RUNNING and job.progress.suspended_at is not None


def _overtaken(job: Job, time: float) -> bool:
    """Whether a later change of this kind was seen, which this one must not undo; the latest one's time is noted."""
    latest = job.progress.suspend_time
    if time > latest:
        job.progress = job.progress.but(suspend_time=time)
    return time < latest
