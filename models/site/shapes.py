"""Job shapes of a site's cached estimates: a grid of sizes, walltimes and queues.

At a site with a topology the queues are its partitions, and those with GPUs have shapes that request GPUs.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from models.records import Partition, Pool

if TYPE_CHECKING:
    from models.site.job import Job
    from models.site.topology import Topology

HOUR_S = 3600.0
WALLTIMES = (600.0, HOUR_S, 4 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S)
MOST_QUEUES = 8  # maximum number of queues with separate shapes


class Shape(NamedTuple):
    """Request of a considered job: CPUs, walltime in seconds, the queue, if any, and GPUs."""

    cpus: int
    walltime: float
    queue: str | None = None
    gpus: int = 0

    def job(self, now: float) -> "Job":
        """Return a job of this shape that is submitted now, with a key that no submitted job has."""
        from models.site.job import Job  # imports numpy, which readers of estimates do not need

        return Job("", 0, now, queue=self.queue, cpus=self.cpus, walltime=self.walltime, gpus=self.gpus)


def sizes(cpus: int, most: int | None = None) -> list[int]:
    """Return the powers of two up to the CPUs of a site, and the total number, so that each job that fits has a size.

    >>> sizes(100), sizes(100, most=16), sizes(0)
    ([1, 2, 4, 8, 16, 32, 64, 100], [1, 2, 4, 8, 16], [])
    """
    limit = cpus if most is None else min(cpus, most)
    powers = [1 << exponent for exponent in range(limit.bit_length())]
    return powers if limit < 1 or powers[-1] == limit else [*powers, limit]


def grid(cpus: Iterable[int], walltimes: Iterable[float], queues: Sequence[str | None]) -> list[Shape]:
    """Return all combinations; a site without queues has the queue None."""
    return [Shape(size, walltime, queue) for queue in queues or (None,) for size in cpus for walltime in walltimes]


def partition_grid(
    topology: "Topology", walltimes: Sequence[float], most: int | None = None, names: Sequence[str] = ()
) -> list[Shape]:
    """Return the shapes of each partition that is up, or of `names` only; those with GPUs have a proportional share of
    CPUs.

    Shapes have at most `most` CPUs, and no walltime above the partition's maximum, which replaces them if all are
    above.
    """
    found = []
    for name, partition in topology.partitions.items():
        if partition.up and (not names or name in names):
            pools = [topology.pools[place] for place in topology.pools_of(name)]
            allowed = _allowed(partition, walltimes)
            sized = [*((cpus, 0) for cpus in _plain_sizes(pools, most)), *_gpu_sizes(pools, most)]
            found += [Shape(cpus, walltime, name or None, gpus) for cpus, gpus in sized for walltime in allowed]
    return found


def _allowed(partition: Partition, walltimes: Sequence[float]) -> Sequence[float]:
    longest = partition.max_walltime
    if longest is None:
        return walltimes
    return [walltime for walltime in walltimes if walltime <= longest] or [longest]


def _plain_sizes(pools: Sequence[Pool], most: int | None) -> list[int]:
    """Return CPU counts without GPUs, if there are nodes without GPUs."""
    without = [pool for pool in pools if not sum(pool.gpus.values())]
    return sizes(sum(pool.nodes * pool.cpus for pool in without), most)


def _gpu_sizes(pools: Sequence[Pool], most: int | None) -> Iterator[tuple[int, int]]:
    """Yield CPUs and GPUs, in powers of two up to all GPUs."""
    cards = sum(pool.nodes * sum(pool.gpus.values()) for pool in pools)
    cpus = sum(pool.nodes * pool.cpus for pool in pools if sum(pool.gpus.values()))
    for gpus in sizes(cards):
        beside = max(cpus * gpus // cards, 1)
        if most is None or beside <= most:
            yield beside, gpus


def covering(
    shapes: Iterable[Shape], cpus: int, walltime: float | None, queue: str | None, gpus: int = 0
) -> Shape | None:
    """Return the smallest shape that a job fits into; None if there is none.

    A queue without shapes uses those of all queues. A job longer than every shape uses the longest ones. A job without
    GPUs uses a shape with GPUs only if it fits into no other.

    >>> covering(grid(sizes(100), WALLTIMES, ()), cpus=5, walltime=1800.0, queue=None)
    Shape(cpus=8, walltime=3600.0, queue=None, gpus=0)
    """
    wide = [shape for shape in shapes if shape.cpus >= cpus and shape.gpus >= gpus]
    wide = [shape for shape in wide if shape.queue == queue] or wide
    long = [shape for shape in wide if shape.walltime >= (walltime or 0.0)]
    if walltime is None or not long:
        longest = max((shape.walltime for shape in wide), default=0.0)
        long = [shape for shape in wide if shape.walltime == longest]
    return min(long, key=lambda shape: (shape.gpus, shape.cpus, shape.walltime, shape.queue or ""), default=None)
