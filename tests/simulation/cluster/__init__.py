"""A simulated site of real nodes: partitions, GPUs, memory, limits, maintenance, and the scheduler that runs it.

Predictions take larger sites for divisible resources in pools, and are not told where jobs lie. Here each task has its
place on a node, so that predictions are tested against something truer than what they assume. Deterministic from a
seed.

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
