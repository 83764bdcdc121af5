"""The side that asks and reads: over Kafka or HTTP, cached estimates, rankings, `watch`. No worker runs it."""
