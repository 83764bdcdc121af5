"""The side that asks and reads: questions and answers over Kafka or HTTP, cached estimates, rankings, `watch`.

Nothing in here runs in a worker.
"""
