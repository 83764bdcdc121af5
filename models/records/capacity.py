"""What a machine consists of: its size, its nodes in pools, its partitions, and what limits their use.

A pool is a set of nodes that are alike and that the same partitions use, so no node is in two pools: partitions that
share nodes name the same pool. A site that tells neither is a number of processors.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from models.records.events import Event
from models.records.fields import Bytes, Count, Counts, Name, Names, Rank, Seconds, Time


class Pool(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Nodes that are alike. Those down, drained and reserved are among `nodes`, each counted once.

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
    starts no job.
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

    `nodes` of each of `pools`; None means all of them, no pools means every pool. Jobs that name the reservation, of
    its `users` and `accounts`, run in it; every other job has to have ended by then.
    """

    name: Name
    start: Time
    end: Time
    pools: Names = []
    nodes: Count | None = None
    users: Names | None = None
    accounts: Names | None = None
    maintenance: bool = False


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
