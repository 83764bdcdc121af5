"""What changes while a job stays where it is: it stands still, or its request is altered; and the site's size."""

from collections.abc import Iterable, Iterator

from models.engine.attempts.handler import AttemptHandler
from models.engine.outgoing import Anomaly, Record, stale
from models.method import Happened
from models.records import Alter, Capacity, Resume, Suspend
from models.site.clock import MAX_AHEAD_S


class InPlace(AttemptHandler):
    """Running jobs that stand still, requests that are altered, and what the site has."""

    def suspend(self, event: Suspend) -> Iterator[Record]:
        """A running job stands still."""
        return self._stand_still(event, self._suspensions.suspend(event), Happened.SUSPENDED)

    def resume(self, event: Resume) -> Iterator[Record]:
        """A job that stood still runs on."""
        return self._stand_still(event, self._suspensions.resume(event), Happened.RESUMED)

    def _stand_still(self, event: Suspend | Resume, refused: Iterable[Anomaly], what: Happened) -> Iterator[Record]:
        """Methods see it, unless it is refused."""
        anomalies = list(refused)
        job = self._live.get(event.key)
        if not anomalies and job is not None:
            self._observe(job, what, event.time)
        yield from anomalies

    def alter(self, event: Alter) -> Iterator[Record]:
        """A job's request is another now, so it is estimated again."""
        yield from self._parts.alters.alter(event)
        job = self._live.get(event.key)
        if job is not None:
            self._reestimates.watch(job)

    def take_capacity(self, event: Capacity) -> Iterator[Record]:
        """The site says what it has, unless it has said something later."""
        known, latest = self._context.capacity, max(self._parts.clock.now, self._parts.arrived or 0.0) + MAX_AHEAD_S
        if known is not None and event.time < known.time <= latest:
            yield stale(event)
        else:
            self._context.resize(event)
