"""Kueue on Kubernetes: the cluster with the best estimate, and when each workload is expected to start."""
