"""Jobs for simulated clusters, and two such sites.

Sizes, run times, walltimes, users and sessions are from `models.simulation.workload` (Lublin and Feitelson), generated
separately for each stream of jobs, as for a machine of `units` CPUs, GPUs or nodes.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from models.records import Limit, Partition, Pool
from models.simulation.workload import DAY, SimulatedJob, generate
from tests.simulation.cluster.machine import Cluster, ClusterJob, Factors

GB = 1 << 30
SOME_JOBS = 500
"""Initial number of jobs of a stream; doubled until they cover the days."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs for the same partitions.

    They are generated for a machine of `units` units ("cpu", "gpu", "node") with the offered load `load`. Run times of
    the model are divided by `shorter`, and the number of jobs is multiplied by it. A unit has `cpus` CPUs and one of
    the `memories` (GB), chosen per session of a user. A node has at most `per_node` GPUs of the type `gpu_type`.
    `largest` is the maximum of units per job. `qos` has shares of jobs by QOS; the other jobs have none.
    """

    partitions: tuple[str, ...]
    units: int
    load: float
    unit: Literal["cpu", "gpu", "node"] = "cpu"
    cpus: int = 1
    memories: tuple[int, ...] = (2,)
    gpu_type: str | None = None
    per_node: int = 1
    largest: int | None = None
    longest_s: int | None = None
    shorter: int = 3
    users: int = 20
    qos: tuple[tuple[str, float], ...] = ()


class ClusterSite(NamedTuple):
    """A cluster and the streams of its jobs."""

    cluster: Cluster
    streams: tuple[Stream, ...]


def generate_for(site: ClusterSite, seed: int, days: float, start_time: int) -> list[ClusterJob]:
    """Return the jobs of these days in the order of submission; equal arguments give equal jobs."""
    streams = [
        list(_stream(stream, number, seed + 1000 * number, days, start_time))
        for number, stream in enumerate(site.streams, 1)
    ]
    return sorted((job for jobs in streams for job in jobs), key=lambda job: (job.submit, job.job))


def _stream(stream: Stream, number: int, seed: int, days: float, start_time: int) -> Iterator[ClusterJob]:
    rng = np.random.default_rng(seed)
    names, shares = [name for name, _ in stream.qos], [share for _, share in stream.qos]
    for job in _model_jobs(stream, seed, days, start_time):
        memory = stream.memories[_draw(rng, [1 / (1 + place) for place in range(len(stream.memories))])]
        drawn = float(rng.random())
        qos = next((name for name, edge in zip(names, np.cumsum(shares), strict=True) if drawn < edge), None)
        yield _cluster_job(stream, number, job, memory * GB, qos)


def _model_jobs(stream: Stream, seed: int, days: float, start_time: int) -> Sequence[SimulatedJob]:
    count, end = SOME_JOBS, start_time + days * DAY
    while True:
        jobs = generate(
            seed,
            count,
            stream.units,
            stream.load * stream.shorter,
            start_time=start_time,
            users=stream.users,
            impatient=0.0,
        )
        if jobs[-1].submit >= end:
            return [job for job in jobs if job.submit < end]
        count *= 2


def _draw(rng: np.random.Generator, weights: Sequence[float]) -> int:
    return int(np.searchsorted(np.cumsum(weights), rng.random() * sum(weights)))


def _cluster_job(stream: Stream, number: int, job: SimulatedJob, memory: int, qos: str | None) -> ClusterJob:
    units = min(job.cpus, stream.largest or stream.units)
    on_nodes = stream.unit == "node"
    tasks, each = units, 1
    if stream.unit == "gpu":
        each = min(units, stream.per_node)
        tasks = -(-units // each)
    assert job.walltime is not None
    walltime = min(max(job.walltime // stream.shorter, 60), stream.longest_s or job.walltime)
    return ClusterJob(
        job=f"{number}-{job.job}",
        submit=job.submit,
        partitions=stream.partitions,
        run=max(job.run // stream.shorter, 1),
        walltime=walltime,
        tasks=tasks,
        cpus=stream.cpus * each,
        gpus=each if stream.unit == "gpu" else 0,
        memory=memory * each,
        gpu_type=stream.gpu_type,
        spread=stream.unit == "gpu" and tasks > 1,
        exclusive=on_nodes,
        user=f"{number}-{job.user}",
        group=job.group,
        account=job.group,
        qos=qos,
        executable=job.executable,
    )


MIXED = ClusterSite(
    Cluster(
        pools=(
            Pool(name="thin", nodes=24, cpus=32, memory=128 * GB),
            Pool(name="fat", nodes=4, cpus=32, memory=1024 * GB),
            Pool(name="a100", nodes=6, cpus=64, gpus={"a100": 8}, memory=512 * GB),
            Pool(name="v100", nodes=4, cpus=32, gpus={"v100": 4}, memory=256 * GB),
        ),
        partitions=(
            Partition(name="batch", pools=["thin"], default=True, max_walltime=2 * DAY),
            Partition(name="fat", pools=["fat"], max_walltime=4 * DAY),
            Partition(name="gpu", pools=["a100"], max_walltime=2 * DAY),
            Partition(name="old", pools=["v100"], max_walltime=2 * DAY),
        ),
        limits=(Limit(per="user", partition="gpu", gpus=24),),
        factors=Factors(age=1.0, fairshare=2.0, size=0.3),
    ),
    (
        Stream(partitions=("batch",), units=24 * 32, load=0.85, memories=(2, 3, 1), largest=512),
        Stream(partitions=("fat",), units=4 * 32, load=0.15, memories=(16, 32), largest=64),
        Stream(partitions=("gpu",), unit="gpu", units=48, load=0.75, cpus=6, memories=(32, 60), per_node=8, largest=16),
        Stream(
            partitions=("old",), unit="gpu", units=16, load=0.3, cpus=6, memories=(32,), per_node=4, gpu_type="v100"
        ),
    ),
)
"""Four partitions with separate nodes: `batch` is full, `gpu` is busy and limits users, `old` and `fat` are idle."""

SHARED = ClusterSite(
    Cluster(
        pools=(
            Pool(name="node", nodes=40, cpus=16, memory=64 * GB),
            Pool(name="gpu", nodes=6, cpus=32, gpus={"a100": 4}, memory=256 * GB),
        ),
        partitions=(
            Partition(name="express", pools=["node"], tier=10, max_walltime=4 * 3600, max_nodes=8),
            Partition(name="batch", pools=["node"], tier=5, default=True, max_walltime=DAY),
            Partition(name="spare", pools=["node", "gpu"], tier=1, max_walltime=DAY),
            Partition(name="gpu", pools=["gpu"], tier=5, max_walltime=DAY),
        ),
        limits=(
            Limit(per="user", qos="normal", cpus=240),
            Limit(per="user", partition="express", jobs=4),
        ),
        factors=Factors(age=1.0, fairshare=1.0, half_life_s=2 * DAY, size=-0.3, qos={"high": 1.0}),
    ),
    (
        Stream(
            partitions=("express",), units=640, load=0.1, memories=(2, 4), largest=64, shorter=12, longest_s=4 * 3600
        ),
        Stream(
            partitions=("batch",), units=640, load=0.45, memories=(2, 3, 6), largest=240, longest_s=DAY,
            qos=(("normal", 0.7), ("high", 0.1)),
        ),
        Stream(partitions=("batch",), unit="node", units=40, cpus=16, load=0.2, largest=24, longest_s=DAY),
        Stream(partitions=("spare",), units=640, load=0.1, memories=(2,), largest=64, longest_s=DAY),
        Stream(partitions=("gpu",), unit="gpu", units=24, load=0.7, cpus=7, memories=(60,), per_node=4, longest_s=DAY),
    ),
)  # fmt: skip
"""Partitions of three tiers with shared nodes, limits of a QOS, exclusive jobs, and a spare partition that includes GPU
nodes."""

SMALL = ClusterSite(
    Cluster(
        pools=(
            Pool(name="thin", nodes=12, cpus=16, memory=64 * GB),
            Pool(name="card", nodes=4, cpus=16, gpus={"a100": 4}, memory=128 * GB),
        ),
        partitions=(
            Partition(name="batch", pools=["thin"], default=True, tier=1),
            Partition(name="express", pools=["thin"], tier=2, max_walltime=3600.0),
            Partition(name="gpu", pools=["card"]),
        ),
        limits=(Limit(per="user", partition="gpu", gpus=12),),
    ),
    (
        Stream(partitions=("batch",), units=192, load=0.6, memories=(2, 4), largest=96, shorter=1),
        Stream(partitions=("express",), units=192, load=0.05, largest=64, longest_s=3600, shorter=4),
        Stream(
            partitions=("gpu",),
            unit="gpu",
            units=16,
            load=0.5,
            cpus=4,
            memories=(30,),
            per_node=4,
            largest=8,
            shorter=1,
        ),
    ),
)
"""A small site with three partitions, for demonstrations."""

CLUSTER_SITES = {"mixed": MIXED, "shared": SHARED}
