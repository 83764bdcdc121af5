"""The partitions that are this worker's: their sites, and what is done with each of their messages."""
