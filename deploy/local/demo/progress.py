"""What is known of the sites so far: their live jobs, and the accuracy of each method; told in lines."""

from collections.abc import Iterator

import msgspec

from deploy.local.demo.scenario import DAY_S, Scenario
from models.durations import duration
from models.engine.outgoing import Record
from models.engine.settings import EngineSettings
from models.records import Outcome, Prediction
from streams.client.watch import SkippedRecord
from streams.offline.replay import ReplayScores
from streams.text.terminal import printable


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

    def lines(self) -> Iterator[str]:
        """How it stands: a line a site."""
        begin, end = self.scenario.begin, self.scenario.last
        day = f"day {int((self.time - begin) / DAY_S) + 1} of {int((end - begin) / DAY_S) + 1}"
        for name, site in self.sites.items():
            rows = site.scores.rows()
            ours_first = sorted(rows, key=lambda method: method != self.method)
            errors = ", ".join(f"{method} {duration(rows[method]['AAE'] * 3600)}" for method in ours_first)
            state = f"mean error {errors}" if errors else "filling the history"
            latest = f"; job {site.latest.job} {_prediction_and_wait(site.latest)}" if site.latest else ""
            live = f"{max(site.queued, 0)} queued, {max(site.running, 0)} running"
            yield printable(f"{day}  {name}: {live}; {state}{latest}")

    def summary(self) -> str:
        """Over which jobs the methods are measured."""
        first = int((self.scenario.measured_from - self.scenario.begin) / DAY_S) + 1
        text = f"Measured: jobs submitted from day {first} on; those before filled the history."
        if self.predicted < self.scenario.jobs:
            text += f" This machine was slow, so {self.predicted} of {self.scenario.jobs} jobs were played."
        return text


def _prediction_and_wait(outcome: Outcome) -> str:
    """What was predicted and what happened."""
    said = "no estimate" if outcome.predicted_wait_s is None else f"predicted {duration(outcome.predicted_wait_s)}"
    bound_s = (outcome.bounds or {}).get("0.9")
    bound = "" if bound_s is None else f" (90 % within {duration(bound_s)})"
    return f"{said}{bound}, {'given up after' if outcome.censored else 'waited'} {duration(outcome.actual_wait_s)}"
