"""What a worker tells beside the events: standing estimates, and answers to questions."""
