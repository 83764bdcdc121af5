"""What-if beside the true schedule of a simulated cluster, where run times are known and nobody comes later.

The cluster schedules tasks on nodes, by submission and with EASY backfilling; the engine is told what any site tells.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from models.engine.asking.answers import answer
from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Partition, Pool, Reservation, WaitAnswer, WaitQuestion
from models.simulation.cluster import Cluster, ClusterJob, ClusterScheduler, Factors, Window
from models.simulation.cluster.workload import GB
from models.simulation.grid import MONDAY

FIFO = Factors(age=1.0, fairshare=0.0, size=0.0)
HOUR, DAY = 3600, 86_400
SETTINGS = EngineSettings(method="order", shadows=(), bounds="", runtimes="walltime")

POOLS = (
    Pool(name="thin", nodes=4, cpus=16, memory=64 * GB),
    Pool(name="debug", nodes=1, cpus=16, memory=64 * GB),
    Pool(name="card", nodes=2, cpus=16, gpus={"a100": 4}, memory=128 * GB),
)
PARTITIONS = (
    Partition(name="batch", pools=["thin"], default=True),
    Partition(name="long", pools=["thin"]),
    Partition(name="debug", pools=["debug"]),
    Partition(name="gpu", pools=["card"]),
)


def job(number: int, hours: float, partition: str = "batch", submit: int = 0, **more: Any) -> ClusterJob:
    run = int(hours * HOUR)
    return ClusterJob(
        job=str(number), submit=MONDAY + submit, partitions=(partition,), run=run, walltime=run, user="ada", **more
    )


class Site:
    """A cluster with jobs, and an engine that has seen its events."""

    def __init__(self, jobs: Iterable[ClusterJob], pools: tuple[Pool, ...] = POOLS, **more: Any) -> None:
        rules = {"partitions": PARTITIONS, "factors": FIFO, **more}
        self.scheduler = ClusterScheduler("a", Cluster(pools=pools, **rules), MONDAY)
        self.engine = Engine("a", SETTINGS)
        self.engine.apply(self.scheduler.capacity())
        for one in jobs:
            for event in self.scheduler.submit(one):
                self.engine.apply(event)

    def asked(self, probe: ClusterJob) -> WaitAnswer:
        """The answer of what-if, for this job now."""
        submit = probe.submission("a")
        fields = {name: getattr(submit, name) for name in WaitQuestion.__struct_fields__ if hasattr(submit, name)}
        found = answer(WaitQuestion(id="1", **fields), self.engine, float(self.scheduler.now))
        assert isinstance(found, WaitAnswer)
        return found

    def waits(self, probe: ClusterJob) -> tuple[float, float]:
        """The wait that is told, and the true one, in seconds."""
        probe = msgspec.structs.replace(probe, submit=self.scheduler.now)
        true = self.scheduler.fork()
        true.submit(probe)
        start = true.start_of(probe.job)
        told = self.asked(probe).predicted_wait_s
        assert start is not None and told is not None
        return told, float(start - probe.submit)


def test_a_full_and_an_empty_partition() -> None:
    site = Site(
        [*(job(number, 2 + number, tasks=16) for number in range(4)), *(job(9 + n, 5, tasks=32) for n in (1, 2))]
    )
    told, true = site.waits(job(20, 1, tasks=32))
    assert true > 4 * HOUR and told == pytest.approx(true, rel=0.1)
    assert site.waits(job(21, 1, "debug", tasks=16)) == (0.0, 0.0)


def test_partitions_that_share_nodes_wait_for_one_another() -> None:
    site = Site([job(1, 6, tasks=48), job(2, 3, tasks=16), job(3, 4, tasks=64)])
    told, true = site.waits(job(4, 5, "long", tasks=8))
    assert true == 10 * HOUR and told == pytest.approx(true, rel=0.1)
    assert site.waits(job(5, 5, "debug", tasks=8)) == (0.0, 0.0)


def test_gpus_are_waited_for_beside_free_processors() -> None:
    running = [job(number, 2 + number, "gpu", cpus=2, gpus=4) for number in range(2)]
    site = Site([*running, job(3, 6, "gpu", gpus=4, cpus=2)])
    told, true = site.waits(job(4, 1, "gpu", gpus=2, cpus=1))
    assert true == 3 * HOUR and told == pytest.approx(true, rel=0.1)
    assert site.waits(job(5, 1, "gpu", cpus=4)) == (0.0, 0.0)
    assert site.waits(job(6, 1, tasks=64)) == (0.0, 0.0)


def test_memory_is_waited_for_beside_free_processors() -> None:
    site = Site([job(number, 2 + number, cpus=1, memory=64 * GB) for number in range(4)])
    told, true = site.waits(job(9, 1, memory=60 * GB))
    assert true == 2 * HOUR and told == pytest.approx(true, rel=0.1)


def test_what_would_run_into_maintenance_is_told_to_start_after_it() -> None:
    begin = MONDAY + 2 * DAY
    window = Window(MONDAY, Reservation(name="up", start=float(begin), end=begin + 8.0 * HOUR, maintenance=True))
    site = Site([job(1, 10, tasks=32)], windows=(window,))
    assert site.waits(job(2, 30, tasks=8)) == (0.0, 0.0)
    told, true = site.waits(job(3, 60, tasks=8))
    assert true == 2 * DAY + 8 * HOUR and told == pytest.approx(true, rel=0.01)
    told, true = site.waits(job(4, 47, tasks=64))  # after job 1 it would not end by then
    assert true == 2 * DAY + 8 * HOUR and told == pytest.approx(true, rel=0.01)


def test_where_it_cannot_run_the_answer_says_so() -> None:
    site = Site([])
    assert "GPUs a node" in str(site.asked(job(1, 1, "gpu", gpus=8, spread=True)).cannot_run)
    never = site.asked(job(2, 1, gpus=1))
    assert never.predicted_wait_s is None and never.cannot_run and "GPU" in never.cannot_run
    fine = site.asked(job(3, 1, "gpu", gpus=1))
    assert fine.cannot_run is msgspec.UNSET and fine.left_out is msgspec.UNSET
    some = msgspec.structs.replace(job(4, 1, "gpu", gpus=2), partitions=("gpu", "debug"))
    told = site.asked(some)
    assert told.cannot_run is msgspec.UNSET and told.left_out and [*told.left_out] == ["debug"]
