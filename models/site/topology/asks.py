"""What a job asks of the nodes: what decides where it can run and how much it takes there."""

from typing import NamedTuple

from models.site.job import Job


class Ask(NamedTuple):
    """What a job asks for, but for its times, its user and its account; many jobs ask for the same.

    `partitions` are the names of those that it may start in, as far as it names any. Memory is bytes of the whole job.
    """

    partitions: tuple[str, ...] = ()
    cpus: int = 1
    nodes: int | None = None
    gpus: int = 0
    gpu_types: tuple[str, ...] = ()
    memory: int = 0
    exclusive: bool = False
    group: str | None = None
    qos: str | None = None
    reservation: str | None = None
    tasks: int | None = None
    node_features: tuple[tuple[str, ...], ...] = ()


def ask_of(job: Job, partition: str | None = None, cpus: int | None = None) -> Ask:
    """What a job asks for, or of one that runs in a partition; `cpus`: those that count, where others do. 1 µs."""
    rare = job.extras
    types = rare.gpu_types or {}
    if partition is not None:
        named: tuple[str, ...] = (partition,)
    elif rare.partitions:
        named = tuple(rare.partitions)
    else:
        named = () if job.queue is None else (job.queue,)
    return Ask(
        named,
        cpus or job.asked_cpus or job.cpus,
        job.nodes or None,
        max(job.gpus, sum(types.values())),
        tuple(sorted(types)),
        job.memory or 0,
        rare.exclusive,
        job.group,
        rare.qos,
        rare.reservation,
        rare.tasks or None,
        tuple(map(tuple, rare.node_features or ())),
    )
