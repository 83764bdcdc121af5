"""Topology of a site: pools of nodes, the partitions that use them, and the areas in which jobs compete.

- `topology`: pools, partitions and areas; requests of jobs, the pools where they fit, and their demand there.
- `layout`: the capacity of an area over time, with reservations; it is compiled, so import it explicitly.
- `refusals`: why a job can never run.

A job uses CPUs, GPUs and memory. In an area with few nodes its parts, such as tasks, are placed on nodes. A larger area
is modelled as divisible pools: a job fits if the shares of it that the pools can take sum up to one. This ignores the
placement on nodes within a pool: 16 free CPUs on 16 nodes count as much as 16 on one. The needs of a job on a single
node only decide which pools are possible at all.
"""

from models.site.topology.refusals import cannot_run
from models.site.topology.topology import Area, ResourceRequest, Topology, request_of

__all__ = ["Area", "ResourceRequest", "Topology", "cannot_run", "request_of"]
