"""What is known of the sites so far: their live jobs, and the accuracy of each method; told in a table."""

import msgspec

from deploy.local.demo.scenario import DAY_S, Scenario
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.records import Outcome, Prediction
from models.registry import TRIVIAL
from streams.client.watch import SkippedRecord
from streams.offline.replay import ReplayScores
from streams.text.terminal import span


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

    def table(self) -> tuple[list[str], list[list[str]]]:
        """How it stands, a row a site: live jobs, each method's mean error, what came true of the latest job."""
        begin, end = self.scenario.begin, self.scenario.last
        day = f"day {int((self.time - begin) / DAY_S) + 1} of {int((end - begin) / DAY_S) + 1}"
        methods = dict.fromkeys((self.method, *TRIVIAL))
        rows = []
        for name, site in self.sites.items():
            errors = {method: 3600 * row["AAE"] for method, row in site.scores.rows().items()}
            live = [str(max(count, 0)) for count in (site.queued, site.running)]
            rows.append([name, *live, *(span(errors.get(method)) for method in methods), *_came_true(site.latest)])
        return [day, "queued", "running", *methods, "predicted", "90 %", "waited"], rows

    def summary(self) -> str:
        """Over which jobs the methods are measured."""
        first = int((self.scenario.measured_from - self.scenario.begin) / DAY_S) + 1
        text = (
            f"Measured: jobs submitted from day {first} on; those before filled the history. AAE is the mean absolute "
            "error; x2 and 10min are the shares predicted within a factor of 2 or 10 min; cov 0.9 is the share that "
            "started within the bound of 90 %."
        )
        if self.predicted < self.scenario.jobs:
            text += f" This machine was slow, so {self.predicted} of {self.scenario.jobs} jobs were played."
        return text


def _came_true(outcome: Outcome | None) -> list[str]:
    """What was predicted of a job, and its wait; of one that was given up that is longer."""
    if outcome is None:
        return ["–"] * 3
    bound_s = (outcome.bounds or {}).get("0.9")
    longer = ">" if outcome.censored else ""
    return [span(outcome.predicted_wait_s), span(bound_s), longer + span(outcome.actual_wait_s)]
