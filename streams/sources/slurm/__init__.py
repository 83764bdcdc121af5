"""Slurm: convert the output of its tools and services to events.

Each input gives rows, one per attempt of a job (`rows.JobRow`). `text` reads the text of sacct, `json_jobs` the JSON of
squeue, slurmrestd and sacct, `jobcomp` the records that slurmctld sends to Kafka.
"""
