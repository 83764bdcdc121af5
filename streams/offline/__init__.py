"""What works on whole traces in this process, without servers: replay, compare, simulate, tune. No worker runs it."""
