"""Trainings in a process of their own: `processes` has the queue and starts the process, `child` is what it runs."""
