"""The policy of a site's scheduler, if `Policy` simulates it and it is closer to the site's waits than `order`."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from models.method import SiteContext
from models.site.job import Estimate, Job
from models.stored_values import encode, reader
from models.waits.policy import MAX_ERROR_RATIO, MAX_LIVE_JOBS, MIN_TRIED_JOBS, Policy

EVERY = 16  # one of this many submissions is tried with every policy: half as many as `Policy` tries by itself

DECAY = 0.97
"""Factor by which each trial reduces the weight of earlier errors: after a change of policy, some 30 trials are
enough."""

AS_NEAR = 1.05
"""If simulated waits are nearly as accurate as the mixture, the policy predicts up to this factor of the order's error.
A site's own schedule is not much closer to the waits, since later jobs decide them, but it routes jobs better. At other
sites, as on the real traces, a policy beside the order reduces the accuracy: PPE and waits within a factor of 2."""

LEARNING_JOBS = 100  # started jobs from which the order is learned before both are compared
ORDER = "order"  # key of the order's wait beside those of the policies
NOTHING = Estimate(None, "the learned order is closer")
TOO_MANY = Estimate(None, "too many live jobs to try")
TOPOLOGY = Estimate(None, "policies do not simulate partitions and limits")


class _SavedPolicy(msgspec.Struct, array_like=True, frozen=True):
    """Serialized state."""

    policy: bytes
    jobs: int
    errors: dict[str, float]


class SitePolicy(Policy):
    """A `Policy` that predicts only where its waits have been closer to the true ones than those of `order`.

    The order is compared with the policy that is best now, on recent trials. A site with an order of its own therefore
    does not pay for a second simulation of each job. With more live jobs than the trials allow, it has no prediction.

    It has none either where the site reports its topology. No policy considers limits, tiers and reservations: a policy
    can be closer for some thirty trials while these block no job, and far off as soon as they do.

    Args:
        simulates_well: returns whether simulated waits have recently been nearly as good as the mixture.
    """

    def __init__(self, simulates_well: Callable[[], bool] = lambda: False) -> None:
        super().__init__(every=EVERY, decay=DECAY)
        self._simulates_well = simulates_well
        self._compared = dict.fromkeys((*self._policies, ORDER), 0.0)  # errors, earlier ones with less weight
        self.compared = 0  # tried jobs that have started and have an estimate by the order

    @property
    def is_nearer(self) -> bool:
        """True if the policy predicts: its error is lower than the order's by the ratio that `Policy` requires.

        Where the site is simulated well, about the same error is enough.
        """
        most = AS_NEAR if self._simulates_well() else MAX_ERROR_RATIO
        nearer = self._compared[self.best.name] <= most * self._compared[ORDER]
        return self.compared >= MIN_TRIED_JOBS and nearer

    def wait_by_policy(self, job: Job, context: SiteContext, order_s: float | None) -> Estimate:
        """Return the wait of a job whose wait in the learned order is given, in seconds; none where that is closer."""
        if context.layout is not None:
            return TOPOLOGY
        estimate = NOTHING
        if self.is_nearer:
            estimate = TOO_MANY if len(context.state) > MAX_LIVE_JOBS else self.best.predict(job, context)
        self.notice(job, context)
        tried = self.per_job.get(job.key)
        if tried is not None and order_s is not None and context.history.count >= LEARNING_JOBS:
            self.per_job.put(job.key, tried | {ORDER: order_s})
        return estimate

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Return what `wait_by_policy` would return for each job."""
        if context.layout is not None:
            return (TOPOLOGY for _ in jobs)
        if not self.is_nearer:
            return (NOTHING for _ in jobs)
        if len(context.state) > MAX_LIVE_JOBS:
            return (TOO_MANY for _ in jobs)
        return super().what_ifs(jobs, context)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """Update the errors with a job that started, if it was tried."""
        tried = self.per_job.get(job.key) or {}
        super().learn(job, wait_s, context)
        if ORDER in tried:
            self.compared += 1
            for name, error_s in self._compared.items():
                self._compared[name] = DECAY * error_s + abs(tried[name] - wait_s)

    def save(self) -> bytes:
        """Serialize the state of `Policy` and the comparison."""
        return encode(_SavedPolicy(super().save(), self.compared, self._compared))

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`."""
        found = _read(saved)
        if found.errors.keys() != self._compared.keys():
            raise ValueError(f"errors of {', '.join(sorted(found.errors))}; expected {', '.join(self._compared)}")
        super().load(found.policy)
        self._compared, self.compared = found.errors, found.jobs


_read = reader(_SavedPolicy, "what the site's policy saved")
