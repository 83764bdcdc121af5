"""Waits by boosted trees alone, which have an order of their own to simulate a schedule; see the package."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import tee

import msgspec

from models.method import JobTransition, SiteContext, WaitMethod
from models.site.job import Estimate, Job
from models.stored_values import encode, reader
from models.waits.boosted.boosted import Boosted
from models.waits.boosted.forests import MEDIAN, ForestsSnapshot
from models.waits.order import LearntOrder


class _SavedAlone(msgspec.Struct, array_like=True, frozen=True):
    forests: bytes
    order: bytes


_read = reader(_SavedAlone, "a saved state")


class BoostedAlone(Boosted):
    """Waits by boosted trees; see the package.

    Args:
        parameters: those of `BoostedParameters`.
    """

    def __init__(self, **parameters: object) -> None:
        super().__init__(**parameters)
        self._order = LearntOrder()

    @property
    def parts(self) -> Mapping[str, WaitMethod]:
        """The order."""
        return {"order": self._order}

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        """Predict the wait, and its quantiles; none before the first training is done if there is no prior."""
        return self._estimate(self.estimate_given_schedule(job, context, self._order.predict(job, context).wait_s))

    def notice(self, job: Job, context: SiteContext) -> None:
        """Note the features of an old job. No training begins for old jobs."""
        self.see(job, context, self._order.predict(job, context).wait_s)

    def what_ifs(self, jobs: Iterable[Job], context: SiteContext) -> Iterator[Estimate]:
        """Return what `predict` would return for each job."""
        originals, copy = tee(jobs)
        for job, simulated in zip(originals, self._order.what_ifs(copy, context), strict=True):
            yield self._estimate(self.consider(job, context, simulated.wait_s))

    def _estimate(self, snapshot: ForestsSnapshot | None) -> Estimate:
        if snapshot is None:
            return Estimate(None, "no model yet")
        bounds = {f"{q:g}": wait_s for q, wait_s in snapshot.quantiles.items()} if self.parameters.quantiles else None
        model = self.training.model
        reason = f"boosted: {'jobs of other sites' if model is None else f'{model.jobs} jobs'}"
        return Estimate(snapshot.quantiles[MEDIAN], reason, bounds, degraded=snapshot.unlike)

    def observe(self, job: Job, what: JobTransition, at: float, context: SiteContext) -> None:
        """Pass the transition to the order."""
        self._order.observe(job, what, at, context)

    def save(self) -> bytes:
        """Serialize the state that the rows do not contain; 30 KB, up to 90 KB while many jobs start together."""
        return encode(_SavedAlone(super().save(), self._order.save()))

    def load(self, saved: bytes) -> None:
        """Restore the state from `save`, and lay out the rows.

        Raises:
            ValueError: it is not such a state.
        """
        found = _read(saved)
        super().load(found.forests)
        self._order.load(found.order)
