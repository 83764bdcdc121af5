"""Answers of workers to questions."""

from typing import Literal

import msgspec

from models.records.events import VERSION, Version
from models.records.operations import DoneOperation
from models.records.predictions import LiveState


class Answer(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """Fields of every answer: the question's `id`, the site, site time (Unix seconds), and the age of the data.

    `as_of` is the time of the last event included. `lag_messages` messages, each an event or a bundle, are not read
    yet; the consumer is `lag_s` seconds behind. `stale` explains why the answer is too old to rely on; null where it is
    not.
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
    """A changed request (changed fields only) that is expected to start `sooner_s` seconds earlier.

    Fewer CPUs or a shorter walltime help only if the job can run with them.
    """

    cpus: int | None = None
    walltime: float | None = None
    queue: str | None = None
    predicted_wait_s: float
    sooner_s: float


class Why(msgspec.Struct, kw_only=True, frozen=True):
    """Explain a wait; `text` is the explanation in words.

    `ahead_jobs` pending jobs are expected to start before the job, `ahead_in_queue` of them in its queue. They need
    `ahead_cpu_hours`, which takes the whole machine `ahead_work_s` seconds. At a site with partitions these count the
    jobs that share nodes with the job, and a job that uses a larger share of GPUs or memory than of CPUs counts by that
    share; `free_cpus` are CPUs in any case.
    """

    text: str
    free_cpus: int
    ahead_jobs: int = 0
    ahead_in_queue: int = 0
    ahead_cpu_hours: float = 0.0
    ahead_work_s: float | None = None
    instead: list[Alternative] = []


class MethodAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy of one method over the jobs that left the queue in an interval; a cancelled job counts as started
    then.

    Jobs without an estimate are left out. Durations are in seconds; shares are between 0 and 1, null without jobs.
    `coverage` is the share of waits within each upper bound.
    """

    method: str
    jobs: int
    mean_error_s: float | None
    mean_error_share: float | None
    within_factor_2: float | None
    coverage: dict[str, float]


class WaitAnswer(Answer, tag="wait", kw_only=True, frozen=True):
    """The expected wait of the job if submitted at `made_at`; null where the method gives no estimate.

    `cannot_run` explains why the job can never start at the site; absent where it can. `left_out` maps requested
    partitions in which it can never start to the reason. `recent` is the accuracy of the site's predictions in the last
    one to two weeks. `source` is "grid" where the worker was overloaded or is not ready: the answer is then the grid
    estimate of a shape that contains the job, without explanation. It is "median" for the recent median wait.
    `unverified` lists requested resources that the site's events do not mention. `low_confidence` explains why the
    estimate is uncertain; absent where it is not. `cautious_wait_s` is the wait by which sites are ranked: longer the
    less certain it is.
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
    p_immediate_start: float | msgspec.UnsetType = msgspec.UNSET
    cannot_run: str | msgspec.UnsetType = msgspec.UNSET
    left_out: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    recent: MethodAccuracy | msgspec.UnsetType = msgspec.UNSET
    low_confidence: str | msgspec.UnsetType = msgspec.UNSET
    unverified: str | msgspec.UnsetType = msgspec.UNSET
    cautious_wait_s: float | msgspec.UnsetType = msgspec.UNSET
    source: Literal["what-if", "grid", "median"] = "what-if"


class LiveJob(msgspec.Struct, kw_only=True, frozen=True):
    """A pending, held, running or suspended job, and its predictions.

    `expected_start` is the current estimate; null for a job that is held, runs already, or has none. After a later
    estimate than that at submission, `predicted_wait_s`, `predicted_start` and `bounds` are those of the latest one.
    `why` explains why the job is pending. `priority` and `pending_reason` are the scheduler's; `tasks_remaining` counts
    the pending tasks of a job array that is queued as one row, `tasks_running` its running ones. `expected_by` maps
    external estimates to the first start that each expected. `blocked_by` explains why no start is expected although
    there is room for the job, or although it is past its expected start; `expected_start` is null then. `eligible` is
    the eligible time, where that is later than `submit`. `user` is null where the events name none.
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
    tasks_remaining: int | msgspec.UnsetType = msgspec.UNSET
    tasks_running: int | msgspec.UnsetType = msgspec.UNSET
    expected_by: dict[str, float] | msgspec.UnsetType = msgspec.UNSET
    blocked_by: str | msgspec.UnsetType = msgspec.UNSET
    eligible: float | msgspec.UnsetType = msgspec.UNSET


class JobsAnswer(Answer, tag="jobs", kw_only=True, frozen=True):
    """The user's jobs in the order of submission; `more` were left out."""

    user: str
    jobs: list[LiveJob]
    more: int


class PublishedStart(msgspec.Struct, kw_only=True, frozen=True):
    """The expected start of a job, and `starts_by` for each probability, as published at `at` (Unix seconds)."""

    at: float
    start: float | None
    starts_by: dict[str, float]


class JobAnswer(Answer, tag="job", kw_only=True, frozen=True):
    """A job, its expected start, and why it is pending; `live` is null where no such job is pending or running.

    For an array whose pending tasks have all left, `live` is one of its running or suspended tasks. For a task that is
    pending in its array, it is the array.

    `text` is a summary in one line. `expected_start`, and `starts_by` for each probability, are Unix seconds, for a
    pending job. `ahead_jobs` pending jobs are expected to start before it. `estimates` are the published estimates: the
    prediction at submission, and each later one.
    """

    job: str
    text: str
    live: LiveJob | None = None
    expected_start: float | None = None
    starts_by: dict[str, float] = {}
    ahead_jobs: int = 0
    estimates: list[PublishedStart] = []


class WeekAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy of each method from `begin` to `end` (Unix seconds), about a week; the default method comes
    first."""

    begin: float
    end: float
    methods: list[MethodAccuracy]


class AnswerAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The accuracy of published numbers other than predictions at submission, over jobs whose wait is known.

    `kind` is one of these. `expected`: the last estimate of jobs with later estimates, over the lifetime of the site's
    state. `what-if`: the answer to a question just before each submission, since the method last changed. Since the
    worker started: `grid`, the grid estimate in force when a job of its shape arrived; `query`, the answer about a job
    that arrived within ten minutes. `predicted_error_s` is the mean error of the predictions at submission of the same
    jobs. `coverage` is as in `MethodAccuracy`.

    `regret_s` is the mean of the actual wait minus the shortest wait predicted at another site of the same worker
    process for the same request. It is an estimate, since the wait at another site is never observed; negative: the
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
    """The accuracy of the estimates in force for jobs still pending at the age `age_s`; seconds.

    `mean_error_s` is the mean absolute error of the remaining wait, `first_error_s` that of the estimates at
    submission. The baselines are `now_error_s` ("it starts now") and `recent_error_s` (the median remaining wait of the
    last 500 jobs that had waited as long). `ratio` is the error over that of the better baseline; null where that is
    zero. `coverage` is the share of jobs that started within each upper bound in force; `expired` is the share of
    bounds of 0.9 that were in the past, null without bounds.
    """

    age_s: float
    jobs: int
    mean_error_s: float
    first_error_s: float
    now_error_s: float
    recent_error_s: float
    ratio: float | None
    coverage: dict[str, float]
    expired: float | None


class HourState(msgspec.Struct, kw_only=True, frozen=True):
    """A site's jobs and their CPUs at a time (Unix seconds) soon after a full hour."""

    time: float
    queued_jobs: int
    running_jobs: int
    queued_cpus: int
    running_cpus: int


class DepartedJobs(msgspec.Struct, kw_only=True):
    """Sums over the jobs that left the queue in the day or week from `begin` (Unix seconds, UTC), for the site's
    method.

    `covered` of `bounded` jobs waited no longer than their upper bound of 0.9. Durations are in seconds. No estimate
    counts as a prediction of zero, a cancelled job as started then. Compare the medians, not the means: a prediction is
    a median, and few long waits raise the mean of the waits.
    """

    begin: float
    jobs: int = 0
    predicted_s: float = 0.0
    waited_s: float = 0.0
    error_s: float = 0.0
    bounded: int = 0
    covered: int = 0
    predicted_median_s: float | None = None
    waited_median_s: float | None = None


class SiteTrends(msgspec.Struct, kw_only=True, frozen=True):
    """A site's history, oldest first: hours of a week, days of four weeks, weeks (from Monday) of a year."""

    hours: list[HourState]
    days: list[DepartedJobs]
    weeks: list[DepartedJobs] = []


class WorkerState(msgspec.Struct, kw_only=True, frozen=True):
    """The worker that answers.

    `undurable_s` is the age of its oldest event that is not durable (0: none), `checkpoint` the end of its last
    checkpoint (Unix seconds; null: none yet), and `rejected` the number of rejected messages since its start, by
    reason.
    """

    name: str
    undurable_s: float
    checkpoint: float | None = None
    rejected: dict[str, int] = {}


class PartitionState(msgspec.Struct, kw_only=True, frozen=True):
    """The current state of a partition: its jobs, and its CPUs and GPUs, total and free.

    Nodes shared by several partitions count in each, and so does a job that may start in several queues. Nodes that are
    down, drained or reserved are not free.
    """

    name: str
    up: bool
    queued_jobs: int
    running_jobs: int
    cpus: int
    free_cpus: int
    gpus: int
    free_gpus: int


class OrderFit(msgspec.Struct, kw_only=True, frozen=True):
    """Fit of the queue order in which a site's schedule is simulated.

    A pair is a job that started and a similar one that could have started instead. `share` is the share of recent pairs
    that started in the order: 0.5 for an order that explains nothing, 1 for the scheduler's own. About the last 1000
    `pairs` count, of the scheduler's own priorities 300. `order` is "learned", or "priorities" where jobs start in the
    order of the scheduler's priorities. `kinds` are the shares of started jobs by their time limit. `text` states the
    shares.
    """

    order: Literal["learned", "priorities"]
    share: float
    pairs: int
    kinds: dict[str, float] = {}
    text: str = ""

    def __post_init__(self) -> None:
        """Set the text, also in the records of workers that do not send it."""
        kinds = ", ".join(f"{100 * share:.0f} % {kind}" for kind, share in self.kinds.items())
        msgspec.structs.force_setattr(self, "text", self.statement + (f" ({kinds})" if kinds else ""))

    @property
    def statement(self) -> str:
        """The share of all recent starts in words."""
        order = "the learned order explains" if self.order == "learned" else "the scheduler's priorities explain"
        return f"{order} {100 * self.share:.0f} % of recent starts"


class SiteAnswer(Answer, tag="site", kw_only=True, frozen=True):
    """A site: its size, live jobs by phase, open queues, accuracy by week, and the head of its queue.

    `remaining_work_s` is the remaining work of the live jobs, as far as known, divided by the CPUs. `queued` are the
    jobs that have been pending longest. `more` entries of `queued`, `weeks` and `queues` were left out to fit the
    message size. `unknown_fields` counts ignored event fields by name since the worker started. `operations` are the
    latest operator commands. `partitions` is absent where the site has none. `answers` is the accuracy of estimates
    made at other times than submission, `recent` that of predictions in the last one to two weeks, and `while_waiting`
    that of the estimates in force at fixed ages. `features` is the rank correlation of each feature with the waits of
    started jobs, 0 to 1, the largest first. `order_fit` is absent with too few starts. `worker` is absent where it was
    not requested.
    """

    cpus: int
    down_nodes: int
    live: LiveState
    held_jobs: int
    queued_cpus: int
    running_cpus: int
    remaining_work_s: float | None
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
    features: dict[str, float] = {}
    order_fit: OrderFit | msgspec.UnsetType = msgspec.UNSET
    trends: SiteTrends | msgspec.UnsetType = msgspec.UNSET
    worker: WorkerState | msgspec.UnsetType = msgspec.UNSET


UNKNOWN_SITE = "unknown_site"
"""Reason of a refusal: the site is not known to the worker."""

BUSY = "busy"
"""Reason of a refusal: too many pending questions."""

QUOTA = "quota"
"""Reason of a refusal: too many pending questions of this client."""

LATER = frozenset({BUSY, QUOTA})
"""Reasons of refusals after which the question may be repeated."""


class NoAnswer(Answer, tag="refused", kw_only=True, frozen=True):
    """A question without an answer.

    `reason` is `unknown_site`, `failed`, `too_large` (the answer), `busy` (too many pending questions), `quota` (too
    many of this client), or a reason of a dead letter (`malformed`, `unknown_type`, `version`, `wrong_key`); `detail`
    adds to it. After `busy` and `quota` the question may be repeated later.
    """

    made_at: float = 0.0
    reason: str
    detail: str


AnyAnswer = WaitAnswer | JobsAnswer | JobAnswer | SiteAnswer | NoAnswer
