"""What an operator may change at a site, beside what its events say."""

import msgspec

from models.engine.engine import Engine
from models.records import Capacity, ForgetJob, SetCapacity


def operate(engine: Engine, operation: ForgetJob | SetCapacity) -> str:
    """Change the site as the operator says; returns in words what was done. O(1)."""
    if isinstance(operation, SetCapacity):
        return _set_capacity(engine, operation)
    return engine.forget_job((operation.job, operation.attempt))


def _set_capacity(engine: Engine, operation: SetCapacity) -> str:
    """The site's own next `capacity` event counts again: this one is as old as the site's last event.

    What the site said of pools and partitions stays.
    """
    known = engine.context.capacity or Capacity(site=engine.site, time=0.0, cpus=0)
    size = {"cpus": operation.cpus, "nodes": operation.nodes, "down_nodes": operation.down_nodes}
    engine.context.resize(msgspec.structs.replace(known, time=engine.time, **size))
    return f"the site has {operation.cpus} processors"
