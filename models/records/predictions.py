"""What goes out: predictions, outcomes, dead letters, estimates that stand without a question, and notices."""

from typing import Literal

import msgspec

from models.records.events import VERSION, Version


class Prediction(msgspec.Struct, kw_only=True, frozen=True):
    """How long a job is expected to wait and to run, as known at `made_at`.

    One record a (site, job, attempt, made_at, method); repeats are identical. The first is made when the job is
    submitted. Later ones, for a job that still queues, have `waited_s`: for how long it had waited by then; their
    `predicted_wait_s` and bounds are of the whole wait. `predicted_wait_s` is null where no
    estimate is better than a bad one, and `reason` says why. `bounds` maps a probability to the seconds that the wait
    is at most, with that probability; `run_interval` is where the method for run times expects these to lie.
    `starts_at_once` is the probability that the wait is under a minute; it is left out where the method does not tell.
    `degraded` says why the estimate may be worse than usual. Of an array that queues as one row the prediction is of
    its first task; `last_task_wait_s` is how long its last one waits.
    """

    v: Version = VERSION
    site: str
    job: str
    attempt: int
    made_at: float
    predicted_wait_s: float | None
    predicted_run_s: float | None
    predicted_start: float | None
    bounds: dict[str, float] | None = None
    run_interval: tuple[float, float] | None = None
    method: str
    reason: str
    degraded: str | None = None
    waited_s: float | msgspec.UnsetType = msgspec.UNSET
    starts_at_once: float | msgspec.UnsetType = msgspec.UNSET
    last_task_wait_s: float | msgspec.UnsetType = msgspec.UNSET


class Considered(Prediction, kw_only=True, frozen=True):
    """What is predicted of a job that is only considered. `cautious_wait_s` is the wait by which sites are compared for
    it, the longer the less sure it is; left out where no wait is predicted.
    """

    cautious_wait_s: float | msgspec.UnsetType = msgspec.UNSET


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    """A prediction beside what happened.

    Written when the job starts or is cancelled in the queue (`actual_run_s` null), and again when it ends. `error_s`
    is predicted minus actual wait, with no estimate counted as zero. `censored` marks a job that was
    cancelled in the queue: its wait is how long it had waited by then. `preempted` marks a job that was ended to make
    room for others: how long it would have run is not known. It is left out of all other outcomes.
    `before_eligible_s` is for how long the job could not start before its wait began (`wait_from` is "eligible"): by a
    dependency, a begin time or a hold.
    """

    v: Version = VERSION
    site: str
    job: str
    attempt: int
    made_at: float
    method: str
    predicted_wait_s: float | None
    predicted_run_s: float | None
    bounds: dict[str, float] | None = None
    run_interval: tuple[float, float] | None = None
    observed_at: float
    actual_wait_s: float
    actual_run_s: float | None = None
    error_s: float
    run_error_s: float | None = None
    wait_from: str = "submit"
    before_eligible_s: float | msgspec.UnsetType = msgspec.UNSET
    censored: bool = False
    preempted: bool | msgspec.UnsetType = msgspec.UNSET


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True):
    """A message that could not be processed, with the reason; `value` is its beginning, escaped.

    `doubted` marks an event that is not plausible: it is well formed, but its time or size is not believed. Of an
    event of a bundle `part` is its place there, from 0, and `value` its own; its other events are taken. Else it is
    left out.
    """

    v: Version = VERSION
    reason: str
    detail: str
    site: str | None
    topic: str
    partition: int
    offset: int
    value: str
    value_bytes: int
    doubted: bool = False
    part: int | msgspec.UnsetType = msgspec.UNSET


class LiveState(msgspec.Struct, kw_only=True, frozen=True):
    """A site's live state: jobs that queue and that run, and processors that are free.

    `gpus` are those of nodes that are not down, `free_gpus` those of them that no job has; both are left out where the
    site tells of none.
    """

    queued_jobs: int
    running_jobs: int
    free_cpus: int
    gpus: int | msgspec.UnsetType = msgspec.UNSET
    free_gpus: int | msgspec.UnsetType = msgspec.UNSET


class StandingEstimate(msgspec.Struct, kw_only=True, frozen=True):
    """How long a job of this shape would wait if it came at `made_at`; the latest record of a (site, shape) counts.

    `cpus` are the shape's, `walltime` seconds, `queue` null at sites without queues, a partition where the site has
    such; `gpus` are left out of shapes without any. `as_of` and what follows is as in `Answer`, `weak` and
    `cautious_wait_s` as in `WaitAnswer`, the rest as in `Prediction`.
    """

    v: Version = VERSION
    site: str
    cpus: int
    walltime: float
    queue: str | None
    made_at: float
    predicted_wait_s: float | None
    predicted_run_s: float | None
    predicted_start: float | None
    bounds: dict[str, float] | None = None
    method: str
    reason: str
    degraded: str | None = None
    live: LiveState
    site_cpus: int
    as_of: float | None = None
    lag_messages: int = 0
    lag_s: float = 0.0
    stale: str | None = None
    starts_at_once: float | msgspec.UnsetType = msgspec.UNSET
    gpus: int | msgspec.UnsetType = msgspec.UNSET
    weak: str | msgspec.UnsetType = msgspec.UNSET
    cautious_wait_s: float | msgspec.UnsetType = msgspec.UNSET


class Notice(msgspec.Struct, kw_only=True, frozen=True):
    """Something about a queued job that whoever waits for it should know.

    `about_to_start`: it is expected to start soon. `slipped`: it is expected to start, or has not started, after the
    time that was told before as the latest (with a probability of 0.9). `sooner`: what was left to wait has halved.

    A notice comes at least once; repeats have the same `id`. `name` is that of the process that tells it. Times are
    Unix seconds: `at` is the site's, `expected_start` and `latest` are what is expected now, `expected_before` is what
    was told before, `estimated_at` is when the estimate was made. `undelivered` says why the webhook did not take it.
    """

    v: Version = VERSION
    id: str
    name: str
    kind: Literal["about_to_start", "slipped", "sooner"]
    site: str
    job: str
    attempt: int
    user: str | None = None
    at: float
    expected_start: float
    latest: float | None
    expected_before: float
    estimated_at: float
    text: str
    undelivered: str | None = None
