"""Waits and run times from the nearest jobs: instance-based learning (Li, Groep and Wolters 2005).

A job is compared with the last few thousand jobs by its attributes (table 1). For waits it is also compared by the
running and queued jobs at its submission (table 3), in categories by the policy attributes (table 2). Where a site
shares its CPUs between groups, the owners of these jobs matter. The prediction is the mean or median of the nearest
jobs' waits or run times; the response time is the sum of the two. `models.papers.search.ibl` finds the attributes to
compare.

Misprints that are corrected here: overlap(x, y) is 0 for equal values, the distance of vectors sums |x - y|, and wp, ws
and wa are the weights of policy, state and job.

`docs/research/papers.md` lists what the paper leaves open and the choices made here.
"""

from models.papers.ibl.instance_based import Ibl, IblParameters, IblRuns

__all__ = ["Ibl", "IblParameters", "IblRuns"]
