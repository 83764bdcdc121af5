"""What operators use: the doctor, which looks at every part of a deployment and says what is wrong.

Nothing here runs in a worker.
"""
