"""What operators run by hand: `doctor` checks every part of a deployment and says what is wrong.

Nothing in here runs in a worker.
"""
