from collections import Counter

import numpy as np
import pytest

from models.records import Capacity, End, Start, Submit
from tests.simulation.cluster import CLUSTER_SITES, ClusterScheduler, generate_for, run_cluster
from tests.simulation.grid import MONDAY


@pytest.mark.parametrize("name", CLUSTER_SITES)
def test_cluster_resources_are_never_exceeded_and_all_released(name: str) -> None:
    site = CLUSTER_SITES[name]
    scheduler = ClusterScheduler(name, site.cluster, MONDAY)
    whole = scheduler.nodes.free.copy()
    least = whole.copy()
    for job in generate_for(site, seed=2, days=2, start_time=MONDAY):
        scheduler.submit(job)
        least = np.minimum(least, scheduler.nodes.free)
    scheduler.finish()
    assert (least >= 0).all() and (least[:, 0] == 0).any()
    assert (scheduler.nodes.free == whole).all() and not scheduler.queue and not scheduler.running


def test_workload_of_a_seed_is_deterministic_and_sorted() -> None:
    site = CLUSTER_SITES["shared"]
    jobs = generate_for(site, seed=3, days=1, start_time=MONDAY)
    events = list(run_cluster(jobs, site.cluster, "a"))
    assert events == list(run_cluster(generate_for(site, 3, 1, MONDAY), site.cluster, "a"))
    assert [event.time for event in events] == sorted(event.time for event in events)
    kinds = Counter(type(event) for event in events)
    assert kinds == {Capacity: 1, Submit: len(jobs), Start: len(jobs), End: len(jobs)}
    first = events[0]
    assert isinstance(first, Capacity) and (first.cpus, first.nodes) == (40 * 16 + 6 * 32, 46)


def test_cluster_job_submit_event_has_total_resources() -> None:
    site = CLUSTER_SITES["mixed"]
    old = next(job for job in generate_for(site, 1, 1, MONDAY) if job.gpu_type and job.tasks * job.gpus > 4)
    event = old.submission("a")
    assert event.gpu_types == {"v100": event.gpus} and event.gpus == old.tasks * old.gpus
    assert (event.queue, event.partitions, event.nodes) == ("old", None, old.tasks)
    assert (event.cpus, event.memory) == (old.tasks * old.cpus, old.tasks * old.memory)
