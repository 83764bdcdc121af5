"""Benchmark: Slurm's own start times and queuecast's predictions, of the same jobs of a real Slurm.

`make bench-slurm` runs it. docs/research/slurm-estimates.md describes the setup and the result.
"""
