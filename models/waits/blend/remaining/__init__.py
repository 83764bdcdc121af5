"""The remaining wait of a queued job, estimated from the state of the site now (dynamic prediction by landmarking).

H. van Houwelingen, "Dynamic prediction by landmarking in event history analysis", Scandinavian Journal of Statistics 34
(2007): a model is trained on all jobs that still wait at an age, on the data available at that age, and predicts the
remaining time. Here one model serves all ages, and the age is one of its features.

- `ages`: the classes of ages. A job gives at most one training row per class.
- `queued_features`: the state of a queued job at a moment, as one row of numbers; `snapshot` computes them.
- `experts`: the forests, the conditional first estimate, the simulated schedule and two baselines, weighted by their
  recent errors at the same age.
- `calibration`: shifts of the bounds by age class, for the right coverage.
- `landmark_forests`: the forests, their prior of other sites, and the jobs that they are trained on.
- `remaining_wait`: notes the landmarks of queued jobs, and combines all of it.
"""

from models.waits.blend.remaining.remaining_wait import RemainingWait

__all__ = ["RemainingWait"]
