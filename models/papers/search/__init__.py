"""Searches for the parameters and templates of methods, offline, on a workload; no worker runs them."""
