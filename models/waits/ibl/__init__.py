"""Waits and run times from the nearest jobs: instance-based learning (Li, Groep and Wolters 2005).

A job is compared with the last few thousand by its attributes (table 1) and, for waits, by the running and queued jobs
that each found at its submission (table 3), categorised by the policy attributes (table 2): a site that serves its
groups by shares is in another state where it is another group's jobs that wait. The prediction is the middle of the
nearest jobs' waits or run times; the response time is the sum of the two. `models.search.ibl` finds what to compare by.

Put right, as printed it cannot be: overlap(x, y) is 0 for equals, the vectors' distance sums |x - y|, and wp, ws and wa
are the policy's, the state's and the job's weights.

What the paper leaves open or has otherwise, and how it was settled:

- *The middle* of waits is the median under the paper's kernel; that of run times is the paper's mean. Waits are skewed:
  one long wait among many jobs that started at once draws a mean far from them.
- *The defaults* did best, on average, on jobs numbered up to 20000 of four traces. A search over a few hundred jobs
  finds what is 5 % better on these and 7 % worse on others like them, so what it found was compared again on 1500 of
  each, among its like. A site's own search wants thousands of jobs.
- *The queue* may be one of the job's attributes, too.
- *Of jobs equally near* the latest count.
- *Two states without any job* are equal. A state stored by another policy than is in force is unknown.
- *Run times still needed* are those that the site's method for run times predicted at submission (section 4.2.2), or
  the walltime where it predicted none; a job that has run for longer needs nothing.
- *A job that runs already* is compared with those that ran longer, and no run time is above the walltime.
"""

from models.waits.ibl.method import Ibl, IblRuns, Parameters

__all__ = ["Ibl", "IblRuns", "Parameters"]
