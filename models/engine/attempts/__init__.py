"""What events do to a job on its way: it enters the queue, starts, and leaves."""
