"""Deterministic simulation of workers: one seed decides every delay, fault, crash and rebalance."""
