"""Simulate a site with nodes: partitions, GPUs, memory, limits, maintenance, and a scheduler.

Predictions treat the resources of a large site as divisible pools, and do not get the nodes of jobs. Here each task is
on a node, so predictions are tested with a more realistic model than their own. A seed makes it deterministic.

    jobs = generate_for(MIXED, seed=1, days=14, start_time=1_700_000_000)
    for event in run_cluster(jobs, MIXED.cluster, "alpha"):
        ...
"""

from tests.simulation.cluster.machine import Cluster, ClusterJob, Factors, Window
from tests.simulation.cluster.scheduler import ClusterScheduler, run_cluster
from tests.simulation.cluster.workload import CLUSTER_SITES, MIXED, SHARED, SMALL, ClusterSite, Stream, generate_for

__all__ = [
    "CLUSTER_SITES",
    "MIXED",
    "SHARED",
    "SMALL",
    "Cluster",
    "ClusterJob",
    "ClusterScheduler",
    "ClusterSite",
    "Factors",
    "Stream",
    "Window",
    "generate_for",
    "run_cluster",
]
