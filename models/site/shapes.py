"""The shapes of jobs for which a site's estimates stand: sizes, walltimes and queues, as a grid."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from models.site.state import Job

HOUR_S = 3600.0
WALLTIMES = (600.0, HOUR_S, 4 * HOUR_S, 12 * HOUR_S, 24 * HOUR_S)


class Shape(NamedTuple):
    """What a considered job asks for: processors, walltime in seconds, and the queue, where the site has such."""

    cpus: int
    walltime: float
    queue: str | None = None

    def job(self, now: float) -> Job:
        """A job of this shape that comes now, with a key that no submitted job has."""
        return Job("", 0, now, queue=self.queue, cpus=self.cpus, walltime=self.walltime)


def sizes(cpus: int, most: int | None = None) -> list[int]:
    """The powers of two up to a site's processors, and all of these, so that every job that fits has a size above it.

    >>> sizes(100), sizes(100, most=16), sizes(0)
    ([1, 2, 4, 8, 16, 32, 64, 100], [1, 2, 4, 8, 16], [])
    """
    limit = cpus if most is None else min(cpus, most)
    powers = [1 << exponent for exponent in range(limit.bit_length())]
    return powers if limit < 1 or powers[-1] == limit else [*powers, limit]


def grid(cpus: Iterable[int], walltimes: Iterable[float], queues: Sequence[str | None]) -> list[Shape]:
    """Every combination; a site without queues has the queue None."""
    return [Shape(size, walltime, queue) for queue in queues or (None,) for size in cpus for walltime in walltimes]


def covering(shapes: Iterable[Shape], cpus: int, walltime: float | None, queue: str | None) -> Shape | None:
    """The least shape that a job fits into; of a queue that has none, the least of any; None where it fits nowhere.

    A job longer than every shape is taken for one as long as the longest.

    >>> covering(grid(sizes(100), WALLTIMES, ()), cpus=5, walltime=1800.0, queue=None)
    Shape(cpus=8, walltime=3600.0, queue=None)
    """
    wide = [shape for shape in shapes if shape.cpus >= cpus]
    long = [shape for shape in wide if shape.walltime >= (walltime or 0.0)]
    if walltime is None or not long:
        longest = max((shape.walltime for shape in wide), default=0.0)
        long = [shape for shape in wide if shape.walltime == longest]
    same = [shape for shape in long if shape.queue == queue] or long
    return min(same, key=lambda shape: (shape.cpus, shape.walltime, shape.queue or ""), default=None)
