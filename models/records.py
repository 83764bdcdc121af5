"""The records on the wire: events in; predictions, outcomes and dead letters out.

Times are Unix seconds (UTC), durations seconds, memory bytes. Every record carries the format's version `v`. Unknown
fields are ignored, so a later writer does not break an earlier reader. They are in one file because together they are
the format, which `queuecast schema` prints.
"""

from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

VERSION = 1

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(max_length=1024)]
Time = Annotated[float, Meta(ge=0.0, le=1e11)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e11)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Version = Annotated[int, Meta(ge=1, le=VERSION)]

JobKey = tuple[str, int]
"""A job within its site: (job id, attempt)."""


class Event(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """What every event says: which site, and when it happened there."""

    kind: ClassVar[str] = ""

    v: Version = VERSION
    site: Name
    time: Time


class JobEvent(Event, kw_only=True, frozen=True):
    """An event of one attempt at one job."""

    job: Name
    attempt: Count = 0

    @property
    def key(self) -> JobKey:
        """The job's identity within its site."""
        return (self.job, self.attempt)


class Submit(JobEvent, tag="submit", kw_only=True, frozen=True):
    """A job entered the queue with this request.

    `job_type` (serial, parallel, interactive …), `job_class`, `script`, `arguments` and `network` (adaptor) are the
    further characteristics by which Smith, Foster and Taylor (1998, table 2) tell jobs that are alike.
    """

    kind: ClassVar[str] = "submit"

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
    eligible: Time | None = None
    job_type: Name | None = None
    job_class: Name | None = None
    script: Name | None = None
    arguments: Name | None = None
    network: Name | None = None


class Start(JobEvent, tag="start", kw_only=True, frozen=True):
    """A job got its processors; `cpus` is what was allocated, where the scheduler says so.

    While it runs that counts; the request stays what the job is compared by.
    """

    kind: ClassVar[str] = "start"

    cpus: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None


class End(JobEvent, tag="end", kw_only=True, frozen=True):
    """A job left its processors."""

    kind: ClassVar[str] = "end"

    state: Annotated[str, Meta(min_length=1, max_length=64)] = "completed"


class Cancel(JobEvent, tag="cancel", kw_only=True, frozen=True):
    """A job left the queue without having started: its wait is censored."""

    kind: ClassVar[str] = "cancel"


class Hold(JobEvent, tag="hold", kw_only=True, frozen=True):
    """A queued job may not start until it is released."""

    kind: ClassVar[str] = "hold"


class Release(JobEvent, tag="release", kw_only=True, frozen=True):
    """A held job may start again."""

    kind: ClassVar[str] = "release"


class Alter(JobEvent, tag="alter", kw_only=True, frozen=True):
    """A job's request was changed; a field that is absent stays as it was."""

    kind: ClassVar[str] = "alter"

    queue: Name | None = None
    cpus: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    nodes: Count | None = None
    walltime: Seconds | None = None
    eligible: Time | None = None


class Requeue(JobEvent, tag="requeue", kw_only=True, frozen=True):
    """A running job went back into the queue; it goes on as attempt `attempt + 1`."""

    kind: ClassVar[str] = "requeue"


class Capacity(Event, tag="capacity", kw_only=True, frozen=True):
    """The site's size changed, or nodes went down or came back."""

    kind: ClassVar[str] = "capacity"

    cpus: Count
    nodes: Count | None = None
    down_nodes: Count = 0


AnyEvent = Submit | Start | End | Cancel | Hold | Release | Alter | Requeue | Capacity


class Operation(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """A change that an operator makes to a site, sent among its events: who made it, when (Unix seconds), and why."""

    v: Version = VERSION
    site: Name
    time: Time
    by: Name
    why: Text = ""


class ForgetJob(Operation, tag="operator_forget", kw_only=True, frozen=True):
    """A live job is taken out: neither scored nor learnt, and no later event revives it."""

    job: Name
    attempt: Count = 0


class SetCapacity(Operation, tag="operator_capacity", kw_only=True, frozen=True):
    """The site's size, until its next `capacity` event."""

    cpus: Count
    nodes: Count | None = None
    down_nodes: Count = 0


class Rebuild(Operation, tag="operator_rebuild", kw_only=True, frozen=True):
    """The state and the histories are made anew from what the topic still has of the site's events."""


AnyOperation = ForgetJob | SetCapacity | Rebuild


class DoneOperation(msgspec.Struct, kw_only=True, frozen=True):
    """An operation as a site remembers it: when it came to the broker (Unix seconds), and what was done, in words."""

    type: str
    at: float
    by: str
    why: str
    done: str
    rebuilt: bool = False


class Prediction(msgspec.Struct, kw_only=True, frozen=True):
    """How long a job is expected to wait and to run, as known at `made_at`.

    One record a (site, job, attempt, made_at, method); repeats are identical. The first is made when the job is
    submitted. Later ones, for a job that still queues, have `waited_s`: for how long it had waited by then; their
    `predicted_wait_s` and bounds are of the whole wait. `predicted_wait_s` is null where no
    estimate is better than a bad one, and `reason` says why. `bounds` maps a probability to the seconds that the wait
    is at most, with that probability; `run_interval` is where the method for run times expects these to lie.
    `starts_at_once` is the probability that the wait is under a minute; it is left out where the method does not tell.
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


class Outcome(msgspec.Struct, kw_only=True, frozen=True):
    """A prediction beside what happened.

    Written when the job starts or is cancelled in the queue (`actual_run_s` null), and again when it ends. `error_s`
    is predicted minus actual wait, with a withheld estimate counted as zero. `censored` marks a job that was
    cancelled in the queue: its wait is how long it had waited by then.
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
    censored: bool = False


class DeadLetter(msgspec.Struct, kw_only=True, frozen=True):
    """A message that could not be processed, with the reason; `value` is its beginning, escaped.

    `quarantine` marks an event that was held apart: it is well formed, but its time or size is not believed.
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
    quarantine: bool = False


# Questions and their answers, and the estimates that are published without a question.


class LiveState(msgspec.Struct, kw_only=True, frozen=True):
    """A site's live state in three numbers: jobs that queue and that run, and processors that are free."""

    queued_jobs: int
    running_jobs: int
    free_cpus: int


class StandingEstimate(msgspec.Struct, kw_only=True, frozen=True):
    """How long a job of this shape would wait if it came at `made_at`; the latest record of a (site, shape) counts.

    `cpus` are the shape's, `walltime` seconds, `queue` null at sites without queues; `as_of` and what follows is as in
    `Answer`, the rest as in `Prediction`.
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
    lag_events: int = 0
    lag_s: float = 0.0
    stale: str | None = None
    starts_at_once: float | msgspec.UnsetType = msgspec.UNSET


class Question(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """What every question says: to which site it goes, and the `id` that its answer repeats."""

    v: Version = VERSION
    id: Name
    site: Name


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


class JobsQuestion(Question, tag="jobs", kw_only=True, frozen=True):
    """What was predicted of this user's jobs that queue or run now? The answer has at most `most` of them."""

    user: Name
    most: Annotated[int, Meta(ge=1, le=1000)] = 100


class SiteQuestion(Question, tag="site", kw_only=True, frozen=True):
    """How is the site, how good were its predictions, and what of the jobs that have queued longest?"""

    most: Annotated[int, Meta(ge=0, le=1000)] = 20


AnyQuestion = WaitQuestion | JobsQuestion | SiteQuestion


class Answer(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """What every answer says: the question's `id` and site, the site's time (Unix seconds), and how old it is.

    `as_of` is the time of the last event that it is based on. `lag_events` further ones have come and are not read yet;
    the reading is `lag_s` seconds behind. `stale` says why the answer is too old to go by, null where it is not.
    """

    v: Version = VERSION
    id: str
    site: str
    made_at: float
    as_of: float | None = None
    lag_events: int = 0
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
    `ahead_cpu_hours`, which is `ahead_drain_s` seconds of the whole machine.
    """

    text: str
    free_cpus: int
    ahead_jobs: int = 0
    ahead_in_queue: int = 0
    ahead_cpu_hours: float = 0.0
    ahead_drain_s: float | None = None
    instead: list[Alternative] = []


class WaitAnswer(Answer, tag="wait", kw_only=True, frozen=True):
    """How long this job would wait if it came at `made_at`; null where no estimate is better than a bad one."""

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


class LiveJob(msgspec.Struct, kw_only=True, frozen=True):
    """A job that queues (or is held) or runs, and what was predicted of it when it was submitted.

    `expected_start` is when it will start as things are now; null where it is held, runs already, or is unknown. Where
    it was estimated anew while it queued, `predicted_wait_s`, `predicted_start` and `bounds` are of the last such
    estimate. `why` says in words why it still queues.
    """

    job: str
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


class JobsAnswer(Answer, tag="jobs", kw_only=True, frozen=True):
    """The user's jobs in the order of submission; `more` were left out."""

    user: str
    jobs: list[LiveJob]
    more: int


class MethodAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """How one method did over the jobs that left the queue in some time; a cancelled one as if it had started then.

    Seconds; shares within 0 and 1, null where there was no job (`coverage`: the share of waits within each bound).
    """

    method: str
    jobs: int
    mean_error_s: float | None
    mean_error_share: float | None
    within_factor_2: float | None
    coverage: dict[str, float]


class WeekAccuracy(msgspec.Struct, kw_only=True, frozen=True):
    """The methods' accuracy in about a week, from `begin` to `end` (Unix seconds); the default method comes first."""

    begin: float
    end: float
    methods: list[MethodAccuracy]


class SiteAnswer(Answer, tag="site", kw_only=True, frozen=True):
    """A site: its size, its live jobs by phase, its open queues, the accuracy by week, and the head of its queue.

    `drain_s` is how long its processors need for what is left of the live jobs, as far as that is known. `queued` are
    those that have queued longest. `more` entries of `queued`, `weeks` and `queues` were left out, since the answer
    would not have fitted a message. `unknown_fields` counts the fields of its events that were ignored because no event
    has them, by name, since its worker started. `operations` are the last that operators did.
    """

    cpus: int
    down_nodes: int
    live: LiveState
    held_jobs: int
    queued_cpus: int
    running_cpus: int
    drain_s: float | None
    queues: list[str]
    method: str
    degraded: str | None
    history_jobs: int
    weeks: list[WeekAccuracy]
    queued: list[LiveJob]
    more: int = 0
    unknown_fields: dict[str, int] = {}
    operations: list[DoneOperation] = []


UNKNOWN_SITE = "unknown_site"
"""The reason for which a worker refuses to answer about a site that it does not know."""


class NoAnswer(Answer, tag="refused", kw_only=True, frozen=True):
    """A question that cannot be answered: `unknown_site`, `failed`, `too_large` (the answer would be), or what is wrong
    with it, as in a dead letter (`malformed`, `unknown_type`, `version`, `wrong_key`); `detail` says more.
    """

    made_at: float = 0.0
    reason: str
    detail: str


AnyAnswer = WaitAnswer | JobsAnswer | SiteAnswer | NoAnswer
