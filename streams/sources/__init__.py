"""Where events come from: one scheduler or file format a file, all under one contract; and the publisher.

Nothing here knows of predictions. How to add a source is told, with an example, in docs/howto/source.md.
"""
