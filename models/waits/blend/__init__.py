"""The blend: an online ensemble of wait estimates, weighted by recent accuracy, with calibrated bounds.

- `mixture`: the weights of the experts, by Bernstein online aggregation (Wintenberger 2017), and the shift of each
  bound, by quantile tracking (Gibbs and Candès 2021; Angelopoulos, Candès and Tibshirani 2023). A weighted median of
  the experts would adapt more slowly, and the exponentiated gradient needs a learning rate. Here each expert has its
  own rate, from its regrets.
- `quantiles`: each bound separately, for each kind of job. The kind is the wait that the site's mixture predicts. A
  kind with little data relies on the site.
- `guard`: the final estimate: the mixture, medians of the experts, the mean of the two experts that were closest
  recently, or that of the mixture and a schedule with later arrivals, chosen by their errors in the last week.
- `at_once`: the probability that a wait is under a minute.
- `deadlines`: a job that queues longer than a bound exceeds it, long before it starts. In a burst of jobs with the
  same prediction, the first few count at that time, and the others when they leave.
- `conditional`: the remaining wait.

Every estimate is scored when its job has started, or as soon as the wait is certain to be above it. A job that was
cancelled counts as if it had started then, as in the accuracy measures. Jobs of one user that queue together have no
more information than the first of them, so they are little more evidence than one job. Before any training the experts
have their weights from other sites; these fade.
"""

from models.waits.blend.blend import Blend

__all__ = ["Blend"]
