"""Partitions owned by this worker: their sites, and the processing of their messages."""
