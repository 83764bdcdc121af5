"""Logs in bulk: files of one scheduler or several as one log in the order of time, and what can be said of it.

Nothing here knows of predictions, nor of servers.
"""
