"""Waits by simulating the scheduler in a learned order of the queue."""

from models.waits.order.learnt_order import LearntOrder

__all__ = ["LearntOrder"]
