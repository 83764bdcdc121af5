"""The HTTP service, for people and programs that do not use Kafka: `web` has the paths, `service` the answers.

No state is stored in here: estimates are read from their topic, everything else is asked of the workers.
"""
