"""Waits and run times from the nearest jobs: instance-based learning (Li, Groep and Wolters 2005).

A job is compared with the last few thousand by its attributes (table 1) and, for waits, by the running and queued jobs
that each found at its submission (table 3), in categories by the policy attributes (table 2): where a site shares its
processors between groups, it matters whose jobs wait. The prediction is the mean or median of the nearest jobs' waits
or run times; the response time is the sum of the two. `models.papers.search.ibl` finds the attributes to compare by.

Misprints that are corrected here: overlap(x, y) is 0 for equal values, the distance of vectors sums |x - y|, and wp, ws
and wa are the weights of policy, state and job.

What the paper leaves open, or does in another way, and how it was settled, stands in `docs/research/papers.md`.
"""

from models.papers.ibl.method import Ibl, IblParameters, IblRuns

__all__ = ["Ibl", "IblParameters", "IblRuns"]
