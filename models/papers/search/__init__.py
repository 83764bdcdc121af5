"""Searches for the parameters and templates of methods, offline, on a workload.

Nothing here runs in a worker, and no method imports it.
"""
