"""Jobs that are not eligible: held, with a dependency, or before their begin time."""

import pytest

from models.engine.engine import Engine
from models.engine.settings import EngineSettings
from models.records import Alter, Prediction
from models.site.job import Phase
from tests.support.events import capacity, end, start, submit
from tests.support.stories import HELD, QUEUED, RUNNING, anomalies, applied, event, live, new_engine, outcomes

DEPENDS = event("submit@100", dependency="afterok:7")
MET = event("alter@130", dependency="")


@pytest.mark.parametrize(
    ("changes", "phase", "reasons"),
    [
        ([], HELD, []),
        ([MET], QUEUED, []),
        ([event("alter@130", eligible=130.0)], QUEUED, []),
        ([event("alter@130", dependency="afterany:8")], HELD, []),
        ([event("alter@130", dependency="afterany:8", eligible=130.0)], HELD, []),
        ([event("alter@130", priority=3.0)], HELD, []),
        ([MET, event("alter@140", dependency="")], QUEUED, []),
        ([MET, event("alter@140", dependency="after:9")], HELD, []),
        ([event("hold@110"), MET], HELD, []),
        ([event("hold@110"), MET, event("release@140")], QUEUED, []),
        ([event("hold@110"), event("release@120")], HELD, []),
        ([event("hold@110"), event("release@120"), MET], QUEUED, []),
        ([event("hold@110"), event("hold@115")], HELD, ["hold_of_job_not_queued"]),
        ([event("release@120")], HELD, ["release_of_job_not_held"]),
        ([event("release@120"), event("hold@110")], HELD, ["release_of_job_not_held", "stale_hold"]),
        ([MET, event("alter@120", dependency="after:9")], QUEUED, ["stale_alter"]),
        ([event("start@150")], RUNNING, []),
        ([event("start@150"), MET], RUNNING, ["stale_alter"]),
    ],
)
def test_job_with_unmet_dependency_is_not_counted_as_queued(
    changes: list[Alter], phase: Phase, reasons: list[str]
) -> None:
    engine = new_engine()
    if any(each.kind == "start" for each in changes):
        reasons = []  # An alter of a running job is not an anomaly.
    found = anomalies(applied(engine, [DEPENDS, *changes]))
    assert live(engine) == {0: phase}
    assert [anomaly.reason for anomaly in found] == reasons


def test_queued_job_with_new_dependency_is_held_until_met() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100"), event("hold@105"), event("alter@110", dependency="afterok:7")])
    applied(engine, [event("release@120")])
    assert live(engine) == {0: HELD}
    applied(engine, [event("alter@130", dependency=""), event("start@150")])
    assert live(engine) == {0: RUNNING}


def test_dependency_met_starts_the_wait() -> None:
    engine = new_engine()
    [outcome, *_] = outcomes(applied(engine, [DEPENDS, MET, event("start@150")]))
    assert (outcome.actual_wait_s, outcome.wait_from) == (20.0, "eligible")


def predicted(engine: Engine, **fields: object) -> Prediction:
    [prediction] = engine.apply(submit("1", 1000.0, **fields))
    assert isinstance(prediction, Prediction)
    return prediction


def test_estimate_reason_states_the_begin_of_its_wait() -> None:
    def engine() -> Engine:
        made = Engine("s", EngineSettings(method="median", shadows=(), runtimes="closest"))
        applied(made, [capacity(8), submit("0", 0.0), start("0", 60.0), end("0", 90.0)])
        return made

    prediction = predicted(engine(), dependency="afterok:7")
    assert (prediction.predicted_wait_s, prediction.predicted_start) == (60.0, None)
    assert prediction.reason == "median of the last 1 jobs to start; counted from when its dependency is met"
    prediction = predicted(engine(), eligible=5000.0)
    assert (prediction.predicted_wait_s, prediction.predicted_start) == (60.0, 5060.0)
    assert prediction.reason.endswith("; counted from when it becomes eligible")
    for fields in ({}, {"eligible": 900.0}, {"dependency": ""}):
        prediction = predicted(engine(), **fields)
        assert (prediction.predicted_start, prediction.reason) == (1060.0, "median of the last 1 jobs to start")


def test_requeue_drops_the_dependency() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", dependency="afterok:7", qos="high", priority=2.0), event("start@150")])
    applied(engine, [event("requeue@200")])
    [job] = engine.context.state.jobs.values()
    assert (job.phase, job.extras.qos, job.extras.dependency, job.extras.priority) == (QUEUED, "high", None, None)
