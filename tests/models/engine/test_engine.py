"""The effect of single events on an engine."""

import msgspec
import numpy as np
import pytest

from models.engine.engine import Engine
from models.engine.outgoing import Anomaly
from models.engine.settings import EngineSettings
from models.records import (
    Alter,
    AnyEvent,
    Cancel,
    Hold,
    Outcome,
    Prediction,
    Release,
    Submit,
)
from models.site.history import features_of
from models.site.job import Phase
from models.site.state import SITE
from tests.support.engines import (
    MEDIAN,
    engine_after,
    nodes_at,
    outcome,
    predicted,
)
from tests.support.events import end, start, submit


def test_submit_is_predicted_before_it_joins_the_state() -> None:
    engine = engine_after(submit("1", 0.0, user="ada", cpus=4, walltime=60.0), start("1", 100.0))
    before = engine.context.state.totals(SITE, Phase.QUEUED)
    prediction = predicted(engine, submit("2", 200.0, user="ada", cpus=8, walltime=3600.0))
    assert prediction == Prediction(
        site="s",
        job="2",
        attempt=0,
        made_at=200.0,
        predicted_wait_s=100.0,
        predicted_run_s=None,
        predicted_start=300.0,
        method="median",
        reason="median of the last 1 jobs to start",
    )
    job = engine.context.state.jobs["2", 0]
    assert (before.count, engine.context.state.totals(SITE, Phase.QUEUED).count) == (0, 1)
    alone = engine_after(submit("1", 0.0, user="ada", cpus=4, walltime=60.0), start("1", 100.0))
    np.testing.assert_array_equal(job.features, features_of(job, alone.context.state, 200.0))


def test_start_emits_outcome_and_updates_history_and_scores() -> None:
    engine = engine_after(submit("1", 10.0, user="ada", cpus=4))
    assert outcome(engine, start("1", 70.0)) == Outcome(
        site="s",
        job="1",
        attempt=0,
        made_at=10.0,
        method="median",
        predicted_wait_s=None,
        predicted_run_s=None,
        observed_at=70.0,
        actual_wait_s=60.0,
        error_s=-60.0,
    )
    assert engine.context.history.waits.tolist() == [60.0]
    assert {name: accuracy.jobs for name, accuracy in engine.scores.accuracy.items()} == {"median": 1, "zero": 1}
    assert engine.context.state.totals(("user", "ada"), Phase.RUNNING).cpus == 4


def test_end_emits_outcome_with_run_time() -> None:
    engine = Engine("s", MEDIAN)
    for number in range(2):
        engine.apply(submit(str(number), 0.0, walltime=100.0))
        engine.apply(start(str(number), 50.0))
        record = outcome(engine, end(str(number), 90.0))
    assert (record.actual_wait_s, record.actual_run_s, record.predicted_run_s, record.run_error_s) == (
        50.0,
        40.0,
        None,
        None,
    )
    assert predicted(engine, submit("4", 100.0, walltime=200.0)).predicted_run_s == 80.0
    engine.apply(start("4", 100.0))
    record = outcome(engine, end("4", 130.0))
    assert (record.observed_at, record.actual_run_s, record.run_error_s) == (130.0, 30.0, 50.0)
    accuracy = engine.scores.run_accuracy["closest"]
    assert (accuracy.jobs, accuracy.missing, accuracy.error.total, accuracy.run_s) == (3, 2, 40.0 + 40.0 + 50.0, 110.0)
    assert engine.scores.accuracy["median"].responses == 3
    assert not engine.context.state.jobs


def test_cancel_removes_job_and_emits_censored_outcome() -> None:
    engine = engine_after(submit("1", 0.0, walltime=60.0))
    record = outcome(engine, Cancel(site="s", job="1", time=30.0))
    assert (record.censored, record.actual_wait_s, record.observed_at) == (True, 30.0, 30.0)
    assert not engine.context.state.jobs and len(engine.context.history) == len(engine.context.runs) == 0


def test_held_jobs_do_not_count_as_queued() -> None:
    engine = engine_after(submit("1", 0.0, cpus=4))
    assert engine.apply(Hold(site="s", job="1", time=1.0)) == []
    assert engine.context.state.totals(SITE, Phase.QUEUED).cpus == 0
    assert engine.apply(Release(site="s", job="1", time=2.0)) == []
    assert engine.context.state.totals(SITE, Phase.QUEUED).cpus == 4


def test_wait_and_predicted_start_count_from_eligible_time() -> None:
    engine = engine_after(submit("0", 0.0), start("0", 40.0))
    assert predicted(engine, submit("1", 100.0, eligible=500.0)).predicted_start == 540.0
    record = outcome(engine, start("1", 560.0))
    assert (record.wait_from, record.actual_wait_s, record.error_s) == ("eligible", 60.0, -20.0)


def test_start_little_before_eligible_counts_as_no_wait() -> None:
    engine = engine_after(submit("1", 100.0, eligible=250.0))
    assert outcome(engine, start("1", 200.0)).actual_wait_s == 0.0


@pytest.mark.parametrize(("walltime", "planned_run_s"), [(60.0, 60.0), (None, 100.0), (0.0, 100.0)])
def test_run_time_estimate_uses_request_else_history(walltime: float | None, planned_run_s: float) -> None:
    engine = Engine("s", MEDIAN)
    for number in range(2):
        for event in (submit(str(number), 0.0), start(str(number), 0.0), end(str(number), 100.0)):
            engine.apply(event)
    engine.apply(submit("3", 200.0, walltime=walltime))
    assert engine.context.state.jobs["3", 0].planned_run_s == planned_run_s
    engine.apply(Alter(site="s", job="3", time=201.0, walltime=walltime))
    assert engine.context.state.jobs["3", 0].planned_run_s == planned_run_s


def test_queued_jobs_do_not_train_the_method() -> None:
    engine = Engine("s", MEDIAN)
    for number in range(5):
        assert predicted(engine, submit(str(number), float(number))).reason == "no history"


def test_counters_count_events_anomalies_and_predictions() -> None:
    engine = engine_after(submit("1", 0.0), submit("1", 0.0), start("1", 5.0), start("2", 5.0), nodes_at(6.0))
    assert engine.events == 5
    assert engine.anomalies == {"duplicate_submit": 1, "start_without_submit": 1}
    assert engine.scores.predictions == {"median": 1, "zero": 1}


def test_unknown_method_raises_value_error() -> None:
    with pytest.raises(ValueError, match="no method 'oracle'"):
        Engine("s", EngineSettings(method="oracle"))


def test_job_events_are_matched_by_job_and_attempt() -> None:
    engine = Engine("s", MEDIAN)
    events: list[AnyEvent] = [submit("1", 0.0), submit("2", 0.0), Submit(site="s", job="1", attempt=1, time=0.0)]
    for event in events:
        engine.apply(event)
    engine.apply(start("1", 5.0))
    assert {key: job.phase for key, job in engine.context.state.jobs.items()} == {
        ("1", 0): Phase.RUNNING,
        ("2", 0): Phase.QUEUED,
        ("1", 1): Phase.QUEUED,
    }


def test_live_jobs_above_limit_are_rejected() -> None:
    engine = Engine("s", msgspec.structs.replace(MEDIAN, live_jobs=20))
    for place in range(50):
        engine.apply(submit(str(place), 1.0))
    assert len(engine.context.state) == 20
    assert engine.anomalies == {"state_full": 30}
    for event in (submit("new", 2.0), start("never seen", 2.0)):
        assert [record.reason for record in engine.apply(event) if isinstance(record, Anomaly)] == ["state_full"]
    for event in (start("1", 3.0), end("1", 4.0)):
        engine.apply(event)
    assert isinstance(engine.apply(submit("new", 5.0))[0], Prediction)


# States that cannot be loaded.
