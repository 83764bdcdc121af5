"""Waits by simulating the scheduler in a learned order of the queue."""

from models.waits.order.method import LearntOrder

__all__ = ["LearntOrder"]
