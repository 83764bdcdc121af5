"""A simulated cluster: nodes, rules and jobs."""

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.arrays import Ints
from models.records import Limit, Partition, Pool, Reservation, Submit

Mask = NDArray[np.bool_]

CPUS, GPUS, MEMORY = range(3)
"""Columns of the resources of a node or a task."""


class ClusterJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of `tasks`, each of which needs `cpus`, `gpus` and `memory` (bytes) on one node.

    With `spread`, each task has a separate node. An `exclusive` job has one task per node, and whole nodes. The job may
    start in any of its `partitions`; the first is the queue of its events. Times are whole seconds. The job runs for
    `run`, but is killed at its `walltime`. It is cancelled if it has not started `patience` after its submission.
    """

    job: str
    submit: int
    partitions: tuple[str, ...]
    run: int
    walltime: int
    tasks: int = 1
    cpus: int = 1
    gpus: int = 0
    memory: int = 0
    gpu_type: str | None = None
    spread: bool = False
    exclusive: bool = False
    user: str | None = None
    group: str | None = None
    account: str | None = None
    qos: str | None = None
    executable: str | None = None
    patience: int | None = None

    @property
    def seconds(self) -> int:
        """Duration of the job on its nodes (s)."""
        return min(self.run, self.walltime)

    @property
    def nodes(self) -> int | None:
        """Number of requested nodes; None if the job requests only tasks."""
        return self.tasks if self.spread or self.exclusive else None

    @property
    def task(self) -> Ints:
        """Resources of a task, by the columns of a node."""
        return np.array([self.cpus, self.gpus, self.memory], dtype=np.int64)

    def submission(self, site: str) -> Submit:
        """Return the submit event."""
        gpus = self.tasks * self.gpus
        return Submit(
            site=site,
            time=float(self.submit),
            job=self.job,
            user=self.user,
            group=self.group,
            account=self.account,
            queue=self.partitions[0],
            partitions=list(self.partitions) if len(self.partitions) > 1 else None,
            executable=self.executable,
            cpus=self.tasks * self.cpus,
            nodes=self.nodes,
            tasks=self.tasks,
            gpus=gpus,
            gpu_types={self.gpu_type: gpus} if self.gpu_type is not None and gpus else None,
            memory=self.tasks * self.memory or None,
            walltime=float(self.walltime),
            exclusive=self.exclusive,
            qos=self.qos,
        )


class Factors(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of the priority of a pending job, in points; the priority is their sum.

    `age` grows linearly, up to its value after `age_s` seconds in the queue. `fairshare` is multiplied by
    2^(−used/`share`), where `used` is the user's mean share of the cluster, with weights that halve every
    `half_life_s` seconds. `size` is multiplied by the requested share of the cluster. `qos` has points by QOS. The
    tier of a partition has precedence over the priority.
    """

    age: float = 1.0
    age_s: float = 7 * 86_400.0
    fairshare: float = 2.0
    half_life_s: float = 7 * 86_400.0
    share: float = 0.05
    size: float = 0.5
    qos: Mapping[str, float] = {}


class Window(msgspec.Struct, frozen=True):
    """A reservation announced at `announced` (Unix seconds); from then on, no job that would overlap with it starts."""

    announced: int
    reservation: Reservation


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, partitions and rules. The down, drained and reserved nodes of a pool are its last ones."""

    pools: tuple[Pool, ...]
    partitions: tuple[Partition, ...]
    limits: tuple[Limit, ...] = ()
    factors: Factors = Factors()
    windows: tuple[Window, ...] = ()

    @property
    def cpus(self) -> int:
        """CPUs of all nodes."""
        return sum(pool.nodes * pool.cpus for pool in self.pools)

    def sizes(self) -> Ints:
        """Return the resources of each node, (nodes, 3), by pool."""
        rows = [
            (pool.cpus, sum(pool.gpus.values()), pool.memory or 0) for pool in self.pools for _ in range(pool.nodes)
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def pool_of(self) -> list[Pool]:
        """Return the pool of each node."""
        return [pool for pool in self.pools for _ in range(pool.nodes)]

    def usable(self) -> Mask:
        """Return a mask of the usable nodes, (nodes,)."""
        flags: list[bool] = []
        for pool in self.pools:
            out = min(pool.down_nodes + pool.drained_nodes + pool.reserved_nodes, pool.nodes)
            flags += [True] * (pool.nodes - out) + [False] * out
        return np.array(flags, dtype=np.bool_)

    def reserved(self, reservation: Reservation) -> Mask:
        """Return a mask of the reserved nodes, (nodes,): the first ones of each pool of the reservation."""
        flags: list[bool] = []
        for pool in self.pools:
            taken = 0
            if not reservation.pools or pool.name in reservation.pools:
                taken = pool.nodes if reservation.nodes is None else min(reservation.nodes, pool.nodes)
            flags += [True] * taken + [False] * (pool.nodes - taken)
        return np.array(flags, dtype=np.bool_)
