"""Whether a job that has not started may start: holds, and dependencies that are not met yet."""

from collections.abc import Callable, Iterator

from models.engine.live import LiveJobs
from models.engine.outgoing import Anomaly, stale
from models.records import Alter, Hold, Release
from models.site.job import Job, Phase


class Eligibility:
    """Holds jobs and releases them. A job is held by its owner or an operator, by its dependency, or by both.

    Parameters:
        queued: called with a job that counts as queued again.
    """

    def __init__(self, live: LiveJobs, queued: Callable[[Job], None]) -> None:
        self._live = live
        self._queued = queued

    def hold(self, event: Hold) -> Iterator[Anomaly]:
        """A job that has not started may not start until it is released."""
        job = self._live.get(event.key)
        overtaken = job is not None and _overtaken(job, event.time)
        free = job is not None and (job.phase is Phase.QUEUED or (job.depends and not job.progress.held))
        if job is None or job.phase not in (Phase.QUEUED, Phase.HELD) or not free:
            yield Anomaly("hold_of_job_not_queued", f"job {event.job} is not queued")
        elif overtaken:
            yield stale(event)
        elif job.phase is Phase.QUEUED:
            self._live.move(job, Phase.HELD)
        else:
            job.progress = job.progress.but(held=True)

    def release(self, event: Release) -> Iterator[Anomaly]:
        """A held job may start again, unless its dependency is not met yet."""
        job = self._live.get(event.key)
        overtaken = job is not None and _overtaken(job, event.time)
        if job is None or job.phase is not Phase.HELD or (job.depends and not job.progress.held):
            yield Anomaly("release_of_job_not_held", f"job {event.job} is not held")
        elif overtaken:
            yield stale(event)
        elif job.depends:
            job.progress = job.progress.but(held=False)
        else:
            self._enqueue(job, event.time)

    def follow(self, job: Job, event: Alter) -> None:
        """A job's dependency was set, or is met: it is held, or counts as queued from now on."""
        if job.start is not None or job.phase is Phase.ENDED_BEFORE_START:
            return
        depended = job.depends
        told = event.dependency if event.dependency is not None or event.eligible is None else ""
        if told is None or (not told and not depended):
            return
        self._live.alter(job, extras=job.extras.but(dependency=told or None))
        if job.depends and not depended:
            job.progress = job.progress.but(held=job.phase is Phase.HELD)
            self._live.move(job, Phase.HELD)
        elif not job.depends and job.progress.held:
            job.progress = job.progress.but(held=False)
        elif not job.depends:
            self._enqueue(job, event.time if event.eligible is None else event.eligible)

    def _enqueue(self, job: Job, at: float) -> None:
        job.eligible = max(at, job.ready)
        self._live.move(job, Phase.QUEUED)
        self._queued(job)


def _overtaken(job: Job, time: float) -> bool:
    """Whether a later hold or release was seen, which this one must not undo; the latest one's time is noted."""
    latest, job.hold_time = job.hold_time, max(job.hold_time, time)
    return time < latest
