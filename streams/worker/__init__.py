"""The worker: events in, predictions out, what was learnt made durable.

Commands, clients and readers of schedulers do not live here; no other folder reaches into Faust.
"""
