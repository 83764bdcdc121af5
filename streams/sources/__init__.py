"""Where events come from: one scheduler or file format a file, all under one contract; and the publisher.

Nothing here knows of predictions.
"""
