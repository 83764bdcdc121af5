"""Topology from a capacity event: pools, partitions and their effect on jobs."""

import numpy as np
import pytest

from models.records import Capacity, Limit, Partition, Pool, Reservation, Submit
from models.site.job import Job
from models.site.topology import Topology, cannot_run, request_of

DAY_S = 86_400.0
GIB = 1 << 30


def capacity(**fields: object) -> Capacity:
    """Build four pools: batch and debug share `thin` and `fat`; `gpu` and `old` are not shared."""
    usual = {
        "pools": [
            Pool(name="thin", nodes=8, cpus=32, memory=64 * GIB),
            Pool(name="fat", nodes=2, cpus=32, memory=512 * GIB),
            Pool(name="gpu", nodes=4, cpus=16, gpus={"a100": 4}, memory=256 * GIB),
            Pool(name="old", nodes=1, cpus=16, gpus={"v100": 2}, memory=256 * GIB, down_nodes=1),
        ],
        "partitions": [
            Partition(name="batch", pools=["thin", "fat"], default=True),
            Partition(name="debug", pools=["thin"], max_walltime=DAY_S, max_nodes=4),
            Partition(name="gpu", pools=["gpu"], accounts=["physics"]),
            Partition(name="old", pools=["old"], up=False),
        ],
    }
    return Capacity(site="s", time=0.0, cpus=400, **usual | fields)


def submit(**fields: object) -> Job:
    return Job.of(Submit(site="s", time=0.0, job="1", **fields))


FAT = {"queue": "batch", "memory": 100 * GIB, "nodes": 1}
TOPOLOGY = Topology(capacity())


def why_not(topology: Topology = TOPOLOGY, **fields: object) -> str | None:
    return cannot_run(topology, submit(**fields))


def test_site_without_pools_has_no_topology() -> None:
    assert Topology.of(None) is None
    assert Topology.of(Capacity(site="s", time=0.0, cpus=64, partitions=[Partition(name="a", pools=["x"])])) is None


def test_areas_are_partitions_connected_by_shared_pools() -> None:
    assert [(area.partitions, area.pools) for area in TOPOLOGY.areas] == [
        (("batch", "debug"), (0, 1)),
        (("gpu",), (2,)),
        (("old",), (3,)),
    ]
    batch, gpu, old = TOPOLOGY.areas
    assert (batch.cpus, batch.gpus, batch.memory, batch.nodes, batch.down_nodes) == (320, 0, 1536 * GIB, 10, 0)
    assert (gpu.cpus, gpu.gpus) == (64, 16)
    assert (old.nodes, old.down_nodes) == (1, 1)


def test_partitions_linked_by_a_third_one_are_one_area() -> None:
    pools = [Pool(name=name, nodes=1, cpus=8) for name in "abc"]
    partitions = [
        Partition(name="first", pools=["a"]),
        Partition(name="last", pools=["c"]),
        Partition(name="between", pools=["a", "c", "nowhere"]),
    ]
    topology = Topology(capacity(pools=pools, partitions=partitions))
    assert [area.partitions for area in topology.areas] == [("first", "last", "between")]
    assert topology.pools_of("between") == (0, 2)  # pool b is in no partition


def test_topology_without_partitions_has_one_area() -> None:
    topology = Topology(capacity(partitions=[]))
    assert [area.pools for area in topology.areas] == [(0, 1, 2, 3)]
    assert topology.named(request_of(submit(queue="batch"))) == ("",)
    assert cannot_run(topology, submit(cpus=401)) == "larger than the site: 401 of 400 CPUs"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"queue": "gpu"}, ["gpu"]),
        ({"queue": "gpu", "partitions": ["debug", "gpu"]}, ["debug", "gpu"]),
        ({"queue": "normal"}, ["batch"]),
        ({"partitions": ["nowhere", "gpu"]}, ["gpu"]),
        ({}, ["batch"]),
    ],
)
def test_named_partitions_of_a_job_depend_on_its_request(fields: dict[str, object], names: list[str]) -> None:
    assert list(TOPOLOGY.named(request_of(submit(**fields)))) == names


def test_job_without_partition_or_default_can_use_all_partitions() -> None:
    topology = Topology(capacity(partitions=[Partition(name="a", pools=["thin"]), Partition(name="b", pools=["gpu"])]))
    request = request_of(submit())
    assert topology.named(request) == ("a", "b")
    assert topology.area_of(request).partitions == ("a",)
    assert [area.partitions for area in topology.areas_of(request)] == [("a",), ("b",)]


def test_demand_equals_requested_or_exclusive_resources() -> None:
    assert TOPOLOGY.demand(request_of(submit(cpus=4, gpus=2, memory=GIB)), 2).tolist() == [4.0, 2.0, GIB]
    assert TOPOLOGY.demand(request_of(submit(gpu_types={"a100": 3})), 2).tolist() == [1.0, 3.0, 0.0]
    whole = TOPOLOGY.demand(request_of(submit(cpus=1, nodes=2, exclusive=True)), 2)
    assert whole.tolist() == [32.0, 8.0, 512.0 * GIB]
    assert TOPOLOGY.demand(request_of(submit(cpus=33, exclusive=True)), 0)[0] == 64.0


def test_size_in_area_is_the_dominant_share_of_the_job() -> None:
    gpu, batch = TOPOLOGY.areas[1], TOPOLOGY.areas[0]
    assert TOPOLOGY.size_in(request_of(submit(queue="gpu", cpus=2, gpus=8)), gpu) == 32
    assert TOPOLOGY.size_in(request_of(submit(queue="gpu", cpus=48, gpus=8)), gpu) == 48
    assert TOPOLOGY.size_in(request_of(submit(queue="batch", cpus=1, memory=768 * GIB)), batch) == 160
    assert TOPOLOGY.size_in(request_of(submit(queue="batch", nodes=5, exclusive=True)), batch) == 160
    assert TOPOLOGY.size_in(request_of(submit(queue="batch", cpus=7)), batch) == 7


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"cpus": 320}, None),
        ({"cpus": 321}, "larger than partition batch: 321 of 320 CPUs"),
        ({"queue": "debug", "walltime": 3 * DAY_S}, "walltime 3d: at most 1d in debug"),
        ({"queue": "debug", "nodes": 5, "cpus": 5}, "5 nodes: at most 4 in debug"),
        ({"queue": "old"}, "partition old is down"),
        ({"queue": "gpu", "account": "chemistry"}, "account chemistry may not use partition gpu"),
        ({"queue": "gpu", "account": "physics", "gpus": 16}, None),
        ({"queue": "gpu", "gpus": 17}, "larger than partition gpu: 17 of 16 GPUs"),
        ({"queue": "gpu", "gpus": 8, "nodes": 1}, "needs 8 GPUs a node: none in gpu has more than 4"),
        ({"queue": "gpu", "gpu_types": {"h100": 1}}, "needs GPUs of type h100: none in gpu"),
        ({"queue": "batch", "gpus": 1}, "needs GPUs: none in batch"),
        ({"queue": "batch", "cpus": 64, "nodes": 1}, "needs 64 CPUs a node: none in batch has more than 32"),
        (
            {"queue": "debug", "memory": 100 * GIB, "nodes": 1},
            "needs 100 GiB a node: none in debug has more than 64 GiB",
        ),
        ({"queue": "batch", "memory": 100 * GIB, "nodes": 1}, None),
        (
            {"queue": "batch", "memory": 600 * GIB, "nodes": 1},
            "needs 600 GiB a node: none in batch has more than 512 GiB",
        ),
        ({"queue": "debug", "memory": 513 * GIB}, "larger than partition debug: 513 of 512 GiB"),
        ({"queue": "batch", "nodes": 11, "cpus": 11}, "larger than partition batch: 11 of 10 nodes"),
        ({"queue": "batch", "nodes": 3, "cpus": 3, "memory": 300 * GIB}, "larger than partition batch: 3 of 2 nodes"),
        ({"partitions": ["old", "batch"]}, None),
        (
            {"partitions": ["old", "debug"], "walltime": 2 * DAY_S},
            "partition old is down; walltime 2d: at most 1d in debug",
        ),
        ({"queue": "nobody knows"}, None),
    ],
)
def test_cannot_run_returns_the_reason(fields: dict[str, object], reason: str | None) -> None:
    assert why_not(**fields) == reason


def test_job_larger_than_a_limit_cannot_run() -> None:
    limits = [
        Limit(per="user", partition="batch", cpus=64),
        Limit(per="account", name="physics", qos="high", gpus=4),
        Limit(per="all", partition="debug", jobs=0),
    ]
    topology = Topology(capacity(limits=limits))
    assert why_not(topology, cpus=64) is None
    assert why_not(topology, cpus=65) == "65 CPUs: a user may have at most 64 at once in batch"
    gpu = {"queue": "gpu", "account": "physics", "gpus": 5}
    assert why_not(topology, **gpu) is None
    reason = "5 GPUs: account physics may have at most 4 at once with high"
    assert why_not(topology, **gpu, qos="high") == reason
    assert why_not(topology, queue="debug") == "all jobs together may have no job running in debug"


def test_reservation_accepts_only_its_users() -> None:
    topology = Topology(capacity(reservations=[Reservation(name="course", start=10.0, end=20.0, users=["ada"])]))
    assert why_not(topology, user="ada", reservation="course") is None
    assert why_not(topology, user="bob", reservation="course") == "not for reservation course"
    assert why_not(topology, user="bob") is None


def test_same_areas_is_false_if_pools_or_partitions_change() -> None:
    drained = capacity()
    pools = [Pool(name="thin", nodes=8, cpus=32, memory=64 * GIB, drained_nodes=3), *drained.pools[1:]]
    assert TOPOLOGY.same_areas(Topology(capacity(pools=pools)))
    assert not TOPOLOGY.same_areas(Topology(capacity(pools=drained.pools[1:])))
    assert not TOPOLOGY.same_areas(Topology(capacity(partitions=drained.partitions[1:])))


def test_pool_without_memory_has_unlimited_memory() -> None:
    topology = Topology(capacity(pools=[Pool(name="thin", nodes=1, cpus=8)], partitions=[]))
    assert topology.areas[0].memory is None
    assert why_not(topology, memory=1 << 50, nodes=1) is None
    assert topology.size_in(request_of(submit(memory=1 << 50)), topology.areas[0]) == 1
    assert np.isinf(topology.node_of(0)[2])
