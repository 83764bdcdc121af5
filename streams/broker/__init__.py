"""Kafka as the broker has it: the topics' names (`topics`) and the topics themselves (`admin`), their records' schema,
whether a broker answers (`reachable`), and what to tell of its errors (`errors`).
"""
