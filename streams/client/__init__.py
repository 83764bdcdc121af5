"""Clients: queries over Kafka or HTTP, cached estimates, rankings, `watch`. Workers do not use this package."""
