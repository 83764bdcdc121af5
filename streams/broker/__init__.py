"""Kafka as the broker has it: the topics' names (`topics`) and the topics themselves (`admin`), their records' schema,
aiokafka's clients (`consumer`).
"""
