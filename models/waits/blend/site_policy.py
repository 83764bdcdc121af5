"""The policy that a site runs, if it is one of those that `Policy` simulates and nearer to its waits than `order`."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from models.method import SiteContext
from models.site.job import Estimate, Job
from models.stored import encode, reader
from models.waits.policy import MAX_ERROR_RATIO, MAX_LIVE_JOBS, MIN_TRIED_JOBS, Policy

EVERY = 16  # one of so many submissions is tried with every policy: half as many as `Policy` tries by itself

DECAY = 0.97
"""The weight of earlier errors shrinks by this factor with each try: after a change of policy, some 30 tries tell."""

AS_NEAR = 1.05
"""Where simulated waits are nearly as good as the mixture, the policy predicts up to this share of the order's error: a
site's own schedule is not much nearer to the waits, for jobs that come later decide them, but jobs are routed better by
it. Elsewhere, as on the real traces, a policy beside the order costs PPE and waits within a factor of 2."""

LEARNING_JOBS = 100  # started jobs from which the order is learnt before both are compared
ORDER = "order"  # under this the order's wait stands beside those by the policies
NOTHING = Estimate(None, "the learnt order is nearer")
TOO_MANY = Estimate(None, "too many live jobs to be tried")
TOPOLOGY = Estimate(None, "no policy knows of partitions and limits")


class _Saved(msgspec.Struct, array_like=True, frozen=True):
    """What is saved."""

    policy: bytes
    jobs: int
    errors: dict[str, float]


class SitePolicy(Policy):
    """`Policy`, which says something only where its waits have been nearer to the true ones than those of `order`.

    The order is compared with the policy that is best now, by the tries of late. So a site with an order of its own
    does not pay for a second simulation of each job: 2 to 9 ms with 1000 queued and 1000 running jobs. With more live
    jobs than are tried it says nothing.

    Nor where the site tells its topology. No policy knows of limits, tiers and reservations, so one that was nearer for
    some thirty tries, while these held nobody back, is far off as soon as they do.

    Parameters:
        simulates_well: tells whether simulated waits have been nearly as good as the mixture of late.
    """

    def __init__(self, simulates_well: Callable[[], bool] = lambda: False) -> None:
        super().__init__(every=EVERY, decay=DECAY)
        self._simulates_well = simulates_well
        self._compared = dict.fromkeys((*self._policies, ORDER), 0.0)  # errors, earlier ones with less weight
        self.compared = 0  # tried jobs that have started, of which the order said something too

    @property
    def is_nearer(self) -> bool:
        """Whether the policy predicts: its error is less than that of the order, as `Policy` asks of one policy, or
        about the same where the site is simulated well.
        """
        most = AS_NEAR if self._simulates_well() else MAX_ERROR_RATIO
        nearer = self._compared[self.best.name] <= most * self._compared[ORDER]
        return self.compared >= MIN_TRIED_JOBS and nearer

    def beside(self, job: Job, context: SiteContext, order: Estimate) -> Estimate:
        """The wait of a job for which `order` says this; none where the order is nearer."""
        if context.layout is not None:
            return TOPOLOGY
        estimate = NOTHING
        if self.is_nearer:
            estimate = TOO_MANY if len(context.state) > MAX_LIVE_JOBS else self.best.predict(job, context)
        self.notice(job, context)
        tried = self.per_job.get(job.key)
        if tried is not None and order.wait_s is not None and context.history.count >= LEARNING_JOBS:
            self.per_job.put(job.key, tried | {ORDER: order.wait_s})
        return estimate

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """What `beside` would say of each."""
        if context.layout is not None:
            return (TOPOLOGY for _ in jobs)
        if not self.is_nearer:
            return (NOTHING for _ in jobs)
        if len(context.state) > MAX_LIVE_JOBS:
            return (TOO_MANY for _ in jobs)
        return super().what_ifs(jobs, context)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started: if it was tried, the errors are known."""
        tried = self.per_job.get(job.key) or {}
        super().learn(job, wait_s, context)
        if ORDER in tried:
            self.compared += 1
            for name, error_s in self._compared.items():
                self._compared[name] = DECAY * error_s + abs(tried[name] - wait_s)

    def save(self) -> bytes:
        """What `Policy` saves, and how all compare."""
        return encode(_Saved(super().save(), self.compared, self._compared))

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
        found = _read(saved)
        if found.errors.keys() != self._compared.keys():
            raise ValueError(f"errors of {', '.join(sorted(found.errors))}; expected {', '.join(self._compared)}")
        super().load(found.policy)
        self._compared, self.compared = found.errors, found.jobs


_read = reader(_Saved, "what the site's policy saved")
