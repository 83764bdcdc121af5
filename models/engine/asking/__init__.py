"""Answers of an engine: what-if, why a job waits, a user's jobs, the site. Read-only: answers do not change state."""
