"""What works on whole traces in this process, without Kafka and Redis: replay, compare, simulate, tune.

Nothing here runs in a worker.
"""
