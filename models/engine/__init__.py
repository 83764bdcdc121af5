"""Engine of one site, a fold over its events: predictions and outcomes, questions, scores, checkpoints.

Prediction methods are in `models.waits` and `models.runtimes`. No code here reads a clock or a file.
"""
