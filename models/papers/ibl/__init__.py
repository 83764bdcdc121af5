"""Waits and run times from the nearest jobs: instance-based learning (Li, Groep and Wolters 2005).

A job is compared with the last few thousand by its attributes (table 1) and, for waits, by the running and queued jobs
that each found at its submission (table 3), in categories by the policy attributes (table 2): where a site shares its
processors between groups, it matters whose jobs wait. The prediction is the mean or median of the nearest jobs' waits
or run times; the response time is the sum of the two. `models.papers.search.ibl` finds the attributes to compare by.

Misprints that are corrected here: overlap(x, y) is 0 for equal values, the distance of vectors sums |x - y|, and wp, ws
and wa are the weights of policy, state and job.

What the paper leaves open, or does in another way, and how it was settled:

- *The middle* of waits is the median under the paper's kernel; that of run times is the paper's mean. Waits are skewed:
  one long wait among many jobs that started at once pulls a mean far away from them.
- *The defaults* did best, on average, on jobs numbered up to 20000 of four traces. Parameters from a search over a few
  hundred jobs were 5 % better on these and 7 % worse on similar ones, so the best were compared again on 1500 jobs of
  each trace. A site's own search needs thousands of jobs.
- *The queue* may be one of the job's attributes, too.
- *Of jobs equally near* the latest count.
- *Two states without any job* are equal. A state that was stored by another policy counts as unknown.
- *Run times still needed* are those that the site's method for run times predicted at submission (section 4.2.2), or
  the walltime where it predicted none; a job that has run for longer needs nothing.
- *A job that runs already* is compared with those that ran longer, and no run time is above the walltime.
"""

from models.papers.ibl.method import Ibl, IblParameters, IblRuns

__all__ = ["Ibl", "IblParameters", "IblRuns"]
