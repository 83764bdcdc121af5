"""Those who ask and those who watch: questions and answers over Kafka or HTTP, standing estimates, rankings.

Nothing here runs in a worker.
"""
