"""Slurm: what it says of its jobs, by whichever way, as events.

Each way gives rows, one for one attempt at a job as it is known there (`rows.JobRow`): `text` reads those of sacct's
text, `json_jobs` those of squeue, slurmrestd and sacct as JSON, `jobcomp` the records that slurmctld sends to Kafka.
"""
