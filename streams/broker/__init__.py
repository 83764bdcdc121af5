"""Access to Kafka: topic names (`topics`), topic administration (`admin`), record schemas and aiokafka clients
(`consumer`).
"""
