"""What-if compared with the true schedule of a simulated cluster, with known run times and no later jobs.

The cluster schedules tasks on nodes, by submission and with EASY backfilling; the engine gets the usual events.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from models.engine.settings import EngineSettings
from models.records import Partition, Pool, Reservation
from tests.simulation.cluster import Cluster, ClusterJob, ClusterSite, Factors, Stream, Window, generate_for
from tests.simulation.cluster.workload import GB
from tests.simulation.grid import MONDAY
from tests.support.probes import Watched, as_planned
from tests.support.sizes import mostly_long

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


class Site(Watched):
    """A cluster with jobs, and an engine that has processed its events."""

    def __init__(self, jobs: Iterable[ClusterJob], pools: tuple[Pool, ...] = POOLS, **more: Any) -> None:
        rules = {"partitions": PARTITIONS, "factors": FIFO, **more}
        super().__init__(Cluster(pools=pools, **rules), SETTINGS, MONDAY)
        for one in jobs:
            self.submit(one)

    def waits(self, probe: ClusterJob) -> tuple[float, float]:
        """Return the predicted and the true wait, in seconds."""
        return self.probe(probe)[1:]


def test_what_if_distinguishes_full_and_empty_partition() -> None:
    site = Site(
        [*(job(number, 2 + number, tasks=16) for number in range(4)), *(job(9 + n, 5, tasks=32) for n in (1, 2))]
    )
    predicted, true = site.waits(job(20, 1, tasks=32))
    assert true > 4 * HOUR and predicted == pytest.approx(true, rel=0.1)
    assert site.waits(job(21, 1, "debug", tasks=16)) == (0.0, 0.0)


def test_what_if_waits_for_shared_nodes_of_other_partition() -> None:
    site = Site([job(1, 6, tasks=48), job(2, 3, tasks=16), job(3, 4, tasks=64)])
    predicted, true = site.waits(job(4, 5, "long", tasks=8))
    assert true == 10 * HOUR and predicted == pytest.approx(true, rel=0.1)
    assert site.waits(job(5, 5, "debug", tasks=8)) == (0.0, 0.0)


def test_what_if_waits_for_gpus_despite_free_cpus() -> None:
    running = [job(number, 2 + number, "gpu", cpus=2, gpus=4) for number in range(2)]
    site = Site([*running, job(3, 6, "gpu", gpus=4, cpus=2)])
    predicted, true = site.waits(job(4, 1, "gpu", gpus=2, cpus=1))
    assert true == 3 * HOUR and predicted == pytest.approx(true, rel=0.1)
    assert site.waits(job(5, 1, "gpu", cpus=4)) == (0.0, 0.0)
    assert site.waits(job(6, 1, tasks=64)) == (0.0, 0.0)


def test_what_if_requires_gpus_of_task_on_one_node() -> None:
    site = Site([job(number, 2 + number, "gpu", cpus=2, gpus=3) for number in range(2)])
    predicted, true = site.waits(job(4, 1, "gpu", gpus=2, cpus=1))
    assert true == 2 * HOUR and predicted == pytest.approx(true, rel=0.1)
    assert site.waits(job(5, 1, "gpu", tasks=2, gpus=1)) == (0.0, 0.0)


def test_what_if_of_exclusive_job_waits_for_whole_nodes() -> None:
    site = Site([job(number, 2 + number, cpus=9) for number in range(4)])
    predicted, true = site.waits(job(9, 1, tasks=2, exclusive=True))
    assert true == 3 * HOUR and predicted == pytest.approx(true, rel=0.1)


def test_what_if_waits_for_memory_despite_free_cpus() -> None:
    site = Site([job(number, 2 + number, cpus=1, memory=64 * GB) for number in range(4)])
    predicted, true = site.waits(job(9, 1, memory=60 * GB))
    assert true == 2 * HOUR and predicted == pytest.approx(true, rel=0.1)


def test_what_if_before_maintenance_starts_after_it() -> None:
    begin = MONDAY + 2 * DAY
    window = Window(MONDAY, Reservation(name="up", start=float(begin), end=begin + 8.0 * HOUR, maintenance=True))
    site = Site([job(1, 10, tasks=32)], windows=(window,))
    assert site.waits(job(2, 30, tasks=8)) == (0.0, 0.0)
    predicted, true = site.waits(job(3, 60, tasks=8))
    assert true == 2 * DAY + 8 * HOUR and predicted == pytest.approx(true, rel=0.01)
    predicted, true = site.waits(job(4, 47, tasks=64))  # after job 1, it would not end before the window
    assert true == 2 * DAY + 8 * HOUR and predicted == pytest.approx(true, rel=0.01)


def test_what_if_reports_partitions_that_cannot_run_job() -> None:
    site = Site([])
    assert "GPUs a node" in str(site.what_if(job(1, 1, "gpu", gpus=8, spread=True)).cannot_run)
    never = site.what_if(job(2, 1, gpus=1))
    assert never.predicted_wait_s is None and never.cannot_run and "GPU" in never.cannot_run
    fine = site.what_if(job(3, 1, "gpu", gpus=1))
    assert fine.cannot_run is msgspec.UNSET and fine.left_out is msgspec.UNSET
    some = msgspec.structs.replace(job(4, 1, "gpu", gpus=2), partitions=("gpu", "debug"))
    answer = site.what_if(some)
    assert answer.cannot_run is msgspec.UNSET and answer.left_out and [*answer.left_out] == ["debug"]


CROWDED = ClusterSite(
    Cluster(
        pools=(*POOLS[:2], Pool(name="card", nodes=3, cpus=16, gpus={"a100": 4}, memory=128 * GB)),
        partitions=(*PARTITIONS[:3], Partition(name="gpu", pools=["card"])),
        factors=FIFO,
    ),
    (
        Stream(partitions=("batch",), units=64, load=0.6, memories=(2, 4), largest=48, shorter=1),
        Stream(partitions=("long",), units=64, load=0.6, memories=(2, 4), largest=32, shorter=1),
        Stream(partitions=("debug",), units=16, load=0.6),
        Stream(partitions=("gpu",), unit="gpu", units=12, load=0.6, cpus=3, memories=(20, 32), per_node=4, largest=8),
    ),
)
"""`batch` and `long` share nodes, `debug` and `gpu` have their own."""


@pytest.mark.parametrize("seed", mostly_long([1, 2, 3]))
def test_what_if_is_mostly_exact_in_all_partitions_and_on_gpus(seed: int) -> None:
    jobs = [msgspec.structs.replace(one, submit=MONDAY) for one in as_planned(generate_for(CROWDED, seed, 9, MONDAY))]
    watched = Watched(CROWDED.cluster, SETTINGS, MONDAY)
    for partition, other in (("batch", "long"), ("gpu", "gpu")):
        crowd = [one for one in jobs if one.partitions[0] in (partition, other)]
        for one in crowd[:40]:
            watched.submit(one)
    for partition in ("batch", "long", "debug", "gpu"):
        probed = [one for one in jobs if one.partitions == (partition,)][40:60]
        found = [watched.probe(one) for one in probed]
        assert sum(one.is_right for one in found) >= 0.85 * len(found) == 17.0
        assert (sum(one.true_s > 0.0 for one in found) >= 10) == (partition != "debug")
