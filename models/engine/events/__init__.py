"""Handlers for single kinds of events, where these take more than a few lines of the engine."""
