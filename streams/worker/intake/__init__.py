"""What comes from Kafka, read: is it an event, may it come here, what does it ask for."""
