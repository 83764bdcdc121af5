"""A light method: where the worker is measured, and not what it predicts with."""

LIGHT = {"method": "qespera", "bounds": "qbets", "what_if": "policy"}
"""Settings of the engine under which a prediction takes 0.2 ms."""
