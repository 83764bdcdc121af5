"""What changes while a job stays where it is: its request, and when others expect its start; and the site's size."""

from collections.abc import Iterator
from typing import Any

from models.engine.methods import planned_run_s
from models.engine.outgoing import Anomaly, Record, stale
from models.engine.parts import AttemptHandler
from models.engine.scores import MAX_RIVALS
from models.records import Alter, Capacity, ExpectedStart
from models.registry import METHODS, RUN_METHODS
from models.site.clock import MAX_AHEAD_S
from models.site.job import REQUEST, Estimate, Extras, Job, Phase

_ALTERED = Alter.__struct_fields__

PLAIN = tuple(name for name in _ALTERED if name in (*REQUEST, "eligible") and name != "walltime")
"""What a job itself has, by the fields' names in an alter event; its walltime may also be taken away."""

RARE = tuple(name for name in _ALTERED if name in Extras.__struct_fields__ and name != "dependency")
"""What its extras have; `dependency` is for `Eligibility`."""

EMPTIED = ("node_features", "pending_reason")  # those of them that an empty value takes away


class InPlace(AttemptHandler):
    """Requests that are altered, starts that others expect, and what the site has."""

    def alter(self, event: Alter) -> Iterator[Record]:
        """A live job's request is another now, so it is estimated again; of one that runs also what was allocated."""
        job = self._live.get(event.key)
        if job is None:
            yield Anomaly("alter_of_unknown_job", f"job {event.job} is not here")
            return
        yield from self._alter(job, event)
        self._reestimates.watch(job)

    def _alter(self, job: Job, event: Alter) -> Iterator[Record]:
        """What the event leaves out stays as it was."""
        overtaken = event.time < job.alter_time
        job.alter_time = max(job.alter_time, event.time)
        if overtaken:
            yield stale(event)
            return
        changes = _changes(event, PLAIN)
        if event.walltime is not None or event.unlimited:
            unlimited = event.unlimited or (event.walltime or 0.0) > self._settings.max_walltime_s
            if unlimited and not event.unlimited:
                yield Anomaly("unlimited_walltime", f"job {job.id} asks for {event.walltime} s: taken for no limit")
            changes["walltime"] = None if unlimited else event.walltime
            changes["planned_run_s"] = planned_run_s(changes["walltime"], job.run_s)
        rare = _changes(event, RARE)
        if rare:
            rare |= {name: rare.get(name, getattr(job.extras, name)) or None for name in EMPTIED}
            changes["extras"] = job.extras.but(**rare)
        if job.start is not None:
            changes |= _resized(job, event)
            changes.pop("eligible", None)  # its wait is over and published
        self._live.alter(job, **changes)
        self._parts.eligibility.follow(job, event)

    def expect(self, event: ExpectedStart) -> Iterator[Record]:
        """Somebody expects a job to start, which is scored beside the methods' estimates of its wait; 3 µs.

        What the same one says of it later changes nothing.
        """
        job, name = self._live.get(event.key), event.by
        if job is None or job.phase not in (Phase.QUEUED, Phase.HELD):
            yield Anomaly("expected_start_of_job_not_queued", f"job {event.job} is not queued")
        elif name in METHODS or name in RUN_METHODS:
            yield Anomaly("expected_start_by_a_method", f"job {event.job}: {name!r} is a method's name")
        elif not self._is_rival(name):
            yield Anomaly("too_many_rivals", f"job {event.job}: by {name!r}, and {MAX_RIVALS} others do already")
        elif name not in job.estimates:
            job.estimates[name] = Estimate(max(event.expected - job.ready, 0.0), "")

    def _is_rival(self, name: str) -> bool:
        """Whether this one's expectations are kept."""
        if name in self._scores.rivals:
            return True
        if len(self._scores.rivals) == MAX_RIVALS:
            return False
        self._scores.add_rival(name)
        return True

    def take_capacity(self, event: Capacity) -> Iterator[Record]:
        """The site says what it has, unless it has said something later."""
        known, latest = self._context.capacity, max(self._live.clock.now, self._parts.arrived or 0.0) + MAX_AHEAD_S
        if known is not None and event.time < known.time <= latest:
            yield stale(event)
        else:
            self._context.resize(event)


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
