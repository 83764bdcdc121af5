"""The policy that a site runs, if it is one of those that `Policy` simulates and nearer to its waits than `order`."""

from collections.abc import Iterable, Iterator

import msgspec

from models.method import SiteContext
from models.records import JobKey
from models.site.state import Estimate, Job
from models.waits.policy import ERROR_DECAY, MAX_ERROR_RATIO, MIN_TRIED_JOBS, Policy

EVERY = 16
"""One of so many submissions is tried with every policy: half as many as `Policy` tries by itself."""

LEARNING_JOBS = 100
"""Started jobs from which the order is learnt before both are compared."""

NOTHING = Estimate(None, "the learnt order is nearer")


class _Saved(msgspec.Struct, array_like=True, frozen=True):
    policy: bytes
    told: list[tuple[JobKey, tuple[float, float]]]
    errors: tuple[float, float]
    jobs: int


class SitePolicy(Policy):
    """`Policy`, which says something only where its waits have been nearer to the true ones than those of `order`.

    Both are compared on the jobs that `Policy` tries. So a site with an order of its own does not pay for a second
    simulation of each job: 2 to 9 ms with 1000 queued and 1000 running jobs.
    """

    def __init__(self) -> None:
        super().__init__(every=EVERY)
        self._told: dict[JobKey, tuple[float, float]] = {}  # of tried jobs: the waits by the policy and by the order
        self._nearness = (0.0, 0.0)  # the errors of both, earlier ones with less weight
        self.compared = 0
        """Tried jobs that have started."""

    @property
    def is_nearer(self) -> bool:
        """Whether the policy predicts: its error is less than that of the order, as `Policy` asks of one policy."""
        policy_s, order_s = self._nearness
        return self.compared >= MIN_TRIED_JOBS and policy_s <= MAX_ERROR_RATIO * order_s

    def beside(self, job: Job, context: SiteContext, order: Estimate) -> Estimate:
        """The wait of a job for which `order` says this; none where the order is nearer."""
        estimate = self.best.predict(job, context) if self.is_nearer else NOTHING
        self.notice(job, context)
        tried = self._pending.get(job.key)
        if tried is not None and order.wait_s is not None and context.history.count >= LEARNING_JOBS:
            self._told[job.key] = tried[self.best.name], order.wait_s
        return estimate

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """What `beside` would say of each."""
        return super().what_ifs(jobs, context) if self.is_nearer else (NOTHING for _ in jobs)

    def learn(self, job: Job, wait_s: float, context: SiteContext) -> None:
        """A job started: if it was tried, both errors are known."""
        super().learn(job, wait_s, context)
        told = self._told.pop(job.key, None)
        if told is not None:
            self.compared += 1
            policy_s, order_s = (
                ERROR_DECAY * error_s + abs(said_s - wait_s)
                for error_s, said_s in zip(self._nearness, told, strict=True)
            )
            self._nearness = policy_s, order_s

    def forget(self, key: JobKey) -> None:
        """The job's wait will not be known."""
        super().forget(key)
        self._told.pop(key, None)

    def save(self) -> bytes:
        """What `Policy` saves, and how both compare."""
        saved = _Saved(super().save(), list(self._told.items()), self._nearness, self.compared)
        return msgspec.msgpack.encode(saved)

    def load(self, saved: bytes) -> None:
        """Take back what `save` gave."""
        kept = msgspec.msgpack.decode(saved, type=_Saved)
        super().load(kept.policy)
        self._told, self._nearness, self.compared = dict(kept.told), kept.errors, kept.jobs
