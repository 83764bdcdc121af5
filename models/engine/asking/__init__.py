"""What an engine answers: what-if, why a job waits, a user's jobs, the site. Asking changes nothing."""
