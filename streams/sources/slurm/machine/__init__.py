"""The machine as Slurm tells it: nodes, partitions, reservations and limits, as one event."""
