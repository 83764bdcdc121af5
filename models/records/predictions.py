"""Output records: predictions, outcomes, dead letters, grid estimates and notices."""

from typing import Literal

import msgspec

from models.records.events import VERSION, Version


class Prediction(msgspec.Struct, kw_only=True, frozen=True):
    """The expected wait and run time of a job, as of `made_at`.

    There is one record for each (site, job, attempt, made_at, method); repeats are identical. The first is made at
    submission. Later ones, for a pending job, have `waited_s`, the time waited so far; their `predicted_wait_s` and
    bounds still are of the whole wait.

    `predicted_wait_s` is null where the method gives no estimate; `reason` explains it. `bounds` maps a probability
    to an upper bound of the wait in seconds. `run_interval` is the interval of likely run times.
    `p_immediate_start` is the probability of a wait under a minute; absent where the method has none. `degraded`
    explains why the estimate may be less accurate than usual. The prediction for a job array that is queued as one
    row is that of its first task; `last_task_wait_s` is the expected wait of its last task.
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
    p_immediate_start: float | msgspec.UnsetType = msgspec.UNSET
    last_task_wait_s: float | msgspec.UnsetType = msgspec.UNSET


class WhatIfPrediction(Prediction, kw_only=True, frozen=True):
    """The prediction for a job that is not submitted.

    `cautious_wait_s` is the wait by which sites are ranked: longer the less certain it is; absent without an estimate.
    """

    cautious_wait_s: float | msgspec.UnsetType = msgspec.UNSET


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    """A prediction and the actual wait and run time.

    It is published when the job starts or is cancelled in the queue (`actual_run_s` null), and again when it ends.
    `error_s` is predicted minus actual wait; no estimate counts as zero. `censored` marks a job that was cancelled
    in the queue: its actual wait is the time until then. `preempted` marks a job that was preempted, so that its full
    run time is not known; absent otherwise. `ineligible_s` is the time before the job became eligible (a dependency,
    a begin time or a hold); the wait then starts at its eligible time (`wait_from` is "eligible").
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
    ineligible_s: float | msgspec.UnsetType = msgspec.UNSET
    censored: bool = False
    preempted: bool | msgspec.UnsetType = msgspec.UNSET


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True):
    """A message that could not be processed, with the reason; `value` is its beginning, escaped.

    `implausible` marks a well-formed event whose time or size is not plausible. For an event of a bundle, `part` is
    its index there, from 0, and `value` its own; the other events of the bundle are accepted.
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
    implausible: bool = False
    part: int | msgspec.UnsetType = msgspec.UNSET


class LiveState(msgspec.Struct, kw_only=True, frozen=True):
    """Numbers of pending and running jobs, and free CPUs, at a site.

    `gpus` counts the GPUs of nodes that are not down, `free_gpus` the unallocated ones; both are absent where the
    site's events contain none.
    """

    queued_jobs: int
    running_jobs: int
    free_cpus: int
    gpus: int | msgspec.UnsetType = msgspec.UNSET
    free_gpus: int | msgspec.UnsetType = msgspec.UNSET


class GridEstimate(msgspec.Struct, kw_only=True, frozen=True):
    """The expected wait of a job of this shape if submitted at `made_at`; the latest record of a shape is in force.

    `walltime` is in seconds; `queue` is null at sites without queues, and a partition where the site has partitions.
    `gpus` is absent for shapes without GPUs. `as_of`, `lag_messages`, `lag_s` and `stale` are as in `Answer`,
    `low_confidence` and `cautious_wait_s` as in `WaitAnswer`, the others as in `Prediction`.
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
    p_immediate_start: float | msgspec.UnsetType = msgspec.UNSET
    gpus: int | msgspec.UnsetType = msgspec.UNSET
    low_confidence: str | msgspec.UnsetType = msgspec.UNSET
    cautious_wait_s: float | msgspec.UnsetType = msgspec.UNSET


class Notice(msgspec.Struct, kw_only=True, frozen=True):
    """A notification about a pending job.

    `about_to_start`: it is expected to start soon. `slipped`: the expected start, or the present time, is past the
    latest start (probability 0.9) of the previous notice. `sooner`: the remaining wait has halved.

    Delivery is at least once; repeats have the same `id`. `name` is the name of the sending process. `at` is in site
    time. `expected_start` and `latest` are the current estimates, `expected_before` is the previous one, and
    `estimated_at` is when the current estimate was made; all in Unix seconds. `undelivered` is the webhook's error.
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
