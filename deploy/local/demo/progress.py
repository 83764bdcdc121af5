"""What is known of the sites so far: their live jobs, and the accuracy of each method."""

import msgspec

from deploy.local.demo.scenario import DAY_S, Scenario
from models.durations import duration
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.records import Outcome, Prediction
from streams.client.watch import SkippedRecord
from streams.offline.replay import ReplayScores


class SiteProgress:
    """What is known of a site so far: its live jobs, the latest outcome, the accuracy of each method."""

    def __init__(self, method: str, measured_from: float) -> None:
        self.scores = ReplayScores(lambda outcome: outcome.made_at >= measured_from)
        self.queued = 0
        self.running = 0
        self.latest: Outcome | None = None
        self._method = method

    def add(self, record: Prediction | Outcome) -> None:
        """Take in a record; the live jobs are counted by those of the default method."""
        if isinstance(record, Outcome):
            self.scores.add(record)
        if record.method != self._method:
            return
        if isinstance(record, Prediction):
            self.queued += 1
        elif record.actual_run_s is not None:
            self.running -= 1
        else:
            self.queued -= 1
            self.running += not record.censored
            self.latest = record


class DemoProgress:
    """What is known of all sites so far."""

    def __init__(self, scenario: Scenario, engine: EngineSettings) -> None:
        self.scenario = scenario
        self.method = engine.method
        self.sites = {name: SiteProgress(engine.method, scenario.measured_from) for name in scenario.sites}
        self.records = 0
        self.predicted = 0
        self.time = scenario.begin

    def add(self, record: Record | SkippedRecord) -> None:
        """Take in a record; predictions come before what becomes of them, but for a moment.

        Later estimates of a job that still queues are not counted: how many there are, nobody can know beforehand.
        """
        if isinstance(record, Prediction) and record.waited_s is not msgspec.UNSET:
            return
        if isinstance(record, Prediction | Outcome):
            self.records += 1
            self.sites[record.site].add(record)
        if isinstance(record, Prediction):
            self.predicted += record.method == self.method
            self.time = max(self.time, record.made_at)

    @property
    def measuring(self) -> bool:
        """Whether the history has been filled."""
        return self.time >= self.scenario.measured_from

    def errors(self, site: SiteProgress) -> dict[str, str]:
        """A site's mean errors so far, the default method first."""
        rows = site.scores.rows()
        return {name: duration(rows[name]["AAE"] * 3600) for name in sorted(rows, key=lambda name: name != self.method)}

    @property
    def day(self) -> str:
        """The day that the events have reached, of how many."""
        begin, end = self.scenario.begin, self.scenario.last
        return f"day {int((self.time - begin) / DAY_S) + 1} of {int((end - begin) / DAY_S) + 1}"
