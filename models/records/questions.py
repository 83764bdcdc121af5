"""Questions and their answers."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from models.records.events import VERSION, Alternatives, Bytes, Count, Counts, Name, Names, Seconds, Version
from models.records.operations import DoneOperation
from models.records.predictions import LiveState


class Question(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """What every question says: to which site it goes, and the `id` that its answer repeats.

    `asker` says who asks: those who ask much wait for each other, not for others. All who do not say it count as one.
    `wait_s` is for how many seconds the asker waits for the answer: later a worker does no work for it. By default 2.
    """

    v: Version = VERSION
    id: Name
    site: Name
    asker: Name | None = None
    wait_s: Seconds | None = None


class WaitQuestion(Question, tag="wait", kw_only=True, frozen=True):
    """How long would this job wait if it came now? The fields are those of a submit event.

    With `why` the answer says why it would wait, and what would start sooner. That takes several times as long.
    """

    user: Name | None = None
    group: Name | None = None
    account: Name | None = None
    queue: Name | None = None
    executable: Name | None = None
    cpus: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 1
    nodes: Count | None = None
    gpus: Count = 0
    memory: Bytes | None = None
    walltime: Seconds | None = None
    job_type: Name | None = None
    job_class: Name | None = None
    script: Name | None = None
    arguments: Name | None = None
    network: Name | None = None
    why: bool = False
    partitions: Names | None = None
    tasks: Count | None = None
    gpu_types: Counts | None = None
    exclusive: bool = False
    qos: Name | None = None
    reservation: Name | None = None
    node_features: Alternatives | None = None
    unlimited: bool = False


class JobsQuestion(Question, tag="jobs", kw_only=True, frozen=True):
    """What was predicted of this user's jobs that queue or run now? The answer has at most `most` of them."""

    user: Name
    most: Annotated[int, Meta(ge=1, le=1000)] = 100


class JobQuestion(Question, tag="job", kw_only=True, frozen=True):
    """When does this job start, which queues (or is held) or runs now? Its last attempt is meant."""

    job: Name


class SiteQuestion(Question, tag="site", kw_only=True, frozen=True):
    """How is the site, how good were its predictions, and what of the jobs that have queued longest?

    With `past` the answer says how the site has been, too.
    """

    most: Annotated[int, Meta(ge=0, le=1000)] = 20
    past: bool = False


AnyQuestion = WaitQuestion | JobsQuestion | JobQuestion | SiteQuestion


class Answer(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """What every answer says: the question's `id` and site, the site's time (Unix seconds), and how old it is.

    `as_of` is the time of the last event that it is based on. `lag_messages`, each an event or a bundle, have come
    and are not read yet; the reading is `lag_s` seconds behind. `stale` says why the answer is too old to go by, null
    where it is not.
    """

    v: Version = VERSION
    id: str
    site: str
    made_at: float
    as_of: float | None = None
    lag_messages: int = 0
    lag_s: float = 0.0
    stale: str | None = None


class Alternative(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a job could ask for instead of what it does (only what differs), and by how many seconds it starts sooner.

    Fewer processors or a shorter walltime help only where the job can do with them.
    """

    cpus: int | None = None
    walltime: float | None = None
    queue: str | None = None
    predicted_wait_s: float
    sooner_s: float


class Why(msgspec.Struct, kw_only=True, frozen=True):
    """Why a job waits: `text` says it in words.

    `ahead_jobs` queued jobs are expected to start before it, `ahead_in_queue` of them in its queue. They need
    `ahead_cpu_hours`, which is `ahead_work_s` seconds of the whole machine. Where a site tells its partitions, all of
    it is of those that share nodes with the job's, and a job that takes more of the GPUs or the memory counts for as
    large a part of the processors; `free_cpus` alone are what they say.
    """

    text: str
    free_cpus: int
    ahead_jobs: int = 0
    ahead_in_queue: int = 0
    ahead_cpu_hours: float = 0.0
    ahead_work_s: float | None = None
    instead: list[Alternative] = []


class MethodAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """How one method did over the jobs that left the queue in some time; a cancelled one as if it had started then.

    Jobs of which it gave no estimate are not among them.

    Seconds; shares within 0 and 1, null where there was no job (`coverage`: the share of waits within each bound).
    """

    method: str
    jobs: int
    mean_error_s: float | None
    mean_error_share: float | None
    within_factor_2: float | None
    coverage: dict[str, float]


class WaitAnswer(Answer, tag="wait", kw_only=True, frozen=True):
    """How long this job would wait if it came at `made_at`; null where no estimate is better than a bad one.

    `cannot_run` says why it could never start there, and is left out where it could. `left_out` are those of the
    partitions that it names where it could not, and why. `recent` is how right the site's predictions were in the last
    week or two. `source` is "standing" where the worker had too much to do: it is the standing estimate of a shape that
    the job fits into then, made at `made_at`, and never says why. `unverified` says what the job requests and
    the site does not state whether it has. `weak` says why the estimate rests on little; it is
    left out where it does not. `cautious_wait_s` is the wait by which sites are compared, the longer the less sure it
    is.
    """

    predicted_wait_s: float | None
    predicted_run_s: float | None
    predicted_start: float | None
    bounds: dict[str, float] | None = None
    run_interval: tuple[float, float] | None = None
    method: str
    reason: str
    degraded: str | None = None
    live: LiveState
    site_cpus: int
    why: Why | None = None
    starts_at_once: float | msgspec.UnsetType = msgspec.UNSET
    cannot_run: str | msgspec.UnsetType = msgspec.UNSET
    left_out: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    recent: MethodAccuracy | msgspec.UnsetType = msgspec.UNSET
    weak: str | msgspec.UnsetType = msgspec.UNSET
    unverified: str | msgspec.UnsetType = msgspec.UNSET
    cautious_wait_s: float | msgspec.UnsetType = msgspec.UNSET
    source: Literal["what-if", "standing"] = "what-if"


class LiveJob(msgspec.Struct, kw_only=True, frozen=True):
    """A job that queues (or is held) or runs (or is suspended), and what was predicted of it when it was submitted.

    `expected_start` is when it will start as things are now; null where it is held, runs already, or is unknown. Where
    it was estimated anew while it queued, `predicted_wait_s`, `predicted_start` and `bounds` are of the last such
    estimate. `why` says in words why it still queues. `priority` and `pending_reason` are the scheduler's own,
    `tasks_left` those of an array that queues as one row; `expected_by` is when others first expected it to start.
    `held_back` says why no start is promised any longer to a job that did not start when it should have, although there
    is room for it, or which would be said to start now while there is none; `expected_start` is null then.
    `eligible` is when its wait began, where that is later than `submit`. `user` is null where the events name none.
    """

    job: str
    user: str | None = None
    attempt: int
    phase: str
    queue: str | None
    cpus: int
    walltime: float | None
    submit: float
    start: float | None
    predicted_wait_s: float | None
    predicted_run_s: float | None
    predicted_start: float | None
    expected_start: float | None = None
    bounds: dict[str, float] | None = None
    method: str
    reason: str
    why: str | None = None
    priority: float | msgspec.UnsetType = msgspec.UNSET
    pending_reason: str | msgspec.UnsetType = msgspec.UNSET
    tasks_left: int | msgspec.UnsetType = msgspec.UNSET
    expected_by: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    held_back: str | msgspec.UnsetType = msgspec.UNSET
    eligible: float | msgspec.UnsetType = msgspec.UNSET


class JobsAnswer(Answer, tag="jobs", kw_only=True, frozen=True):
    """The user's jobs in the order of submission; `more` were left out."""

    user: str
    jobs: list[LiveJob]
    more: int


class ToldStart(msgspec.Struct, kw_only=True, frozen=True):
    """When a job was said to start, and `starts_by` with a probability, in an estimate of it that went out at `at`."""

    at: float
    start: float | None
    starts_by: dict[str, float]


class JobAnswer(Answer, tag="job", kw_only=True, frozen=True):
    """A job, when it starts, and why not yet; `live` is null where no such job queues or runs.

    `text` says it in a line. `expected_start`, and `starts_by` with a probability, are Unix seconds, of a job that
    queues. `ahead_jobs` queued jobs are expected to start before it. `told` is what went out of it: the prediction at
    its submission, and each later estimate.
    """

    job: str
    text: str
    live: LiveJob | None = None
    expected_start: float | None = None
    starts_by: dict[str, float] = {}
    ahead_jobs: int = 0
    told: list[ToldStart] = []


class WeekAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The methods' accuracy in about a week, from `begin` to `end` (Unix seconds); the default method comes first."""

    begin: float
    end: float
    methods: list[MethodAccuracy]


class AnswerAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """How right the numbers were that people act on, over jobs whose wait is known; seconds, shares within 0 and 1.

    `kind`: `expected`, the last estimate of jobs that were estimated anew while they queued, as long as the site is
    known; `what-if`, what a what-if question right before each submission would have been told, as long as the same
    method answers. Since the site's worker started: `standing`, the standing estimate that held when a job of its shape
    came; `asked`, the answer about a job that then came within ten minutes. `predicted_error_s` is the mean error of
    what was predicted of the same jobs at their submission. `coverage` as in `MethodAccuracy`. `regret_s` is by how
    much longer jobs waited, in the mean, than the least that was told of another site of this worker's process which
    was asked about them too: an estimate, for nobody sees how long a job would have waited elsewhere. Less than 0: the
    choice was good.
    """

    kind: str
    jobs: int
    mean_error_s: float
    predicted_error_s: float
    within_factor_2: float
    coverage: dict[str, float]
    regret_s: float | None = None


class WaitingAgeAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy of the estimates in force of jobs that still waited at the age `age_s`; seconds.

    `mean_error_s` is their mean absolute error of what was left to wait, `first_error_s` that of the estimates at
    submission. The baselines are `now_error_s`, that of "it starts now", and `recent_error_s`, that of the median of
    what was left for the last 500 jobs that waited as long; `ratio` is the error beside the better of these, null where
    that has none. `coverage` is the share that started within each bound in force, `passed` the share of bounds of 0.9
    that had passed, null without bounds.
    """

    age_s: float
    jobs: int
    mean_error_s: float
    first_error_s: float
    now_error_s: float
    recent_error_s: float
    ratio: float | None
    coverage: dict[str, float]
    passed: float | None


class HourState(msgspec.Struct, kw_only=True, frozen=True):
    """A site's jobs and their processors at a time (Unix seconds), soon after an hour began."""

    time: float
    queued_jobs: int
    running_jobs: int
    queued_cpus: int
    running_cpus: int


class LeftJobs(msgspec.Struct, kw_only=True):
    """Sums over the jobs that left the queue in the day or week from `begin` (Unix seconds, UTC), by the site's method.

    `held` of `bounded` jobs waited no longer than their bound of 0.9. Durations in seconds; no estimate counts
    as a prediction of none, a cancelled job as if it had started then. A prediction is the median of what is likely, so
    the medians can be compared, and the means cannot: few long waits make the mean of waits longer.
    """

    begin: float
    jobs: int = 0
    predicted_s: float = 0.0
    waited_s: float = 0.0
    error_s: float = 0.0
    bounded: int = 0
    held: int = 0
    predicted_median_s: float | None = None
    waited_median_s: float | None = None


class SitePast(msgspec.Struct, kw_only=True, frozen=True):
    """How a site has been, the oldest first: a week's hours, the days of four, the weeks (from Monday) of a year."""

    hours: list[HourState]
    days: list[LeftJobs]
    weeks: list[LeftJobs] = []


class WorkerState(msgspec.Struct, kw_only=True, frozen=True):
    """The worker that answers: its name, for how many seconds its oldest event has not been durable (0: all are), when
    its last checkpoint ended (Unix seconds; null: none yet), and how many messages it has rejected, by reason, since it
    started."""

    name: str
    undurable_s: float
    checkpoint: float | None = None
    rejected: dict[str, int] = {}


class PartitionState(msgspec.Struct, kw_only=True, frozen=True):
    """A partition as it is now: its jobs, and its processors and GPUs, in all and free.

    Nodes that it shares with others count in each. What is down, drained or reserved is not free. A job that may start
    in several queues in each of them.
    """

    name: str
    up: bool
    queued_jobs: int
    running_jobs: int
    cpus: int
    free_cpus: int
    gpus: int
    free_gpus: int


class SiteAnswer(Answer, tag="site", kw_only=True, frozen=True):
    """A site: its size, its live jobs by phase, its open queues, the accuracy by week, and the head of its queue.

    `work_left_s` is how long its processors need for what is left of the live jobs, as far as that is known. `queued`
    are those that have queued longest. `more` entries of `queued`, `weeks` and `queues` were left out, since the answer
    would not have fitted a message. `unknown_fields` counts the fields of its events that were ignored because no event
    has them, by name, since its worker started. `operations` are the last that operators did. `partitions` are left out
    where the site tells none. `answers` tell how right estimates were that were made at other moments than the
    submission, `recent` how right predictions were in the last week or two, and `while_waiting` how right the estimates
    in force were at fixed ages. `worker` is left out where none was asked.
    """

    cpus: int
    down_nodes: int
    live: LiveState
    held_jobs: int
    queued_cpus: int
    running_cpus: int
    work_left_s: float | None
    queues: list[str]
    method: str
    degraded: str | None
    history_jobs: int
    weeks: list[WeekAccuracy]
    queued: list[LiveJob]
    more: int = 0
    unknown_fields: dict[str, int] = {}
    operations: list[DoneOperation] = []
    partitions: list[PartitionState] | msgspec.UnsetType = msgspec.UNSET
    answers: list[AnswerAccuracy] = []
    recent: MethodAccuracy | msgspec.UnsetType = msgspec.UNSET
    while_waiting: list[WaitingAgeAccuracy] = []
    past: SitePast | msgspec.UnsetType = msgspec.UNSET
    worker: WorkerState | msgspec.UnsetType = msgspec.UNSET


UNKNOWN_SITE = "unknown_site"
"""The reason for which a worker refuses to answer about a site that it does not know."""

BUSY = "busy"
"""The reason for which a worker refuses when more questions wait than it can answer."""

QUOTA = "quota"
"""The reason for which it refuses when more questions of this asker wait than one may have waiting."""

LATER = frozenset({BUSY, QUOTA})
"""Reasons for which the same question may be answered later."""


class NoAnswer(Answer, tag="refused", kw_only=True, frozen=True):
    """A question that cannot be answered: `unknown_site`, `failed`, `too_large` (the answer would be), `busy` (too many
    questions wait), `quota` (too many of this asker do), or what is wrong with it, as in a dead letter (`malformed`,
    `unknown_type`, `version`, `wrong_key`); `detail` says more. After `busy` and `quota` it may be asked again later.
    """

    made_at: float = 0.0
    reason: str
    detail: str


AnyAnswer = WaitAnswer | JobsAnswer | JobAnswer | SiteAnswer | NoAnswer
