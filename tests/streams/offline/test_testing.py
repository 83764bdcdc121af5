"""The test kit for authors of methods finds their errors."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from models.method_registry import METHODS, RUN_METHODS
from models.runtimes.closest import Closest
from models.waits.qespera import Qespera
from models.waits.trivial import Median
from queuecast.methods import Estimate, Job, RunEstimate, RunHistory, RunMethod, SiteContext, WaitMethod
from queuecast.testing import check_method, records_of, simulated_events


class Optimist(WaitMethod):
    """Predict the shortest of the last waits."""

    name = "optimist"

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        waits = context.history.latest
        return Estimate(waits[0], "shortest of late") if waits else Estimate(None, "no history")


class Silent(Optimist):
    """Predict nothing."""

    name = "silent"

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        return Estimate(None, "no idea")


class Forgetful(Optimist):
    """Count the predictions without storing the count."""

    name = "forgetful"

    def __init__(self) -> None:
        super().__init__()
        self._made = 0

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        self._made += 1
        return Estimate(float(self._made), "count")


class Restless(Optimist):
    """Predict different numbers in each run."""

    name = "restless"
    numbers: Iterator[int] = count()

    def predict(self, job: Job, context: SiteContext) -> Estimate:
        return Estimate(float(next(self.numbers)), "restless")


class Hour(RunMethod):
    """Predict an hour."""

    name = "hour"

    def predict(self, job: Job, runs: RunHistory, elapsed_s: float = 0.0) -> RunEstimate:
        return RunEstimate(3600.0, "an hour")


@pytest.mark.parametrize("method", [Optimist, Median, Qespera, Closest, Hour])
def test_check_method_accepts_methods_that_follow_the_rules(method: Any) -> None:
    before = dict(METHODS), dict(RUN_METHODS)
    checked = check_method(method, simulated_events(200), restarts=2)
    assert checked.predictions >= checked.estimates > 0
    assert checked.error_s[method.name] > 0
    assert ({"zero", "median"} <= checked.error_s.keys()) == issubclass(method, WaitMethod)
    assert (dict(METHODS), dict(RUN_METHODS)) == before


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (Silent, "Silent made no estimate"),
        (Forgetful, "Forgetful, restored after event"),
        (Restless, "Restless, applied again, gives other records"),
    ],
)
def test_check_method_names_the_broken_rule(method: Any, reason: str) -> None:
    with pytest.raises(AssertionError, match=reason):
        check_method(method, simulated_events(200))


def test_records_of_a_site_have_a_prediction_for_each_job() -> None:
    events = simulated_events(50)
    records = records_of(Optimist, events)
    made = {one.job for one in records if type(one).__name__ == "Prediction" and one.method == "optimist"}
    assert made == {event.job for event in events if event.kind == "submit"}
