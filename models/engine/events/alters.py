"""What it does to a job that its request is altered, or what it runs on."""

from collections.abc import Iterator
from typing import Any

from models.engine.events.eligibility import Eligibility
from models.engine.live import LiveJobs
from models.engine.methods import planned_run_s
from models.engine.outgoing import Anomaly, stale
from models.engine.settings import EngineSettings
from models.records import Alter
from models.site.job import Job

PLAIN = ("account", "queue", "cpus", "nodes", "gpus", "memory", "eligible")
"""What a job itself has, by the fields' names in an alter event."""

RARE = ("partitions", "tasks", "gpu_types", "qos", "reservation", "array_limit", "priority", "pending_reason")
"""What its extras have; `dependency` is for `Eligibility`."""


class Alters:
    """Changes jobs as alter events say; what such an event leaves out stays as it was."""

    def __init__(self, live: LiveJobs, settings: EngineSettings, eligibility: Eligibility) -> None:
        self._live = live
        self._max_walltime_s = settings.max_walltime_s
        self._eligibility = eligibility

    def alter(self, event: Alter) -> Iterator[Anomaly]:
        """A live job's request is another now; of one that runs also what was allocated."""
        job = self._live.get(event.key)
        if job is None:
            yield Anomaly("alter_of_unknown_job", f"job {event.job} is not here")
            return
        overtaken = event.time < job.alter_time
        job.alter_time = max(job.alter_time, event.time)
        if overtaken:
            yield stale(event)
            return
        changes = _changes(event, PLAIN)
        if event.walltime is not None or event.unlimited:
            unlimited = event.unlimited or (event.walltime or 0.0) > self._max_walltime_s
            if unlimited and not event.unlimited:
                yield Anomaly("unlimited_walltime", f"job {job.id} asks for {event.walltime} s: taken for no limit")
            changes["walltime"] = None if unlimited else event.walltime
            changes["planned_run_s"] = planned_run_s(changes["walltime"], job.run_s)
        rare = _changes(event, RARE)
        if rare:
            rare["pending_reason"] = rare.get("pending_reason", job.extras.pending_reason) or None
            changes["extras"] = job.extras.but(**rare)
        if job.start is not None:
            changes |= _resized(job, event)
            changes.pop("eligible", None)  # its wait is over and published
        self._live.alter(job, **changes)
        self._eligibility.follow(job, event)


def _changes(event: Alter, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(event, name)) is not None}


def _resized(job: Job, event: Alter) -> dict[str, Any]:
    """What changes of what a running job was given; an event from before its start changed the request only."""
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
        changes["progress"] = job.progress.but(**known)
    return changes
