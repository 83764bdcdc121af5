"""Event records: job submissions, starts, ends and changes, and the capacity of the site."""

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
Rank = Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)]  # for comparison only: higher first
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Size = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Names = Annotated[list[Name], Meta(max_length=256)]
Alternatives = Annotated[list[Names], Meta(max_length=64)]  # lists of names; all of one list are required
Counts = Annotated[dict[Name, Count], Meta(max_length=64)]  # a count for each kind, such as {"a100": 4}
Version = Annotated[int, Meta(ge=1, le=VERSION)]
JobKey = tuple[str, int]  # a job within its site: (job id, attempt)


def _version() -> int:
    return VERSION


def _kind(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Event(msgspec.Struct, tag_field="type", tag=_kind, kw_only=True, frozen=True, omit_defaults=True):
    """Fields of every event: the site and the site time of the event. Fields with their default are omitted, except
    `v`."""

    kind: ClassVar[str] = ""  # the value of `type` in JSON
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
    """A job entered the queue. Absent fields are unknown.

    `queue` is the requested queue or partition; `partitions` lists all partitions that it may start in. `gpus` counts
    all GPUs, `gpu_types` those of a requested type. `memory` is the total of the job. `exclusive` requests whole nodes.
    A node is suitable if it has all features of one of the lists in `node_features`; a list with a feature that no pool
    of the site has, such as a node name, restricts nothing.

    `eligible` is the eligible time. A job with an unmet `dependency`, in the scheduler's notation, cannot start until
    an `alter` removes it or sets `eligible`; its wait starts then. A job with a `het_group` starts together with the
    others of the group. `array_size` is the size of a job array that is queued as one row, of which at most
    `array_limit` tasks run at once: each task starts with its own id and names the row's job as its `array`. A task
    that is submitted on its own names the array here.

    `late`: the source learned of the job when it started. Its wait is neither predicted nor scored. Methods that use
    waits only learn from it; methods that use the state at submission do not.

    `historical`: the job is part of the site's history, ingested before its live events. The methods learn from it, but
    no prediction or outcome is published, and it is not scored. `old` in addition: it is not predicted internally
    either, since no method would still use that prediction.

    `unlimited`: the job has no time limit. Without it and without a `walltime` the limit is unknown, and the
    `default_walltime` of its partition applies.

    `priority` (higher first) and `pending_reason` are the scheduler's. `job_type` (serial, parallel, interactive …),
    `job_class`, `script`, `arguments` and `network` (adaptor) are further characteristics of similar jobs (Smith,
    Foster and Taylor 1998, table 2).
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
    historical: bool = False
    old: bool = False
    unlimited: bool = False


class Start(JobEvent, kw_only=True, frozen=True):
    """A job started. `cpus`, `nodes` and `gpus` are the allocation, where the scheduler reports it.

    The allocation counts while the job runs; methods compare jobs by their requests. `partition` is where it runs. A
    task of an array that is queued as one row names that row's job as its `array`.
    """

    cpus: Size | None = None
    nodes: Count | None = None
    gpus: Count | None = None
    partition: Name | None = None
    array: Name | None = None


class End(JobEvent, kw_only=True, frozen=True):
    """A job ended. `state` is completed, failed, cancelled, timeout, preempted, node_fail or similar.

    The full run time of a preempted job is unknown, so no method learns from it.
    """

    state: Annotated[str, Meta(min_length=1, max_length=64)] = "completed"
    array: Name | None = None


class Cancel(JobEvent, kw_only=True, frozen=True):
    """A job left the queue without a start: its wait is censored. An array task is named as in `Start`."""

    array: Name | None = None


class Hold(JobEvent, kw_only=True, frozen=True):
    """A pending job was held: it cannot start until it is released."""


class Release(JobEvent, kw_only=True, frozen=True):
    """A held job was released."""


class Suspend(JobEvent, kw_only=True, frozen=True):
    """A running job was suspended; its run time stops. With `releases` its CPUs are free meanwhile."""

    releases: bool = True


class Resume(JobEvent, kw_only=True, frozen=True):
    """A suspended job was resumed. Its wait does not restart."""


class Alter(JobEvent, kw_only=True, frozen=True):
    """The request or the allocation of a job changed; absent fields are unchanged.

    For a running job `cpus`, `nodes` and `gpus` are its current allocation. `unlimited` removes the walltime. An empty
    `dependency`, `pending_reason` or `node_features` removes that field.
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
    """A running job was requeued; it continues as attempt `attempt + 1`.

    `state` is as in `End`; `historical`, of the new attempt, is as in `Submit`.
    """

    attempt: Annotated[int, Meta(ge=0, lt=1_000_000_000)] = 0  # the next attempt is a `Count` too
    state: Name | None = None
    historical: bool = False


class ExpectedStart(JobEvent, kw_only=True, frozen=True):
    """An external estimate, such as the scheduler's: a pending job is expected to start at `expected` (Unix seconds).

    The first one of each source `by` is scored beside the methods, under that name.
    """

    by: Name
    expected: Time


class Pool(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Identical nodes that the same partitions use; no node is in two pools.

    `nodes` includes those that are down, drained or reserved, each counted in one of the three. `cpus`, `gpus` (by
    type), `memory` (bytes) and `node_features` are of one node.
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
    """A partition, or a queue with nodes: its pools, and its access rules.

    `users`, `groups`, `accounts` and `qos`: None means all. A higher `tier` goes first. No job starts in a partition
    that is not `up`. `default_walltime` is the time limit of jobs without a requested one.
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
    """A limit on resources in use at once by jobs in `partition` and with `qos` (None: any).

    `per` is what jobs are grouped by: "user", "account", "group", or "all". With `name` only that user, account or
    group is limited. A resource that is None is not limited.
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
    """Nodes reserved from `start` to `end` (Unix seconds), for maintenance or for some users.

    `nodes` of each pool in `pools`; None means all nodes, and no pools means every pool. With `cpus` that many CPUs of
    these nodes are reserved instead of the nodes. Jobs that name the reservation, of its `users` and `accounts` and
    none of the denied ones, run in it; every other job must end before it.
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


class Heartbeat(Event, kw_only=True, frozen=True):
    """The source has reported all events up to `time`. It advances the site's time, and changes nothing else.

    A source sends it after some minutes without an event, so that the estimates of pending jobs follow the time.
    """


class Capacity(Event, kw_only=True, frozen=True):
    """The size of the site, the state of its nodes, or its partitions and limits changed.

    `cpus`, `nodes` and `down_nodes` are totals of the site. `pools`, `partitions`, `limits` and `reservations` are
    complete lists: each event replaces those of the previous one, also where they are absent.
    """

    cpus: Count
    nodes: Count | None = None
    down_nodes: Count = 0
    pools: Annotated[list[Pool], Meta(max_length=256)] = msgspec.field(default_factory=list)
    partitions: Annotated[list[Partition], Meta(max_length=256)] = msgspec.field(default_factory=list)
    limits: Annotated[list[Limit], Meta(max_length=1024)] = msgspec.field(default_factory=list)
    reservations: Annotated[list[Reservation], Meta(max_length=256)] = msgspec.field(default_factory=list)
