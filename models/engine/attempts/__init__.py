"""Event handlers for job attempts: submission, changes, start, and end."""
