"""Schedules of a cluster, computed by hand. Jobs differ only in submission order unless stated."""

from typing import Any

import pytest

from models.records import Alter, Capacity, End, Limit, Partition, Pool, Reservation, Start
from tests.simulation.cluster import Cluster, ClusterJob, ClusterScheduler, Factors, Window
from tests.simulation.cluster.workload import GB

FIFO = Factors(age=0.0, fairshare=0.0, size=0.0)
TWO_NODES = (Pool(name="node", nodes=2, cpus=4, memory=8 * GB),)
ONE_QUEUE = (Partition(name="batch", pools=["node"]),)


def cluster(pools: tuple[Pool, ...] = TWO_NODES, partitions: tuple[Partition, ...] = ONE_QUEUE, **more: Any) -> Cluster:
    return Cluster(pools=pools, partitions=partitions, **{"factors": FIFO, **more})


def job(number: int, submit: int, run: int, *partitions: str, **more: Any) -> ClusterJob:
    request = {"walltime": run, "user": "ada", **more}
    return ClusterJob(job=str(number), submit=submit, run=run, partitions=partitions or ("batch",), **request)


def schedule(site: Cluster, *jobs: ClusterJob) -> dict[str, Start]:
    """Return the start times by job."""
    scheduler = ClusterScheduler("a", site)
    events = [event for one in jobs for event in scheduler.submit(one)] + scheduler.finish()
    return {event.job: event for event in events if isinstance(event, Start)}


def starts(site: Cluster, *jobs: ClusterJob) -> dict[str, float]:
    return {name: start.time for name, start in schedule(site, *jobs).items()}


def test_task_requires_room_on_one_node() -> None:
    # Each node has one free CPU besides job 1: two in total, but no room for a task of two.
    spread = job(1, 0, 100, tasks=2, cpus=3, spread=True)
    assert starts(cluster(), spread, job(2, 1, 10, cpus=2), job(3, 2, 10, tasks=2)) == {"1": 0, "2": 100, "3": 2}


def test_job_without_free_memory_waits_despite_free_cpus() -> None:
    hungry = [job(number, 0, 100, cpus=1, memory=8 * GB) for number in (1, 2)]
    assert starts(cluster(), *hungry, job(3, 1, 10, memory=GB), job(4, 2, 10)) == {"1": 0, "2": 0, "3": 100, "4": 2}


def test_small_jobs_fill_the_fullest_node_that_has_room() -> None:
    assert starts(cluster(), job(1, 0, 100, cpus=2), job(2, 0, 100, cpus=2), job(3, 1, 10, cpus=4))["3"] == 1


def test_scheduler_reports_the_blocking_limit_if_configured() -> None:
    limits = (Limit(per="user", cpus=4), Limit(per="all", jobs=2))
    jobs = [job(1, 0, 100, tasks=4), job(2, 1, 10, tasks=2), job(3, 2, 50, user="bob"), job(4, 3, 10, user="cid")]
    for reports in (False, True):
        scheduler = ClusterScheduler("a", cluster(limits=limits), reports_reasons=reports)
        events = [event for one in jobs for event in scheduler.submit(one)] + scheduler.finish()
        alters = [(event.time, event.job, event.pending_reason) for event in events if isinstance(event, Alter)]
        found = [(1.0, "2", "QOSMaxCpuPerUser"), (3.0, "4", "QOSGrpJobs")]
        assert alters == (found if reports else [])


def test_exclusive_job_gets_whole_nodes() -> None:
    found = schedule(cluster(), job(1, 0, 100), job(2, 1, 10, tasks=2, exclusive=True), job(3, 2, 5, tasks=1))
    assert found["2"].time == 100 and (found["2"].cpus, found["2"].nodes) == (8, 2)
    assert found["3"].time == 2


def test_job_waits_for_gpu_type_while_other_type_is_free() -> None:
    pools = (
        Pool(name="new", nodes=1, cpus=8, gpus={"a100": 4}),
        Pool(name="old", nodes=1, cpus=8, gpus={"v100": 4}),
    )
    site = cluster(pools, (Partition(name="gpu", pools=["new", "old"]),))
    first = job(1, 0, 100, "gpu", gpus=3, gpu_type="a100")
    named, any_type = job(2, 1, 10, "gpu", gpus=2, gpu_type="a100"), job(3, 2, 10, "gpu", gpus=2)
    assert starts(site, first, named, any_type) == {"1": 0, "2": 100, "3": 2}
    assert schedule(site, first)["1"].gpus == 3


def test_full_partition_does_not_block_others_with_own_nodes() -> None:
    pools = (*TWO_NODES, Pool(name="debug", nodes=1, cpus=4))
    partitions = (*ONE_QUEUE, Partition(name="debug", pools=["debug"]))
    found = schedule(cluster(pools, partitions), job(1, 0, 100, tasks=8), job(2, 1, 50, tasks=8), job(3, 2, 9, "debug"))
    assert {name: start.time for name, start in found.items()} == {"1": 0, "2": 100, "3": 2}
    assert [found[name].partition for name in "123"] == ["batch", "batch", "debug"]


def test_shared_nodes_count_once_and_the_higher_tier_goes_first() -> None:
    partitions = (*ONE_QUEUE, Partition(name="express", pools=["node"], tier=1))
    jobs = job(1, 0, 100, tasks=8), job(2, 1, 50, tasks=8), job(3, 2, 10, "express", tasks=8)
    assert starts(cluster(partitions=partitions), *jobs) == {"1": 0, "3": 100, "2": 110}


def test_job_of_two_partitions_starts_in_partition_with_room() -> None:
    pools = (*TWO_NODES, Pool(name="more", nodes=1, cpus=4))
    partitions = (*ONE_QUEUE, Partition(name="more", pools=["more"]))
    found = schedule(cluster(pools, partitions), job(1, 0, 100, tasks=8), job(2, 1, 10, "batch", "more", tasks=3))
    assert (found["2"].time, found["2"].partition) == (1, "more")


def test_backfill_does_not_delay_a_reservation() -> None:
    # Job 2 has both nodes reserved from 100 on. Job 3 would end before, job 4 would not.
    jobs = job(1, 0, 100, cpus=4), job(2, 1, 50, tasks=8), job(3, 2, 98, cpus=2), job(4, 3, 98, cpus=2)
    assert starts(cluster(), *jobs) == {"1": 0, "3": 2, "2": 100, "4": 150}


def test_partition_reserves_nodes_for_its_first_job() -> None:
    # Both partitions may use all nodes. Job 3 is the first of its partition: job 4 must not delay it.
    partitions = (*ONE_QUEUE, Partition(name="other", pools=["node"]))
    jobs = (
        job(1, 0, 100, tasks=6),
        job(2, 1, 50, tasks=8),  # from 100
        job(3, 2, 50, "other", tasks=8),  # from 150
        job(4, 3, 190, cpus=1),  # would end at 193
        job(5, 4, 90, cpus=1),  # ends at 94
    )
    assert starts(cluster(partitions=partitions), *jobs) == {"1": 0, "5": 4, "2": 100, "3": 150, "4": 200}


def test_job_over_user_limit_is_skipped_without_reservation() -> None:
    site = cluster(limits=(Limit(per="user", partition="batch", cpus=4),))
    jobs = job(1, 0, 100, cpus=4), job(2, 1, 10), job(3, 2, 300, cpus=4, user="bob"), job(4, 3, 10, qos="high")
    assert starts(site, *jobs) == {"1": 0, "3": 2, "2": 100, "4": 100}
    of_all = cluster(limits=(Limit(per="all", qos="high", jobs=1),))
    alike = [job(number, 0, 10, qos="high", user=f"u{number}") for number in (1, 2)]
    assert starts(of_all, *alike, job(3, 0, 10)) == {"1": 0, "3": 0, "2": 10}


def test_priority_includes_fairshare_and_qos() -> None:
    jobs = job(1, 0, 100, tasks=8), job(2, 1, 50, tasks=8), job(3, 2, 50, tasks=8, user="bob", qos="high")
    fair = Factors(age=0.0, fairshare=1.0, size=0.0)
    assert starts(cluster(factors=fair), *jobs) == {"1": 0, "3": 100, "2": 150}
    points = Factors(age=0.0, fairshare=0.0, size=0.0, qos={"high": 1.0})
    assert starts(cluster(factors=points), *jobs) == {"1": 0, "3": 100, "2": 150}
    assert starts(cluster(), *jobs) == {"1": 0, "2": 100, "3": 150}


def test_announced_window_blocks_overlapping_jobs() -> None:
    window = Window(100, Reservation(name="upgrade", start=1000.0, end=1500.0, maintenance=True))
    site = cluster(windows=(window,))
    jobs = job(1, 50, 970), job(2, 100, 901), job(3, 101, 899), job(4, 102, 10)
    assert starts(site, *jobs) == {"1": 50, "2": 1500, "3": 101, "4": 102}
    scheduler = ClusterScheduler("a", site)
    capacities = [event for event in [*scheduler.advance(100), *scheduler.finish()] if isinstance(event, Capacity)]
    assert scheduler.capacity().cpus == 8
    assert [(event.time, [one.name for one in event.reservations]) for event in capacities] == [
        (100, ["upgrade"]),
        (1500, []),
    ]


def test_window_of_some_nodes_blocks_only_those_nodes() -> None:
    window = Window(0, Reservation(name="half", start=100.0, end=200.0, pools=["node"], nodes=1))
    jobs = job(1, 0, 250, cpus=4), job(2, 0, 150, cpus=4), job(3, 0, 90, cpus=4)
    assert starts(cluster(windows=(window,)), *jobs) == {"1": 0, "3": 0, "2": 200}


def test_down_and_drained_nodes_run_no_jobs() -> None:
    pools = (Pool(name="node", nodes=3, cpus=4, down_nodes=1, drained_nodes=1),)
    assert starts(cluster(pools), job(1, 0, 10, cpus=4), job(2, 0, 10, cpus=4)) == {"1": 0, "2": 10}


def test_job_is_killed_at_walltime_or_withdrawn_after_patience() -> None:
    scheduler = ClusterScheduler("a", cluster())
    jobs = job(1, 0, 100, tasks=8, walltime=60), job(2, 1, 10, tasks=8, patience=20), job(3, 2, 10, tasks=8)
    events = [event for one in jobs for event in scheduler.submit(one)] + scheduler.finish()
    ends = [(event.job, event.time, event.state) for event in events if isinstance(event, End)]
    assert ends == [("1", 60.0, "timeout"), ("3", 70.0, "completed")]
    assert [(event.job, event.time) for event in events if event.kind == "cancel"] == [("2", 21.0)]


@pytest.mark.parametrize(
    "never",
    [
        {"cpus": 5},
        {"tasks": 3, "spread": True},
        {"tasks": 9},
        {"memory": 9 * GB},
        {"gpus": 1},
        {"walltime": 2000},
        {"account": "guest"},
    ],
)
def test_job_that_can_never_run_is_rejected(never: dict[str, Any]) -> None:
    site = cluster(partitions=(Partition(name="batch", pools=["node"], max_walltime=1000, accounts=["staff"]),))
    with pytest.raises(ValueError, match="can run in none"):
        ClusterScheduler("a", site).submit(job(1, 0, 10, **{"account": "staff", **never}))


def test_forked_scheduler_is_independent() -> None:
    scheduler = ClusterScheduler("a", cluster())
    scheduler.submit(job(1, 0, 100, tasks=8))
    copied = scheduler.fork()
    copied.submit(job(2, 1, 10, tasks=8))
    assert copied.start_of("2") == 100
    assert not scheduler.queue and scheduler.now == 0 and scheduler.nodes.free[:, 0].sum() == 0
