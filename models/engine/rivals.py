"""What others expect of the queued jobs, such as the scheduler itself: kept to be scored beside the methods."""

from collections.abc import Container, Iterator

from models.engine.live import LiveJobs
from models.engine.outgoing import Anomaly
from models.records import ExpectedStart
from models.site.state import Estimate, Phase


class Rivals:
    """Notes the first start that each of them expects of a queued job, as an estimate of its wait.

    Parameters:
        taken: the names of the methods, which no rival may have.
    """

    def __init__(self, live: LiveJobs, taken: Container[str]) -> None:
        self._live = live
        self._taken = taken

    def expect(self, event: ExpectedStart) -> Iterator[Anomaly]:
        """Somebody expects a job to start."""
        job = self._live.get(event.key)
        if job is None or job.phase not in (Phase.QUEUED, Phase.HELD):
            yield Anomaly("expected_start_of_job_not_queued", f"job {event.job} is not queued")
        elif event.by in self._taken:
            yield Anomaly("expected_start_by_a_method", f"job {event.job}: {event.by!r} is a method's name")
        elif event.by not in job.estimates:
            wait_s = max(event.expected - job.ready, 0.0)
            job.estimates[event.by] = Estimate(wait_s, f"expected by {event.by}")
