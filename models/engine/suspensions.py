"""What it does to a running job that it is suspended, and that it is resumed."""

from collections.abc import Iterator

from models.engine.live import LiveJobs
from models.engine.outgoing import Anomaly, stale
from models.records import Resume, Suspend
from models.site.state import Job, Phase


class Suspensions:
    """Has the jobs of a site stand still and run on; their run times are without the time that they stood still."""

    def __init__(self, live: LiveJobs) -> None:
        self._live = live

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


def _overtaken(job: Job, time: float) -> bool:
    """Whether a later change of this kind was seen, which this one must not undo; the latest one's time is noted."""
    latest = job.progress.suspend_time
    if time > latest:
        job.progress = job.progress.but(suspend_time=time)
    return time < latest
