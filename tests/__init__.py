"""Tests; they mirror the rooms that they test. What they share is in `support`."""
