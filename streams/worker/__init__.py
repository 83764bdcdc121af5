"""The worker: it consumes events, emits predictions and persists its state.

Commands, clients and scheduler sources are in other packages. Only this package uses Faust internals.
"""
