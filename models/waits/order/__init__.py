"""Waits by simulating the scheduler in an order of the queue that is learnt: who overtakes whom."""

from models.waits.order.method import LearntOrder

__all__ = ["LearntOrder"]
