"""What a simulated cluster is: its nodes, its rules, and the jobs that come to it."""

from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from models.arrays import Ints
from models.records import Limit, Partition, Pool, Reservation, Submit

Mask = NDArray[np.bool_]

CPUS, GPUS, MEMORY = range(3)
"""The columns of what a node has and a task needs."""


class ClusterJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of `tasks`, each of which needs `cpus`, `gpus` and `memory` (bytes) on one node.

    With `spread` no two tasks share a node. An `exclusive` job has each of its tasks on a node of its own, and whole
    nodes. It may start in any of its `partitions`; the first is the queue that it names. Times are whole seconds; it
    runs for `run`, but is killed at its `walltime`. It is withdrawn if it has not started `patience` after it came.
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
        """How long it holds its nodes."""
        return min(self.run, self.walltime)

    @property
    def nodes(self) -> int | None:
        """How many nodes it asks for; None where it asks for tasks alone."""
        return self.tasks if self.spread or self.exclusive else None

    @property
    def task(self) -> Ints:
        """What a task needs, by the columns of a node."""
        return np.array([self.cpus, self.gpus, self.memory], dtype=np.int64)

    def submission(self, site: str) -> Submit:
        """The event of its submission."""
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
    """What the priority of a queued job is the sum of, in points.

    `age`, reached in a straight line after `age_s` seconds in the queue; `fairshare` times 2^(−used/`share`), where
    `used` is the share of the cluster that its user has held, in a mean whose weights halve every `half_life_s`
    seconds; `size` times the share of the cluster that it asks for; those of its QOS in `qos`. The tier of a partition
    comes before all of these.
    """

    age: float = 1.0
    age_s: float = 7 * 86_400.0
    fairshare: float = 2.0
    half_life_s: float = 7 * 86_400.0
    share: float = 0.05
    size: float = 0.5
    qos: Mapping[str, float] = {}


class Window(msgspec.Struct, frozen=True):
    """A reservation, known from `announced` on (Unix seconds). Nothing that would run into it starts from then on."""

    announced: int
    reservation: Reservation


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, who may use them, and by which rules. Of a pool, those down, drained and reserved are its last nodes."""

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
        """What each node has, (nodes, 3), pool by pool."""
        rows = [
            (pool.cpus, sum(pool.gpus.values()), pool.memory or 0) for pool in self.pools for _ in range(pool.nodes)
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 3)

    def pool_of(self) -> list[Pool]:
        """The pool of each node."""
        return [pool for pool in self.pools for _ in range(pool.nodes)]

    def usable(self) -> Mask:
        """Which nodes may have jobs, (nodes,)."""
        flags: list[bool] = []
        for pool in self.pools:
            out = min(pool.down_nodes + pool.drained_nodes + pool.reserved_nodes, pool.nodes)
            flags += [True] * (pool.nodes - out) + [False] * out
        return np.array(flags, dtype=np.bool_)

    def reserved(self, reservation: Reservation) -> Mask:
        """Which nodes a reservation takes, (nodes,): the first of each of its pools."""
        flags: list[bool] = []
        for pool in self.pools:
            taken = 0
            if not reservation.pools or pool.name in reservation.pools:
                taken = pool.nodes if reservation.nodes is None else min(reservation.nodes, pool.nodes)
            flags += [True] * taken + [False] * (pool.nodes - taken)
        return np.array(flags, dtype=np.bool_)
