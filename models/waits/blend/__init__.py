"""The blend: what several methods say of a wait, mixed by how well each did lately, with bounds that hold.

- `mixture`: how the experts are weighed, by Bernstein online aggregation (Wintenberger 2017), and how far a bound is
  shifted, by quantile tracking (Gibbs and Candès 2021; Angelopoulos, Candès and Tibshirani 2023). A weighted median of
  the experts would be slower to move, and the exponentiated gradient needs a rate to be chosen; here each expert has
  its own, from its regrets.
- `quantiles`: each bound apart, for each kind of job: by how long the site's mixture says that it waits. A kind of
  which little is known leans on the site.
- `guard`: the estimate that is given: the mixture's, medians of the experts, or the mean of the two that were nearest
  lately, by their errors in the last week.
- `at_once`: the probability that a wait is under a minute.
- `deadlines`: a job that queues beyond a bound is known to exceed it, long before it starts. Of a burst of jobs that
  were all told the same, the first few count so, and the others when they leave.
- `conditional`: what is left of a wait.

Every estimate counts once its job has started, or as soon as it is known on which side of it the wait will be. A job
that was cancelled counts as if it had started then, as in the measures. Jobs of one user that queue together knew no
more than the first of them, and are little more evidence than that one. Before anything was learnt experts weigh as
they proved at other sites; that fades.
"""

from models.waits.blend.method import Blend

__all__ = ["Blend"]
