"""What a worker tells beside the events: grid estimates, and answers to questions."""
