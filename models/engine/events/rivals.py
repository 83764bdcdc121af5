"""What others expect of the queued jobs, such as the scheduler itself: kept to be scored beside the methods."""

from collections.abc import Iterator

from models.engine.live import LiveJobs
from models.engine.outgoing import Anomaly
from models.engine.scores import MAX_RIVALS, Scores
from models.records import ExpectedStart
from models.registry import METHODS, RUN_METHODS
from models.site.job import Estimate, Phase


class Rivals:
    """Notes the first start that each of them expects of a queued job, as an estimate of its wait; 3 µs."""

    def __init__(self, live: LiveJobs, scores: Scores) -> None:
        self._live = live
        self._scores = scores

    def expect(self, event: ExpectedStart) -> Iterator[Anomaly]:
        """Somebody expects a job to start; what the same one says of it later changes nothing."""
        job, name = self._live.get(event.key), event.by
        if job is None or job.phase not in (Phase.QUEUED, Phase.HELD):
            yield Anomaly("expected_start_of_job_not_queued", f"job {event.job} is not queued")
        elif name in METHODS or name in RUN_METHODS:
            yield Anomaly("expected_start_by_a_method", f"job {event.job}: {name!r} is a method's name")
        elif not self._known(name):
            yield Anomaly("too_many_rivals", f"job {event.job}: by {name!r}, and {MAX_RIVALS} others do already")
        elif name not in job.estimates:
            job.estimates[name] = Estimate(max(event.expected - job.ready, 0.0), "")

    def _known(self, name: str) -> bool:
        """Whether this one's expectations are kept."""
        if name in self._scores.rivals:
            return True
        if len(self._scores.rivals) == MAX_RIVALS:
            return False
        self._scores.add_rival(name)
        return True
