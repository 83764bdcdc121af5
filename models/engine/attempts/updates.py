"""Changes of a job in its phase: request, holds, suspensions, external estimates; and of the site's capacity."""

from collections.abc import Iterator
from typing import Any

import msgspec

from models.engine.components import AttemptHandler
from models.engine.methods import planned_run_s
from models.engine.outgoing import Anomaly, Record, stale
from models.engine.scores import MAX_RIVALS
from models.method import JobTransition
from models.method_registry import METHODS, RUN_METHODS
from models.records import Alter, Capacity, ExpectedStart, Hold, Release, Resume, Suspend
from models.site.clock import MAX_AHEAD_S
from models.site.job import NO_LIMIT_S, REQUEST, STARTED, Estimate, Extras, Job, Phase

_ALTERED = Alter.__struct_fields__

PLAIN = tuple(name for name in _ALTERED if name in (*REQUEST, "eligible") and name != "walltime")
"""Fields of an alter event that change the job itself; its walltime may also become unlimited."""

RARE = tuple(name for name in _ALTERED if name in Extras.__struct_fields__ and name != "dependency")
"""Fields that change the extras of a job; `_depend` handles `dependency`."""

EMPTIED = ("node_features", "pending_reason")  # fields that an empty value removes


class UpdateHandler(AttemptHandler):
    """Handle altered requests, holds, suspensions, external estimates, and the capacity of the site.

    A job is held by its owner or an operator, by its dependency, or by both.
    """

    def alter(self, event: Alter) -> Iterator[Record]:
        """Change the request of a live job and estimate it again; of a running job also change its allocation."""
        job = self._live.get(event.key)
        if job is None:
            yield Anomaly("alter_of_unknown_job", f"job {event.job} is not live")
            return
        ready = job.ready
        yield from self._alter(job, event)
        if job.ready != ready:
            self._landmarks.watch(job)
        self._reestimates.watch(job, self._live.clock.now)

    def _alter(self, job: Job, event: Alter) -> Iterator[Record]:
        """Change the fields that the event contains; the others keep their values."""
        overtaken = event.time < job.alter_time
        job.alter_time = max(job.alter_time, event.time)
        if overtaken:
            yield stale(event)
            return
        changes = _changes(event, PLAIN)
        if event.walltime is not None or event.unlimited:
            unlimited = event.unlimited or (event.walltime or 0.0) > self._settings.max_walltime_s
            if unlimited and not event.unlimited:
                yield Anomaly(
                    "unlimited_walltime", f"job {job.id}: walltime {event.walltime} s is handled as unlimited"
                )
            changes["walltime"] = NO_LIMIT_S if unlimited else event.walltime
            changes["planned_run_s"] = planned_run_s(changes["walltime"], job.run_s)
        rare = _changes(event, RARE)
        if rare:
            rare |= {name: rare.get(name, getattr(job.extras, name)) or None for name in EMPTIED}
            changes["extras"] = job.extras.replaced(**rare)
        if job.start is not None:
            changes |= _resized(job, event)
            changes.pop("eligible", None)  # its wait is over and published
        self._live.alter(job, **changes)
        self._depend(job, event)

    def _depend(self, job: Job, event: Alter) -> None:
        """Hold a job whose dependency was set, or queue it once the dependency is met."""
        if job.start is not None or job.phase is Phase.ENDED_BEFORE_START:
            return
        depended = job.depends
        dependency = event.dependency if event.dependency is not None or event.eligible is None else ""
        if dependency is None or (not dependency and not depended):
            return
        self._live.alter(job, extras=job.extras.replaced(dependency=dependency or None))
        if job.depends and not depended:
            job.progress = job.progress.replaced(held=job.phase is Phase.HELD)
            self._landmarks.catch_up(job, self._live.clock.now)
            self._live.move(job, Phase.HELD)
        elif not job.depends and job.progress.held:
            job.progress = job.progress.replaced(held=False)
        elif not job.depends:
            self._enqueue(job, event.time if event.eligible is None else event.eligible)

    def _enqueue(self, job: Job, at: float) -> None:
        job.eligible = max(at, job.ready)
        self._live.move(job, Phase.QUEUED)
        self._reestimates.watch(job, job.ready)
        self._landmarks.watch(job)

    def hold(self, event: Hold) -> Iterator[Record]:
        """Hold a pending job until it is released."""
        job = self._live.get(event.key)
        overtaken = job is not None and _hold_overtaken(job, event.time)
        free = job is not None and (job.phase is Phase.QUEUED or (job.depends and not job.progress.held))
        if job is None or job.phase not in (Phase.QUEUED, Phase.HELD) or not free:
            yield Anomaly("hold_of_job_not_queued", f"job {event.job} is not queued")
        elif overtaken:
            yield stale(event)
        elif job.phase is Phase.QUEUED:
            self._landmarks.catch_up(job, self._live.clock.now)
            self._live.move(job, Phase.HELD)
            self._reestimates.dequeued_job(job, self._live.clock.now)
        else:
            job.progress = job.progress.replaced(held=True)

    def release(self, event: Release) -> Iterator[Record]:
        """Release a held job; it stays held while its dependency is unmet."""
        job = self._live.get(event.key)
        overtaken = job is not None and _hold_overtaken(job, event.time)
        if job is None or job.phase is not Phase.HELD or (job.depends and not job.progress.held):
            yield Anomaly("release_of_job_not_held", f"job {event.job} is not held")
        elif overtaken:
            yield stale(event)
        elif job.depends:
            job.progress = job.progress.replaced(held=False)
        else:
            self._enqueue(job, event.time)

    def suspend(self, event: Suspend) -> Iterator[Record]:
        """Suspend a running job; it still counts as running if it keeps its CPUs."""
        job = self._live.get(event.key)
        overtaken = job is not None and _suspension_overtaken(job, event.time)
        if job is None or job.start is None or job.phase not in STARTED or job.progress.suspended_at is not None:
            yield Anomaly("suspend_of_job_not_running", f"job {event.job} is not running")
        elif overtaken:
            yield stale(event)
        else:
            phase = Phase.SUSPENDED if event.releases else job.phase
            at = max(event.time, job.start)
            self._live.alter(job, phase=phase, progress=job.progress.replaced(suspended_at=at))
            self._live.track_suspended(job)
            self._observe(job, JobTransition.SUSPENDED, event.time)

    def resume(self, event: Resume) -> Iterator[Record]:
        """Resume a suspended job; its run time excludes the time in suspension."""
        job = self._live.get(event.key)
        overtaken = job is not None and _suspension_overtaken(job, event.time)
        if job is None or job.progress.suspended_at is None:
            yield Anomaly("resume_of_job_not_suspended", f"job {event.job} is not suspended")
        elif overtaken:
            yield stale(event)
        else:
            progress = job.progress.replaced(suspended_at=None, suspended_s=job.total_suspended_s(event.time))
            self._live.alter(job, phase=Phase.RUNNING, progress=progress)
            self._observe(job, JobTransition.RESUMED, event.time)

    def expect(self, event: ExpectedStart) -> Iterator[Record]:
        """Record an external estimate of a job's start, which is scored next to the methods' estimates of its wait.

        Later estimates of the same job by the same source are ignored.
        """
        job, name = self._live.get(event.key), event.by
        if job is None or job.phase not in (Phase.QUEUED, Phase.HELD):
            yield Anomaly("expected_start_of_job_not_queued", f"job {event.job} is not queued")
        elif name in METHODS or name in RUN_METHODS:
            yield Anomaly("expected_start_by_a_method", f"job {event.job}: {name!r} is a method's name")
        elif not self._is_rival(name):
            yield Anomaly(
                "too_many_external_estimates",
                f"job {event.job}: {name!r} exceeds the limit of {MAX_RIVALS} names",
            )
        elif name not in job.estimates:
            job.estimates[name] = Estimate(max(event.expected - job.ready, 0.0), "")

    def _is_rival(self, name: str) -> bool:
        """Return whether external estimates by this name are recorded; a new name is added if there is room."""
        if name in self._scores.rivals:
            return True
        if len(self._scores.rivals) == MAX_RIVALS:
            return False
        self._scores.add_rival(name)
        return True

    def take_capacity(self, event: Capacity) -> Iterator[Record]:
        """Set the site's capacity, unless a later capacity event was applied already."""
        known, latest = self._context.capacity, max(self._live.clock.now, self._parts.arrived or 0.0) + MAX_AHEAD_S
        if known is not None and event.time < known.time <= latest:
            yield stale(event)
        else:
            self._context.resize(event)
            if known is None or msgspec.structs.replace(known, time=event.time) != event:
                self._reestimates.news(self._live.clock.now)


def _hold_overtaken(job: Job, time: float) -> bool:
    """Return whether a later hold or release was applied, which this one must not undo. Records the later time."""
    latest, job.hold_time = job.hold_time, max(job.hold_time, time)
    return time < latest


def _suspension_overtaken(job: Job, time: float) -> bool:
    """Return the same for suspensions and resumptions."""
    latest = job.progress.suspend_time
    if time > latest:
        job.progress = job.progress.replaced(suspend_time=time)
    return time < latest


def _changes(event: Alter, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _resized(job: Job, event: Alter) -> dict[str, Any]:
    """Return the changes to a running job's allocation; an event from before its start changed only the request."""
    assert job.start is not None
    changes: dict[str, Any] = {}
    if event.time <= job.start:
        return changes
    if event.cpus is not None and job.allocated is not None:
        changes["allocated"] = event.cpus
    given = {"nodes": event.nodes, "gpus": event.gpus}
    known = {
        name: value for name, value in given.items() if value is not None and getattr(job.progress, name) is not None
    }
    if known:
        changes["progress"] = job.progress.replaced(**known)
    return changes
