"""How queuecast runs: the local stack, and the descriptions of larger ones."""
