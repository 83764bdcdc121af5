"""Shapes of a site with partitions."""

from models.records import Capacity, Partition, Pool
from models.site.shapes import HOUR_S, Shape, covering, partition_grid
from models.site.topology import Topology

POOLS = [
    Pool(name="thin", nodes=2, cpus=4),
    Pool(name="card", nodes=2, cpus=32, gpus={"a100": 4}),
]
PARTITIONS = [
    Partition(name="batch", pools=["thin"], max_walltime=2 * HOUR_S),
    Partition(name="gpu", pools=["card"]),
    Partition(name="any", pools=["thin", "card"], max_walltime=60.0),
    Partition(name="closed", pools=["thin"], up=False),
]


def topology(partitions: list[Partition] = PARTITIONS) -> Topology:
    found = Topology.of(Capacity(site="a", time=0.0, cpus=72, pools=POOLS, partitions=partitions))
    assert found is not None
    return found


def test_partitions_with_gpus_have_shapes_with_gpus() -> None:
    shapes = partition_grid(topology(), (HOUR_S, 4 * HOUR_S))
    assert [shape for shape in shapes if shape.queue == "batch"] == [
        Shape(cpus, HOUR_S, "batch") for cpus in (1, 2, 4, 8)
    ]
    gpu = [(shape.cpus, shape.gpus) for shape in shapes if shape.queue == "gpu" and shape.walltime == HOUR_S]
    assert gpu == [(8, 1), (16, 2), (32, 4), (64, 8)]
    both = [(shape.cpus, shape.gpus) for shape in shapes if shape.queue == "any"]
    assert both == [(1, 0), (2, 0), (4, 0), (8, 0), *gpu]
    assert {shape.walltime for shape in shapes if shape.queue == "any"} == {60.0}  # none of the requested ones
    assert not [shape for shape in shapes if shape.queue == "closed"]


def test_shapes_cover_some_partitions_sizes_or_no_partition() -> None:
    few = partition_grid(topology(), (HOUR_S,), most=8, names=("gpu", "batch"))
    assert {(shape.queue, shape.cpus) for shape in few if shape.gpus} == {("gpu", 8)}
    assert max(shape.cpus for shape in few) == 8
    assert {shape.queue for shape in partition_grid(topology([]), (HOUR_S,))} == {None}


def test_covering_returns_shape_of_partition_with_enough_gpus() -> None:
    shapes = partition_grid(topology(), (HOUR_S, 4 * HOUR_S))
    assert covering(shapes, 1, 600.0, "gpu", gpus=3) == Shape(32, HOUR_S, "gpu", 4)
    assert covering(shapes, 3, None, "batch") == Shape(4, HOUR_S, "batch")  # the longest one
    assert covering(shapes, 3, HOUR_S, "gpu") == Shape(8, HOUR_S, "gpu", 1)
    assert covering(shapes, 1, 60.0, None) == Shape(1, 60.0, "any")
    assert covering(shapes, 1, 60.0, "batch", gpus=1) == Shape(8, 60.0, "any", 1)  # in another partition
    assert covering(shapes, 1, 60.0, "gpu", gpus=9) is None
