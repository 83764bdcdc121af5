"""Questions of clients to workers."""

from typing import Annotated

import msgspec
from msgspec import Meta

from models.records.events import VERSION, Alternatives, Bytes, Count, Counts, Name, Names, Seconds, Version


class Question(msgspec.Struct, tag_field="type", kw_only=True, frozen=True):
    """Fields of every question: the site and the `id` that its answer repeats.

    `client_id` identifies the client: clients take turns, and questions without it count as one client's. `wait_s` is
    the client's time-out in seconds (default: 2), after which the worker drops the question.
    """

    v: Version = VERSION
    id: Name
    site: Name
    client_id: Name | None = None
    wait_s: Seconds | None = None


class WaitQuestion(Question, tag="wait", kw_only=True, frozen=True):
    """Request the wait of a job if it were submitted now. The fields are those of a submit event.

    With `why` the answer explains the wait and lists alternatives that start earlier; that takes several times longer.
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
    """Request the predictions for a user's pending and running jobs, at most `limit` of them."""

    user: Name
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class JobQuestion(Question, tag="job", kw_only=True, frozen=True):
    """Request the expected start of a pending, held or running job; of several attempts the last one."""

    job: Name


class SiteQuestion(Question, tag="site", kw_only=True, frozen=True):
    """Request a site's state, its accuracy, and its `limit` longest pending jobs.

    With `trends` the answer contains the site's history of the last week, month and year.
    """

    limit: Annotated[int, Meta(ge=0, le=1000)] = 20
    trends: bool = False


AnyQuestion = WaitQuestion | JobsQuestion | JobQuestion | SiteQuestion
