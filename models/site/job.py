"""A live job: its request, its phase, and its predictions.

Rare fields are in separate objects (`Extras`, `Progress`), so that most jobs need no memory for them.

The garbage collector skips these objects (`gc=False`: they have no cycles), because scanning 100,000 jobs is slow.
"""

from enum import StrEnum
from operator import attrgetter
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from msgspec import Meta

from models.records import JobKey, Submit
from models.records.events import Bytes, Count, Seconds, Size, Time
from models.waiting_accuracy import Landmark

Finite = Annotated[float, Meta(ge=-1e12, le=1e12)]
"""Range of durations and times in a stored job, which compiled functions use."""


class _RareFields(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Fields that mostly have default values. It is stored as a map of the others, in one byte if it is empty."""

    def replaced(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)


class Extras(_RareFields, frozen=True, omit_defaults=True, gc=False):
    """The rare fields of a request, and the scheduler's priority and pending reason; the fields are those of a submit.

    >>> EXTRAS.replaced(qos="high").qos
    'high'
    """

    partitions: list[str] | None = None
    tasks: Count | None = None
    gpu_types: dict[str, Count] | None = None
    exclusive: bool = False
    qos: str | None = None
    reservation: str | None = None
    licences: dict[str, Count] | None = None
    dependency: str | None = None
    array: str | None = None
    array_size: Size | None = None
    array_limit: Count | None = None
    het_group: str | None = None
    priority: float | None = None
    pending_reason: str | None = None
    node_features: list[list[str]] | None = None

    @property
    def for_next_attempt(self) -> "Extras":
        """The extras of the next attempt, without the dependency and the scheduler's information."""
        return EXTRAS if self is EXTRAS else self.replaced(dependency=None, priority=None, pending_reason=None)


class Progress(_RareFields, frozen=True, omit_defaults=True, gc=False):
    """Rare state of a job. Times are Unix seconds.

    Attributes:
        suspended_at: the beginning of the current suspension; None if it is not suspended.
        suspended_s: the seconds of earlier suspensions.
        suspend_time: the time of the last suspension or resumption.
        held: whether it is held for another reason than its dependency.
        partition: the partition where it runs.
        nodes: the allocated nodes.
        gpus: the allocated GPUs.
        requeued: why it was requeued.
        interrupted: the state of an interruption that was received before the start.
        late: whether its submission was reported only at its start.
        historical: whether it is part of the site's history.
        old: whether it is not predicted.
        tasks_gone: number of tasks that left an array that is queued as one row.
        row: id and attempt of that row, in its first task that started.
    """

    suspended_at: Finite | None = None
    suspended_s: Finite = 0.0
    suspend_time: Finite = 0.0
    held: bool = False
    partition: str | None = None
    nodes: Count | None = None
    gpus: Count | None = None
    requeued: str | None = None
    interrupted: str | None = None
    late: bool = False
    historical: bool = False
    old: bool = False
    tasks_gone: Count = 0
    row: tuple[str, int] | None = None


EXTRAS, PROGRESS = Extras(), Progress()
"""Empty extras and progress, which nearly all jobs share."""

_EXTRAS = Extras.__struct_fields__
_extras_of = attrgetter(*_EXTRAS)
_USUAL = _extras_of(EXTRAS)


def extras_of(submit: Any) -> Extras:
    """Return the extras of a submit event. An empty string counts as missing."""
    found = _extras_of(submit)
    if found == _USUAL:
        return EXTRAS
    extras = Extras(**dict(zip(_EXTRAS, found, strict=True)))
    return extras.replaced(dependency=extras.dependency or None, pending_reason=extras.pending_reason or None)


def progress_at_start(start: Any, before: Progress) -> Progress:
    """Return the progress with the partition, nodes and GPUs of a start event."""
    given = start.partition, start.nodes, start.gpus
    if given == (None, None, None):
        return before
    partition, nodes, gpus = given
    return before.replaced(partition=partition, nodes=nodes, gpus=gpus)


UNKNOWN_RUN_S = 3600.0
NO_LIMIT_S = 400 * 86_400.0
"""Walltime of a job without a time limit, in seconds: longer than any plausible limit (`max_walltime_s`)."""

"""Expected run time of a job without any information, in seconds."""


class Phase(StrEnum):
    """The phase of a live job."""

    QUEUED = "queued"
    HELD = "held"  # by a hold or an unmet dependency
    RUNNING = "running"
    SUSPENDED = "suspended"  # with its CPUs released
    ENDED_BEFORE_START = "ended"  # its end event arrived before its start event
    UNCONFIRMED = "unconfirmed"  # started without a submit event where such starts were refuted: without CPUs

    __hash__ = str.__hash__  # faster than Enum's: it is in the key of every total


STARTED = (Phase.RUNNING, Phase.SUSPENDED)
"""Phases of started jobs."""


class Estimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A method's estimate of a job's wait.

    Attributes:
        wait_s: the wait in seconds; None without an estimate.
        reason: why.
        bounds: upper bounds of the wait in seconds, by probability.
        p_immediate_start: the probability that the wait is under a minute; None if the method does not estimate it.
        degraded: why the estimate is degraded, if it is.
        schedule_s: the wait of a considered job by a simulated schedule, if it is a part of the estimate.
    """

    wait_s: float | None
    reason: str
    bounds: dict[str, float] | None = None
    p_immediate_start: float | None = None
    degraded: str | None = None
    schedule_s: float | None = None


class RunEstimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A method's estimate of a job's run time: seconds or None, the reason, and the expected interval.

    `mean_s` is the run time for simulated schedules, where it is not `run_s`: work adds up like means.
    """

    run_s: float | None
    reason: str
    low: float | None = None
    high: float | None = None
    mean_s: float | None = None

    @property
    def schedule_s(self) -> float | None:
        """The run time for simulated schedules."""
        return self.run_s if self.mean_s is None else self.mean_s

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval from `low` to `high`; None if one is missing."""
        return None if self.low is None or self.high is None else (self.low, self.high)


MOST_LATER = 16
"""Maximum number of later estimates that are kept per job."""


class LaterEstimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A later estimate of a pending job's whole wait, made at `made_at` (Unix seconds), and the one `before` it.

    The latest `MOST_LATER` are kept.
    """

    made_at: float
    estimate: Estimate
    before: "LaterEstimate | None" = None

    @classmethod
    def after(cls, before: "LaterEstimate | None", made_at: float, estimate: Estimate) -> "LaterEstimate":
        """Append an estimate to those before it, and drop the oldest beyond the maximum. O(those before)."""
        those = list[LaterEstimate]()
        while before is not None:
            those.append(before)
            before = before.before
        if len(those) >= MOST_LATER:
            kept: LaterEstimate | None = None
            for one in reversed(those[: MOST_LATER - 1]):
                kept = cls(one.made_at, one.estimate, kept)
        else:
            kept = those[0] if those else None
        return cls(made_at, estimate, kept)


class Job(msgspec.Struct, array_like=True, gc=False):
    """A live job: its request, its phase, and its predictions at submission. It is stored as an array.

    Attributes:
        cpus: the requested CPUs; in an area, its share (`Areas`).
        requested_cpus: the requested CPUs where `cpus` is the share of an area.
        allocated: the CPUs of its start event.
        walltime: the time limit in seconds; `NO_LIMIT_S` for none, None if it is unknown.
        planned_run_s: the walltime, or else the predicted run time.
        unscored: whether its wait is unknown: its first event was its start, or its start was reported as long before
            its submit.
        requested: False until its submit event arrives.
        hold_time: the time of the last hold or release.
        alter_time: the time of the last change.
        features: the features at submission (`models.site.history`).
        estimates: the estimates of the wait by the method's name.
        run_estimates: the estimates of the run time by the method's name.
        run_s: the run time for simulated schedules, by the default method.
        later: the last published estimate that was made while it was pending.
        extras: rare fields of the request.
        progress: rare state.
        due: when to estimate it again (Unix seconds; 0 for never).
        early: from when on it may be estimated together with another job that is due.
        landmarks: its estimates in force at fixed ages.
    """

    id: str
    attempt: Count
    submit: Time
    user: str | None = None
    group: str | None = None
    account: str | None = None
    queue: str | None = None
    executable: str | None = None
    cpus: Size = 1
    nodes: Count | None = None
    gpus: Count = 0
    memory: Bytes | None = None
    walltime: Seconds | None = None
    eligible: Time | None = None
    planned_run_s: Finite = 0.0
    phase: Phase = Phase.QUEUED
    start: Time | None = None
    end: Time | None = None
    unscored: bool = False
    requested: bool = True
    hold_time: Finite = 0.0
    alter_time: Finite = 0.0
    run_s: Finite | None = None
    estimates: dict[str, Estimate] = msgspec.field(default_factory=dict)
    features: np.ndarray | None = None
    job_type: str | None = None
    job_class: str | None = None
    script: str | None = None
    arguments: str | None = None
    network: str | None = None
    run_estimates: dict[str, RunEstimate] = msgspec.field(default_factory=dict)
    allocated: Size | None = None
    later: LaterEstimate | None = None
    extras: Extras = EXTRAS
    progress: Progress = PROGRESS
    requested_cpus: Size | None = None
    due: float = 0.0
    early: float = 0.0
    landmarks: tuple[Landmark, ...] = ()

    @classmethod
    def of(cls, event: Submit) -> "Job":
        """Create the job of a submit event."""
        request = dict(zip(REQUEST, _request_of(event), strict=True))
        if event.unlimited:
            request["walltime"] = NO_LIMIT_S
        job = cls(event.job, event.attempt, event.time, eligible=event.eligible, extras=extras_of(event), **request)
        if job.depends:
            job.phase = Phase.HELD
        return job

    @property
    def request(self) -> dict[str, Any]:
        """The request by the names in `REQUEST`, and its `extras`."""
        return dict(zip(REQUEST, _request_of(self), strict=True), extras=self.extras)

    @property
    def key(self) -> JobKey:
        """The job's identity within its site."""
        return (self.id, self.attempt)

    @property
    def limit_s(self) -> float | None:
        """The time limit in seconds; None if there is none or it is unknown."""
        return None if self.walltime is None or self.walltime >= NO_LIMIT_S else self.walltime

    @property
    def depends(self) -> bool:
        """True if it has an unmet dependency."""
        return self.extras.dependency is not None

    @property
    def counted_cpus(self) -> int:
        """The allocated CPUs of a started job, if known; else the requested CPUs."""
        return self.cpus if self.allocated is None or self.phase not in STARTED else self.allocated

    @property
    def shifted_start(self) -> float | None:
        """The start, shifted by the time in suspension."""
        return self.start if self.start is None or self.progress is PROGRESS else self.start + self.progress.suspended_s

    @property
    def expected_run_s(self) -> float:
        """The expected run time in seconds: the predicted one, limited by the walltime."""
        run_s = (self.limit_s or UNKNOWN_RUN_S) if self.run_s is None else self.run_s
        return min(run_s, self.walltime) if self.walltime else run_s

    @property
    def tasks_remaining(self) -> int:
        """The number of jobs that it represents: 1, or the remaining tasks of an array that is queued as one row."""
        size = None if self.extras is EXTRAS or self.start is not None else self.extras.array_size
        return 1 if size is None else max(size - self.progress.tasks_gone, 0)

    @property
    def keeps_still(self) -> bool:
        """True if it is suspended and keeps its CPUs."""
        return self.phase is Phase.RUNNING and self.progress.suspended_at is not None

    def total_suspended_s(self, at: float) -> float:
        """Return the seconds in suspension until `at` (Unix seconds), all suspensions together."""
        since = self.progress.suspended_at
        return self.progress.suspended_s + (0.0 if since is None else max(at - since, 0.0))

    def ran_s(self, at: float) -> float:
        """Return the run time in seconds until `at` (Unix seconds), without suspensions."""
        return 0.0 if self.start is None else max(at - self.start - self.total_suspended_s(at), 0.0)

    @property
    def ready(self) -> float:
        """The beginning of the wait: the submission or the eligible time, whichever is later (Unix seconds)."""
        return self.submit if self.eligible is None else max(self.submit, self.eligible)

    @property
    def ineligible_s(self) -> float:
        """The seconds from submission to the eligible time, which its wait excludes."""
        return self.ready - self.submit

    @property
    def wait_from(self) -> str:
        """The name of the time from which `ready` is taken, "submit" or "eligible"."""
        return "eligible" if self.ineligible_s else "submit"


REQUEST = tuple(name for name in Submit.__struct_fields__ if name in {*Job.__struct_fields__} - {"attempt", "eligible"})
"""Fields of a request, with the same names in a submit event and a job; rare ones are in `extras`."""

_request_of = attrgetter(*REQUEST)
