"""Logs in bulk: files as one log in the order of time, and what can be said of it. No predictions, no servers."""
