"""Decode and validate messages from Kafka."""
