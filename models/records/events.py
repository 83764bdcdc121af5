"""What schedulers say: a job came, started, left, its request changed; what the machine consists of."""

import re
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

VERSION = 1

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Text = Annotated[str, Meta(max_length=1024)]
Time = Annotated[float, Meta(ge=0.0, le=1e11)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e11)]
Count = Annotated[int, Meta(ge=0, le=1_000_000_000)]
Rank = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]  # what is only compared: the higher goes first
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Size = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Names = Annotated[list[Name], Meta(max_length=256)]
Alternatives = Annotated[list[Names], Meta(max_length=64)]  # lists of names, of one of which all are wanted
Counts = Annotated[dict[Name, Count], Meta(max_length=64)]  # how many of each kind, such as {"a100": 4}
Version = Annotated[int, Meta(ge=1, le=VERSION)]
JobKey = tuple[str, int]  # a job within its site: (job id, attempt)


def _version() -> int:
    return VERSION


def _kind(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, tag_field="type", tag=_kind, kw_only=True, frozen=True, omit_defaults=True):
    """What every event says: which site, and when it happened there. What is as usual is left out, but for `v`."""

    kind: ClassVar[str] = ""  # as `type` says it in JSON: the class's name
    v: Version = msgspec.field(default_factory=_version)
    site: Name
    time: Time

    def __init_subclass__(cls) -> None:
        cls.kind = _kind(cls.__name__)


class JobEvent(Event, kw_only=True, frozen=True):
    """An event of one attempt at one job."""

    job: Name
    attempt: Count = 0

    @property
    def key(self) -> JobKey:
        """The job's identity within its site."""
        return (self.job, self.attempt)


class Submit(JobEvent, kw_only=True, frozen=True):
    """A job entered the queue with this request. What is left out is unknown.

    `queue` is the queue or partition it names; `partitions` are all it may start in, where it names several. `gpus` are
    of the types in `gpu_types`, as far as it names such. Memory is of the whole job. `exclusive` asks for whole nodes.
    Its nodes have to have all features of one of the lists in `node_features`; one that no pool of the site has, such
    as a node's own name, keeps it from none.

    `eligible` is when it may start. A job with a `dependency` that is not met, in the scheduler's own words, may not
    start until an `alter` takes it away or says when it is `eligible`; its wait counts from then. One with a
    `het_group` starts together with the others of that group. `array_size` is of a job array that queues as one row, of
    which at most `array_limit` tasks run at once: each task starts under an id of its own and names this job as its
    `array`. A task that is submitted by itself names it here.

    `late` says that the source learnt of it only when the job started: nothing is predicted of its wait, which is not
    scored either. It is learnt by methods that go by waits alone, and not by those that go by the state at submission.

    `past` says that it is of the site's history, which was sent before its events were followed: all is learnt from it
    as from any other, but no prediction and no outcome of it goes out, and none is scored. One that is `old` besides
    is not even predicted: what was said of it would teach nothing any more. What became of it is learnt.

    `unlimited` says that the job has no time limit; without it and without a `walltime` the limit is unknown, and the
    `default_walltime` of its partition applies.

    `priority` (higher goes first) and `pending_reason` are the scheduler's own. `job_type` (serial, parallel,
    interactive …), `job_class`, `script`, `arguments` and `network` (adaptor) are the further characteristics by which
    Smith, Foster and Taylor (1998, table 2) tell jobs that are alike.
    """

    user: Name | None = None
    group: Name | None = None
    account: Name | None = None
    queue: Name | None = None
    executable: Name | None = None
    cpus: Size = 1
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
    partitions: Names | None = None
    tasks: Count | None = None
    gpu_types: Counts | None = None
    exclusive: bool = False
    node_features: Alternatives | None = None
    qos: Name | None = None
    reservation: Name | None = None
    licences: Counts | None = None
    dependency: Text | None = None
    array: Name | None = None
    array_size: Size | None = None
    array_limit: Count | None = None
    het_group: Name | None = None
    priority: float | None = None
    pending_reason: Text | None = None
    late: bool = False
    past: bool = False
    old: bool = False
    unlimited: bool = False


class Start(JobEvent, kw_only=True, frozen=True):
    """A job got its processors; `cpus`, `nodes` and `gpus` are what was allocated, where the scheduler says so.

    While it runs these count; the request stays what the job is compared by. `partition` is where it runs. A task of an
    array that queues as one row names the job of that row as its `array`.
    """

    cpus: Size | None = None
    nodes: Count | None = None
    gpus: Count | None = None
    partition: Name | None = None
    array: Name | None = None


class End(JobEvent, kw_only=True, frozen=True):
    """A job left its processors. `state` is completed, failed, cancelled, timeout, preempted, node_fail or the like.

    Of one that was preempted it is not known how long it would have run: nothing is learnt of that.
    """

    state: Annotated[str, Meta(min_length=1, max_length=64)] = "completed"
    array: Name | None = None


class Cancel(JobEvent, kw_only=True, frozen=True):
    """A job left the queue without having started: its wait is censored. A task of an array is named as in a start."""

    array: Name | None = None


class Hold(JobEvent, kw_only=True, frozen=True):
    """A queued job may not start until it is released."""


class Release(JobEvent, kw_only=True, frozen=True):
    """A held job may start again."""


class Suspend(JobEvent, kw_only=True, frozen=True):
    """A running job stands still; its run time does too. With `releases` others may have its processors meanwhile."""

    releases: bool = True


class Resume(JobEvent, kw_only=True, frozen=True):
    """A suspended job runs on. Its wait does not begin again."""


class Alter(JobEvent, kw_only=True, frozen=True):
    """A job's request was changed, or what it runs on; a field that is absent stays as it was.

    Once it runs, `cpus`, `nodes` and `gpus` are what it has now. `unlimited` takes the walltime away. An empty
    `dependency`, `pending_reason` or `node_features` says that there is none any more.
    """

    account: Name | None = None
    queue: Name | None = None
    partitions: Names | None = None
    cpus: Size | None = None
    nodes: Count | None = None
    tasks: Count | None = None
    gpus: Count | None = None
    gpu_types: Counts | None = None
    node_features: Alternatives | None = None
    memory: Bytes | None = None
    walltime: Seconds | None = None
    unlimited: bool = False
    eligible: Time | None = None
    qos: Name | None = None
    reservation: Name | None = None
    dependency: Text | None = None
    array_limit: Count | None = None
    priority: float | None = None
    pending_reason: Text | None = None


class Requeue(JobEvent, kw_only=True, frozen=True):
    """A running job went back into the queue; it goes on as attempt `attempt + 1`. `state` says why, as in `End`, and
    `past`, of the attempt that begins, is that of a submit.
    """

    state: Name | None = None
    past: bool = False


class ExpectedStart(JobEvent, kw_only=True, frozen=True):
    """Somebody else, such as the scheduler itself, expects a queued job to start at `expected` (Unix seconds).

    The first that `by` says of a job is scored beside the methods' predictions, under that name.
    """

    by: Name
    expected: Time


class Pool(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Nodes that are alike and that the same partitions use: none is in two pools.

    Those down, drained and reserved are among `nodes`, each counted once.
    `cpus`, `gpus` (by type), `memory` (bytes) and `node_features`, by which jobs choose nodes, are of one node.
    """

    name: Name
    nodes: Count
    cpus: Count
    gpus: Counts = {}
    memory: Bytes | None = None
    down_nodes: Count = 0
    drained_nodes: Count = 0
    reserved_nodes: Count = 0
    node_features: Names = []


class Partition(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A partition, or queue with nodes: which pools it uses, and who may use it for what.

    Of `users`, `groups`, `accounts` and `qos` None means all. A higher `tier` goes first. A partition that is not `up`
    starts no job. `default_walltime` is the time limit of jobs that request none.
    """

    name: Name
    pools: Names
    up: bool = True
    default: bool = False
    tier: Rank = 0
    max_walltime: Seconds | None = None
    max_nodes: Count | None = None
    users: Names | None = None
    groups: Names | None = None
    accounts: Names | None = None
    qos: Names | None = None
    denied_accounts: Names | None = None
    denied_qos: Names | None = None
    default_walltime: Seconds | None = None


class Limit(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """At most so much may run at once, of jobs in `partition` and with `qos` (None: of any).

    `per` says whose jobs are counted together: those of one "user", "account" or "group", or "all". With `name` it is
    of that one alone. What is None is not limited.
    """

    per: Name
    name: Name | None = None
    partition: Name | None = None
    qos: Name | None = None
    cpus: Count | None = None
    gpus: Count | None = None
    nodes: Count | None = None
    memory: Bytes | None = None
    jobs: Count | None = None


class Reservation(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Nodes that are kept free from `start` to `end` (Unix seconds), for maintenance or for some.

    `nodes` of each of `pools`; None means all of them, no pools means every pool. With `cpus` it takes that many CPUs
    of these nodes, and not the nodes. Jobs that name the reservation, of its `users` and `accounts`, and not of the
    denied ones, run in it; every other job has to have ended by then.
    """

    name: Name
    start: Time
    end: Time
    pools: Names = []
    nodes: Count | None = None
    users: Names | None = None
    accounts: Names | None = None
    maintenance: bool = False
    cpus: Count | None = None
    denied_users: Names | None = None
    denied_accounts: Names | None = None


class Capacity(Event, kw_only=True, frozen=True):
    """The site's size changed, or nodes went down or came back, or what its partitions may do.

    `cpus`, `nodes` and `down_nodes` are of the whole site. `pools`, `partitions`, `limits` and `reservations` are all
    that there are: each event replaces what the one before said, also where they are left out.
    """

    cpus: Count
    nodes: Count | None = None
    down_nodes: Count = 0
    pools: Annotated[list[Pool], Meta(max_length=256)] = msgspec.field(default_factory=list)
    partitions: Annotated[list[Partition], Meta(max_length=256)] = msgspec.field(default_factory=list)
    limits: Annotated[list[Limit], Meta(max_length=1024)] = msgspec.field(default_factory=list)
    reservations: Annotated[list[Reservation], Meta(max_length=256)] = msgspec.field(default_factory=list)
