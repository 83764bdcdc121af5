"""Resources of an area over time, and the jobs that fit."""

import numpy as np
import pytest

from models.records import Capacity, Limit, Partition, Pool, Reservation, Submit
from models.site.job import Job
from models.site.topology import Topology, request_of
from models.site.topology.layout import Layout, fit, fit_parts

HOUR_S = 3600.0


def layout(*reservations: Reservation, time: float = 0.0, **fields: object) -> Layout:
    """Build one area of two pools: 10 nodes of 8 CPUs, and 2 with GPUs, one of them drained."""
    usual = {
        "pools": [
            Pool(name="thin", nodes=10, cpus=8),
            Pool(name="gpu", nodes=2, cpus=8, gpus={"a100": 4}, drained_nodes=1),
        ],
        "partitions": [
            Partition(name="batch", pools=["thin"], default=True, max_walltime=24 * HOUR_S, tier=1),
            Partition(name="any", pools=["thin", "gpu"]),
            Partition(name="gone", pools=["thin"], up=False),
        ],
        "reservations": list(reservations),
    }
    topology = Topology(Capacity(site="s", time=time, cpus=96, **usual | fields))
    return Layout(topology, topology.areas[0])


def submit(**fields: object) -> Job:
    return Job.of(Submit(site="s", time=0.0, job="1", **fields))


def cpus(found: Layout, now: float) -> dict[float, list[float]]:
    """Return the CPUs of each node group from each time on."""
    begins, holds = found.timeline(now)
    return dict(zip(begins.tolist(), holds[:, :, 0].tolist(), strict=True))


def earliest(found: Layout, planned_s: float, now: float = 0.0, **fields: object) -> float:
    return found.earliest_s(request_of(submit(**fields)), planned_s, now)


@pytest.mark.parametrize(
    ("free", "demand", "shares"),
    [
        ([[8.0, 4.0]], [[8.0, 1.0]], [1.0]),
        ([[8.0, 4.0]], [[8.0, 5.0]], None),
        ([[4.0, 9.0], [4.0, 9.0]], [[8.0, 0.0], [8.0, 0.0]], [0.5, 0.5]),
        ([[4.0, 9.0], [3.0, 9.0]], [[8.0, 0.0], [8.0, 0.0]], None),
        ([[9.0, 9.0], [9.0, 9.0]], [[-1.0, -1.0], [8.0, 0.0]], [0.0, 1.0]),
        ([[-3.0, 9.0]], [[1.0, 0.0]], None),
        ([[np.inf, 0.0]], [[1.0, 0.0]], [1.0]),
        ([[3.0, 0.0], [3.0, 0.0], [3.0, 0.0]], [[9.0, 0.0]] * 3, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_fit_requires_shares_that_sum_up_to_one(
    free: list[list[float]], demand: list[list[float]], shares: list[float] | None
) -> None:
    found = np.zeros(len(free))
    assert fit(np.array(free), np.array(demand), found) is (shares is not None)
    if shares is not None:
        assert found == pytest.approx(shares)


@pytest.mark.parametrize(
    ("free", "cpus", "parts", "shares"),
    [
        ([8.0, 4.0], 4.0, 4, [0.0, 1.0]),  # the fullest group that can hold it
        ([3.0, 2.0, 8.0], 12.0, 12, [0.25, 1 / 12, 2 / 3]),  # the groups that can hold most first
        ([4.0, 4.0, 4.0], 8.0, 8, [0.5, 0.5, 0.0]),  # the first of equal groups
        ([3.0, 3.0], 4.0, 1, None),
        ([3.0, 3.0], 4.0, 2, [0.5, 0.5]),
        ([3.0, 1.0], 4.0, 2, None),
        ([8.0, 8.0], 4.0, -2, [0.5, 0.5]),  # at most one part per node
        ([8.0, 1.0], 4.0, -2, None),
        ([8.0, 8.0], 4.0, 0, [1.0, 0.0]),
        ([3.0, 1.0], 4.0, 0, [0.75, 0.25]),
    ],
)
def test_fit_parts_places_each_part_in_a_node_group(
    free: list[float], cpus: float, parts: int, shares: list[float] | None
) -> None:
    found, demand = np.zeros(len(free)), np.full((len(free), 1), cpus)
    assert fit_parts(np.array(free)[:, None], demand, np.full(len(free), parts), found) is (shares is not None)
    if shares is not None:
        assert found == pytest.approx(shares)


@pytest.mark.parametrize(
    ("fields", "parts"),
    [
        ({"queue": "any", "cpus": 4, "gpus": 2}, [2, 2]),
        ({"queue": "batch", "cpus": 9, "tasks": 3}, [3, 3]),
        ({"queue": "batch", "cpus": 9}, [9, 9]),
        ({"queue": "batch", "cpus": 9, "nodes": 2}, [-2, -2]),
        ({"queue": "batch", "cpus": 9, "exclusive": True}, [-2, -2]),
        ({"queue": "batch", "cpus": 9, "tasks": 1}, [0, 0]),  # more than a node has: its placement is not known
    ],
)
def test_parts_of_a_job_are_its_nodes_tasks_gpus_or_cpus(fields: dict[str, object], parts: list[int]) -> None:
    assert layout().kind(request_of(submit(**fields))).parts.tolist() == parts


def test_nodes_of_an_area_hold_the_resources_of_its_pools() -> None:
    found = layout(Reservation(name="some", start=100.0, end=200.0, pools=["thin"], nodes=4, users=["ada"]))
    assert found.nodes is not None and len(found.nodes.room) == 16
    by_pool, by_node = found.timeline(0.0), found.timeline(0.0, by_node=True)
    assert by_node.begins.tolist() == by_pool.begins.tolist() == [0.0, 100.0, 200.0]
    for room in range(len(found.rooms)):
        nodes = found.nodes.room == room
        assert np.allclose(by_pool.holds[:, room, :2], by_node.holds[:, nodes, :2].sum(axis=1))
        all_of_them = found.total_resources(by_node=True)[nodes, :2].sum(axis=0)
        assert np.allclose(
            all_of_them, [32.0, 0.0] if found.rooms[room].reservation else found.total_resources()[room, :2]
        )


def test_area_of_many_nodes_is_not_simulated_by_node() -> None:
    assert layout(pools=[Pool(name="thin", nodes=64, cpus=8)], partitions=[]).nodes is not None
    assert layout(pools=[Pool(name="thin", nodes=65, cpus=8)], partitions=[]).nodes is None


def test_kind_contains_the_common_request_of_its_jobs() -> None:
    kind = layout().kind(request_of(submit(queue="any", cpus=4, gpus=2)))
    assert kind.demand.tolist() == [[-1.0, -1.0, -1.0], [4.0, 2.0, 0.0]]
    assert (kind.partitions, kind.tier, kind.longest_s) == (("any",), 0, np.inf)
    assert kind.counted.tolist() == [4.0, 2.0, 1.0, 0.0, 1.0]
    whole = layout().kind(request_of(submit(queue="batch", nodes=3, exclusive=True)))
    assert (whole.counted.tolist(), whole.longest_s) == ([24.0, 0.0, 3.0, 0.0, 1.0], 24 * HOUR_S)


def test_down_partition_starts_no_job_but_runs_some() -> None:
    kind = layout().kind(request_of(submit(queue="gone")))
    assert (kind.demand < 0.0).all()
    assert kind.running[0, 0] == 1.0


def test_timeline_excludes_drained_and_reserved_nodes() -> None:
    course = Reservation(name="course", start=100.0, end=200.0, pools=["thin"], nodes=4, users=["ada"])
    found = layout(course)
    assert [room.pool for room in found.rooms] == [0, 1, 0]
    assert cpus(found, 0.0) == {0.0: [80.0, 8.0, 0.0], 100.0: [48.0, 8.0, 32.0], 200.0: [80.0, 8.0, 0.0]}
    assert cpus(found, 150.0) == {0.0: [48.0, 8.0, 32.0], 50.0: [80.0, 8.0, 0.0]}
    assert cpus(found, 300.0) == {0.0: [80.0, 8.0, 0.0]}


def test_reserved_nodes_are_counted_once() -> None:
    pools = [Pool(name="thin", nodes=10, cpus=8, reserved_nodes=5)]
    course = Reservation(name="course", start=0.0, end=200.0, nodes=4, maintenance=True)
    partitions = [Partition(name="batch", pools=["thin"])]
    assert cpus(layout(course, pools=pools, partitions=partitions), 0.0) == {0.0: [40.0], 200.0: [72.0]}


def test_jobs_overlapping_maintenance_start_after_it() -> None:
    day = Reservation(name="maintenance", start=10 * HOUR_S, end=20 * HOUR_S, maintenance=True)
    found = layout(day)
    assert earliest(found, 10 * HOUR_S) == 0.0
    assert earliest(found, 10 * HOUR_S + 1.0) == 20 * HOUR_S
    assert earliest(found, 9 * HOUR_S, now=2 * HOUR_S) == 18 * HOUR_S
    assert earliest(found, HOUR_S, now=15 * HOUR_S) == 5 * HOUR_S
    assert earliest(found, 99 * HOUR_S, now=20 * HOUR_S) == 0.0


def test_job_can_run_next_to_a_partial_reservation() -> None:
    some = Reservation(name="some", start=HOUR_S, end=2 * HOUR_S, pools=["thin"], nodes=4, accounts=["physics"])
    found = layout(some)
    assert earliest(found, 9 * HOUR_S, cpus=48) == 0.0
    assert earliest(found, 9 * HOUR_S, cpus=49) == 2 * HOUR_S
    assert earliest(found, 9 * HOUR_S, cpus=56, queue="any") == 0.0
    assert earliest(found, 0.5 * HOUR_S, cpus=32, reservation="some") == HOUR_S
    assert earliest(found, 0.5 * HOUR_S, cpus=33, reservation="some") == 0.0, "the start does not depend on the window"


def test_limits_of_a_job_depend_on_partition_qos_and_name() -> None:
    limits = [
        Limit(per="user", cpus=10),
        Limit(per="user", name="bob", jobs=1),
        Limit(per="account", partition="any", cpus=10),
        Limit(per="all", qos="high", cpus=20),
    ]
    found = layout(limits=limits)
    assert found.limits(request_of(submit(queue="any", qos="high")), "ada", "physics") == (
        (0, "ada"),
        (2, "physics"),
        (3, None),
    )
    assert found.limits(request_of(submit(queue="batch")), None, "physics") == ()
    assert found.limits(request_of(submit(queue="batch")), "bob", None) == ((0, "bob"), (1, "bob"))
