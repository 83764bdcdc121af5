"""A live job: what it asks for, in which phase of its life it is, and what was predicted of it.

What few jobs ask for, and what befalls few, is kept apart, so that the others take no room for it.

The garbage collector does not look at what is kept of a job (`gc=False`: there are no cycles), which with 100,000 of
them would take 200 ms a time.
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
"""Seconds, or a time, of a stored job: kernels compute with it."""


class _Rare(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Fields that are mostly as usual; it is stored as a map of those that are not, and takes a byte without any."""

    def but(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)


class Extras(_Rare, frozen=True, omit_defaults=True, gc=False):
    """What a job asks for beside what most do, and what the scheduler says of it; the fields are those of a submit.

    >>> EXTRAS.but(qos="high").qos
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
    def again(self) -> "Extras":
        """Those of the next attempt: what it waited for is over, and what the scheduler said of it too."""
        return EXTRAS if self is EXTRAS else self.but(dependency=None, priority=None, pending_reason=None)


class Progress(_Rare, frozen=True, omit_defaults=True, gc=False):
    """What has befallen a job beside coming, starting and ending.

    It has stood still since `suspended_at` (None: it does not), and for `suspended_s` seconds before; `suspend_time` is
    when it was last suspended or resumed. Times are Unix seconds. `held` says that it is held beside waiting for its
    dependency. `partition`, `nodes` and `gpus` are where it runs and what it was given there. `requeued` is why it
    queues again, `interrupted` how an end that came before its start cut it short, `late` that
    its submit was told only when it started, `past` that it is of the site's history, `old` that it is not predicted.

    Of an array that queues as one row, `tasks_gone` have left it; the first that started names the `row` (id, attempt).
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
"""Those of a job that has none: nearly all share these."""

_EXTRAS = Extras.__struct_fields__
_extras_of = attrgetter(*_EXTRAS)
_USUAL = _extras_of(EXTRAS)


def extras_of(submit: Any) -> Extras:
    """The extras that a submit event names; 0.3 µs where it names none. An empty text says nothing."""
    found = _extras_of(submit)
    if found == _USUAL:
        return EXTRAS
    extras = Extras(**dict(zip(_EXTRAS, found, strict=True)))
    return extras.but(dependency=extras.dependency or None, pending_reason=extras.pending_reason or None)


def progress_at_start(start: Any, before: Progress) -> Progress:
    """What a start event says of where a job runs, beside its processors."""
    given = start.partition, start.nodes, start.gpus
    if given == (None, None, None):
        return before
    partition, nodes, gpus = given
    return before.but(partition=partition, nodes=nodes, gpus=gpus)


UNKNOWN_RUN_S = 3600.0
NO_LIMIT_S = 400 * 86_400.0
"""The walltime of a job without a time limit, seconds: longer than any limit that is believed (`max_walltime_s`)."""

"""How long a job is expected to run of which nothing is known, seconds."""


class Phase(StrEnum):
    """Which phase of its life a live job is in."""

    QUEUED = "queued"
    HELD = "held"  # it may not start, by a hold or for its dependency
    RUNNING = "running"
    SUSPENDED = "suspended"  # it stands still, and others may have its processors
    ENDED_BEFORE_START = "ended"  # its end arrived before its start
    UNCONFIRMED = "unconfirmed"  # its start arrived without a submit, and such starts were refuted: it has no CPUs

    __hash__ = str.__hash__  # it is in the key of every total; an Enum's own is a function in Python


STARTED = (Phase.RUNNING, Phase.SUSPENDED)
"""The phases of jobs that have started."""


class Estimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one method says of one job: the wait in seconds or None, why, bounds by probability, the probability that
    the wait is under a minute, where the method tells these, and why the estimate is worse than usual, if it is.

    Of a job that is only considered also the wait by a simulated schedule, where it is a part of the estimate.
    """

    wait_s: float | None
    reason: str
    bounds: dict[str, float] | None = None
    p_immediate_start: float | None = None
    degraded: str | None = None
    schedule_s: float | None = None


class RunEstimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one method says of a job's run time: seconds or None, why, and the interval it is expected in."""

    run_s: float | None
    reason: str
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """From `low` to `high`, where there are both."""
        return None if self.low is None or self.high is None else (self.low, self.high)


MOST_LATER = 16
"""Later estimates of a job that are kept."""


class LaterEstimate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A later estimate of a job's whole wait, made while it queued, at `made_at` (Unix seconds), and the one `before`.

    The latest `MOST_LATER` are kept.
    """

    made_at: float
    estimate: Estimate
    before: "LaterEstimate | None" = None

    @classmethod
    def after(cls, before: "LaterEstimate | None", made_at: float, estimate: Estimate) -> "LaterEstimate":
        """A new one behind those before it, without the oldest where they are too many. O(those before)."""
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
    """A live job: its request, its phase, and what was predicted of it when it was submitted.

    `walltime` is in seconds, `NO_LIMIT_S` for a job without a time limit, and None where the limit is unknown.
    `planned_run_s` is the walltime, or else the predicted run time. `unscored` marks a job
    whose wait cannot be told: first seen at its start, or reported as started long before its submit. `requested`
    is False while its submit is still to come, `hold_time` is when it was last held or released, `alter_time` when
    it was last altered. `features` are those of `models.site.history`, at submission. `estimates` and
    `run_estimates` are by the method's name; `run_s` is the estimate that counts. `cpus` are requested; `allocated`
    is what its start said that it got. `later` is the last estimate of those made while it queued that was told.
    `extras` and `progress` are what few jobs have. `asked_cpus` are what it asked for where `cpus` is its share of
    an area (`Areas`). `due` is when a queued job is to be estimated again (Unix seconds; 0: not), and `landmarks` what
    was noted of it at fixed ages. The job is stored as an array.
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
    asked_cpus: Size | None = None
    due: float = 0.0
    landmarks: tuple[Landmark, ...] = ()

    @classmethod
    def of(cls, event: Submit) -> "Job":
        """The job that a submit event describes."""
        request = dict(zip(REQUEST, _request_of(event), strict=True))
        if event.unlimited:
            request["walltime"] = NO_LIMIT_S
        job = cls(event.job, event.attempt, event.time, eligible=event.eligible, extras=extras_of(event), **request)
        if job.depends:
            job.phase = Phase.HELD
        return job

    @property
    def request(self) -> dict[str, Any]:
        """What it asks for, by the names in `REQUEST`, and its `extras`."""
        return dict(zip(REQUEST, _request_of(self), strict=True), extras=self.extras)

    @property
    def key(self) -> JobKey:
        """The job's identity within its site."""
        return (self.id, self.attempt)

    @property
    def limit_s(self) -> float | None:
        """The time limit in seconds; None where the job has none, or it is unknown."""
        return None if self.walltime is None or self.walltime >= NO_LIMIT_S else self.walltime

    @property
    def depends(self) -> bool:
        """Whether it waits for a dependency that is not met."""
        return self.extras.dependency is not None

    @property
    def counted_cpus(self) -> int:
        """The processors that count now: once it runs what was allocated, where that is known, else the request."""
        return self.cpus if self.allocated is None or self.phase not in STARTED else self.allocated

    @property
    def began(self) -> float | None:
        """When it would have started if it had never stood still; the start itself for nearly all."""
        return self.start if self.start is None or self.progress is PROGRESS else self.start + self.progress.suspended_s

    @property
    def expected_run_s(self) -> float:
        """How long it is expected to run, seconds: as predicted, but no longer than its walltime."""
        run_s = (self.limit_s or UNKNOWN_RUN_S) if self.run_s is None else self.run_s
        return min(run_s, self.walltime) if self.walltime else run_s

    @property
    def tasks_left(self) -> int:
        """How many jobs like this one are to start: of an array that queues as one row those that are left in it."""
        size = None if self.extras is EXTRAS or self.start is not None else self.extras.array_size
        return 1 if size is None else max(size - self.progress.tasks_gone, 0)

    @property
    def keeps_still(self) -> bool:
        """Whether it stands still and nobody else has its processors meanwhile."""
        return self.phase is Phase.RUNNING and self.progress.suspended_at is not None

    def stood_s(self, at: float) -> float:
        """For how many seconds it has stood still by `at` (Unix seconds), all its suspensions together."""
        since = self.progress.suspended_at
        return self.progress.suspended_s + (0.0 if since is None else max(at - since, 0.0))

    def ran_s(self, at: float) -> float:
        """For how many seconds it has run by `at` (Unix seconds), without those that it stood still."""
        return 0.0 if self.start is None else max(at - self.start - self.stood_s(at), 0.0)

    @property
    def ready(self) -> float:
        """When the wait began: at submission, or later where the job was not yet eligible (seconds)."""
        return self.submit if self.eligible is None else max(self.submit, self.eligible)

    @property
    def ineligible_s(self) -> float:
        """For how many seconds it was submitted and not yet eligible, which its wait leaves out."""
        return self.ready - self.submit

    @property
    def wait_from(self) -> str:
        """Which of the two `ready` is."""
        return "eligible" if self.ineligible_s else "submit"


REQUEST = tuple(name for name in Submit.__struct_fields__ if name in {*Job.__struct_fields__} - {"attempt", "eligible"})
"""What a job asks for, by the fields' names in a submit event and here; what few jobs do is in its `extras`."""

_TEXTS = tuple(name for name in REQUEST if name not in ("cpus", "nodes", "gpus", "memory", "walltime"))

_request_of = attrgetter(*REQUEST)
_texts_of = attrgetter(*_TEXTS)
_set = msgspec.structs.force_setattr

_MAX_SHARED = 10_000
"""Texts, or bounds, that are looked for again; beyond that they begin anew: those of a million jobs are of no use, and
to free them at once would stop all other threads."""


class Shared:
    """What jobs that are read back have in common, in memory once: names, reasons, bounds. Halves what they take."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._bounds: dict[tuple[tuple[str, float], ...], dict[str, float]] = {}

    def settle(self, job: Job) -> Job:
        """The job, with what others have too replaced by theirs; 3 µs."""
        for known in (self._texts, self._bounds):
            if len(known) > _MAX_SHARED:
                known.clear()
        shared = self._texts.setdefault
        if job.extras == EXTRAS:
            job.extras = EXTRAS
        if job.progress == PROGRESS:
            job.progress = PROGRESS
        for name, text in zip(_TEXTS, _texts_of(job), strict=True):
            if text is not None:
                setattr(job, name, shared(text, text))
        for estimate in job.estimates.values():
            _set(estimate, "reason", shared(estimate.reason, estimate.reason))
            if (bounds := estimate.bounds) is not None:
                _set(estimate, "bounds", self._bounds.setdefault(tuple(bounds.items()), bounds))
        for run_estimate in job.run_estimates.values():
            _set(run_estimate, "reason", shared(run_estimate.reason, run_estimate.reason))
        job.estimates = {shared(name, name): estimate for name, estimate in job.estimates.items()}
        job.run_estimates = {shared(name, name): estimate for name, estimate in job.run_estimates.items()}
        return job
