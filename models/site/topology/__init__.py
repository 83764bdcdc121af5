"""What a site consists of: pools of nodes, the partitions that use them, and the areas in which jobs compete.

- `topology`: pools, partitions, areas; what a job asks for but its times, in which it may run, what it takes there.
- `layout`: what an area holds as time goes on, with reservations ahead; compiled, so whoever needs it imports it.
- `reasons`: why a job can never run.

A job holds processors, GPUs and memory. In an area of few nodes it lies on these in parts, such as tasks. A larger area
is taken for divisible pools: a job fits where the shares of it that the pools can take sum up to one. Left out there is
how jobs lie on the nodes within a pool: 16 processors that are free on 16 nodes count as much as 16 on one, and what a
job needs of a single node decides only which pools are possible at all.
"""

from models.site.topology.reasons import cannot_run
from models.site.topology.topology import Area, Ask, Topology, ask_of

__all__ = ["Area", "Ask", "Topology", "ask_of", "cannot_run"]
