"""The outcomes, histories and totals that the events of one job produce."""

from typing import Any

import msgspec
import pytest

from models.engine.outgoing import Anomaly
from models.records import (
    Capacity,
    End,
    Prediction,
    Start,
    Submit,
)
from models.site.expiry import MAX_ENDED_S
from models.site.state import SITE, micros
from tests.support.stories import (
    ENDED,
    QUEUED,
    RUNNING,
    anomalies,
    applied,
    assert_sound,
    contents,
    event,
    live,
    new_engine,
    other_jobs,
    outcomes,
    predictions,
    story,
)


def test_start_after_its_end_gives_wait_and_run_time() -> None:
    engine, orderly = new_engine(), new_engine()
    late = outcomes(applied(engine, story("submit@100 end@300 start@150")))
    assert late == outcomes(applied(orderly, story("submit@100 start@150 end@300")))
    assert [(outcome.actual_wait_s, outcome.actual_run_s) for outcome in late] == [(50.0, None), (50.0, 150.0)]
    assert contents(engine) == contents(orderly)


def test_job_first_seen_at_start_is_not_in_accuracy_or_history() -> None:
    engine = new_engine()
    records = applied(engine, [event("start@150", cpus=8), event("submit@100", user="ada", cpus=4), event("end@300")])
    assert not outcomes(records) and not predictions(records)
    assert (
        engine.scores.accuracy["median"].jobs
        == engine.scores.accuracy["median"].responses
        == len(engine.context.history)
        == 0
    )
    assert [run.run_s for run in engine.context.runs] == [150.0] * 3  # by user and size, by user, of the site


@pytest.mark.parametrize(
    ("text", "wait_s", "run_s"),
    [
        ("submit@100 start@40 end@300", 0.0, 260.0),
        ("submit@100 end@300 start@40", 0.0, 260.0),
        ("submit@100 start@40 end@40", 0.0, 0.0),
        ("submit@100 start@150 end@90", 50.0, 0.0),
        ("submit@100 start@150 cancel@90", 50.0, 0.0),
        ("submit@100 end@90 start@150", 50.0, 0.0),
        ("submit@100 end@99 start@99", 0.0, 0.0),
    ],
)
def test_clock_differences_give_no_negative_times(text: str, wait_s: float, run_s: float) -> None:
    engine = new_engine()
    found = outcomes(applied(engine, story(text)))
    assert [(each.actual_wait_s, each.actual_run_s) for each in found] == [(wait_s, None), (wait_s, run_s)]
    assert engine.scores.accuracy["median"].jobs == engine.scores.accuracy["median"].responses == 1
    assert engine.context.history.waits.tolist() == [wait_s]
    assert {run.run_s for run in engine.context.runs} == {run_s}


def test_cancel_within_a_minute_before_submit_has_zero_wait() -> None:
    engine = new_engine()
    [outcome] = outcomes(applied(engine, story("submit@100 cancel@40")))
    assert (outcome.censored, outcome.actual_wait_s) == (True, 0.0)
    assert engine.scores.cancelled["median"].jobs == engine.scores.cancelled["median"].responses == 1


@pytest.mark.parametrize(
    "text",
    [
        "submit@100 start@39 end@300",
        "submit@100 start@39 cancel@300",
        "submit@100 end@300 start@39",
        "submit@100 end@9 start@5",
        "submit@100 cancel@39",
    ],
)
def test_job_with_start_or_end_before_submit_is_not_learned(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()
    forgotten: list[tuple[str, int]] = []
    monkeypatch.setattr(engine.methods.waits["median"], "forget", forgotten.append)
    assert not outcomes(applied(engine, story(text)))
    for measured in (engine.scores.accuracy["median"], engine.scores.cancelled["median"]):
        assert measured.jobs == measured.responses == 0
    assert engine.scores.run_accuracy["closest"].jobs == 0
    assert len(engine.context.history) == len(engine.context.runs) == 0
    assert forgotten == [("1", 0)]


def test_end_long_before_start_gives_no_run_time() -> None:
    engine = new_engine()
    [outcome] = outcomes(applied(engine, story("submit@100 start@150 end@89")))
    assert (outcome.actual_wait_s, outcome.actual_run_s) == (50.0, None)
    assert (engine.scores.accuracy["median"].jobs, engine.scores.accuracy["median"].responses) == (1, 0)
    assert (len(engine.context.history), len(engine.context.runs)) == (1, 0)


@pytest.mark.parametrize(("state", "runs"), [("preempted", 0), ("node_fail", 0), ("failed", 1)])
def test_end_of_truncated_job_before_its_start_has_no_run_time(state: str, runs: int) -> None:
    engine = new_engine()
    applied(engine, [event("submit@100"), event("end@300", state=state), event("start@150")])
    assert len(engine.context.runs) == runs


def test_start_long_before_submit_is_running_from_then_on() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", user="ada", cpus=4), event("start@39")])
    running = engine.context.state.totals(("user", "ada"), RUNNING)
    assert (running.cpus, running.since) == (4, micros(39.0))


def test_late_submit_fills_in_the_request() -> None:
    engine = new_engine()
    applied(engine, [event("start@150", cpus=8)])
    assert engine.context.state.totals(SITE, RUNNING).cpus == 8
    request = {"user": "ada", "group": "g", "account": "a", "queue": "q", "executable": "x", "cpus": 4, "nodes": 2}
    applied(engine, [event("submit@100", **request, gpus=1, memory=5, walltime=60.0)])
    job = engine.context.state.jobs["1", 0]
    assert {name: getattr(job, name) for name in request} == request
    assert (job.gpus, job.memory, job.walltime, job.planned_run_s, job.submit) == (1, 5, 60.0, 60.0, 100.0)
    running = engine.context.state.totals(("user", "ada"), RUNNING)
    assert running.cpus == 8  # as allocated, whatever the request
    assert (running.planned_run_us, running.since) == (micros(60.0), micros(150.0))


def test_job_first_seen_at_start_has_run_time_of_similar_jobs() -> None:
    engine = new_engine()
    for number in range(2):
        request: dict[str, Any] = {"site": "s", "job": f"before{number}"}
        applied(engine, [Submit(**request, time=0.0), Start(**request, time=1.0), End(**request, time=101.0)])
    applied(engine, story("start@150"))
    assert engine.context.state.jobs["1", 0].planned_run_s == 100.0
    applied(engine, story("submit@100"))
    assert engine.context.state.jobs["1", 0].planned_run_s == 100.0


def test_cancelled_job_has_censored_wait_and_no_history() -> None:
    engine = new_engine()
    [outcome] = outcomes(applied(engine, story("submit@100 cancel@150")))
    assert (outcome.censored, outcome.actual_wait_s, outcome.actual_run_s) == (True, 50.0, None)
    assert len(engine.context.history) == engine.scores.accuracy["median"].jobs == 0
    assert engine.scores.cancelled["median"].jobs == engine.scores.cancelled["median"].responses == 1


def test_cancel_of_running_job_has_wait_and_run_time() -> None:
    engine = new_engine()
    found = outcomes(applied(engine, story("submit@100 start@150 cancel@200")))
    assert [(outcome.censored, outcome.actual_run_s) for outcome in found] == [(False, None), (False, 50.0)]


@pytest.mark.parametrize(
    ("text", "wait_s", "wait_from"),
    [
        ("submit@100 start@150", 50.0, "submit"),
        ("submit@100 hold@110 release@130 start@150", 20.0, "eligible"),
        ("submit@100 hold@110 release@130 hold@140 release@145 start@150", 5.0, "eligible"),
        ("submit@100 hold@100 release@100 start@150", 50.0, "submit"),
        ("submit@100 hold@110 release@150 start@150", 0.0, "eligible"),
        ("submit@100 hold@110 start@150", 50.0, "submit"),  # no release event arrived
        ("submit@100 hold@110 release@160 start@150", 0.0, "eligible"),
        ("submit@100 hold@110 release@90 start@150", 50.0, "submit"),  # release before the hold
    ],
)
def test_wait_counts_from_the_release(text: str, wait_s: float, wait_from: str) -> None:
    [outcome] = outcomes(applied(new_engine(), story(text)))
    assert (outcome.actual_wait_s, outcome.wait_from) == (wait_s, wait_from)
    before_s = outcome.ineligible_s or 0.0
    assert outcome.observed_at == 100.0 + before_s + outcome.actual_wait_s or outcome.actual_wait_s == 0.0
    assert (before_s > 0.0) == (wait_from == "eligible")


def test_release_keeps_a_later_begin_time() -> None:
    events = [event("submit@100", eligible=140.0), *story("hold@110 release@120 start@150")]
    [outcome] = outcomes(applied(new_engine(), events))
    assert (outcome.actual_wait_s, outcome.wait_from) == (10.0, "eligible")


def test_requeue_is_a_new_attempt_with_its_own_prediction() -> None:
    engine = new_engine()
    request = {"user": "ada", "queue": "q", "executable": "x", "cpus": 4, "walltime": 60.0, "eligible": 120.0}
    applied(engine, [event("submit@100", **request), *story("start@150 alter@160")])
    [prediction] = engine.apply(event("requeue@200"))
    assert isinstance(prediction, Prediction)
    assert (prediction.job, prediction.attempt, prediction.made_at) == ("1", 1, 200.0)
    assert prediction.predicted_wait_s == 30.0 and prediction.predicted_start == 230.0
    again = engine.context.state.jobs["1", 1]
    assert {name: getattr(again, name) for name in request} == request | {"eligible": None}
    found = outcomes(applied(engine, story("start'@260 end'@300")))
    assert [(outcome.attempt, outcome.made_at, outcome.actual_wait_s) for outcome in found] == [(1, 200.0, 60.0)] * 2
    assert found[-1].actual_run_s == 40.0
    assert [run.run_s for run in engine.context.runs][-1] == 40.0  # the requeued attempt has no run time


def test_alter_changes_the_request_and_the_totals() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", user="ada", queue="short", cpus=4, walltime=60.0)])
    applied(engine, [event("alter@110", queue="long", cpus=8)])
    applied(engine, [event("alter@120", walltime=600.0, nodes=2)])
    job = engine.context.state.jobs["1", 0]
    assert (job.queue, job.cpus, job.walltime, job.planned_run_s, job.nodes) == ("long", 8, 600.0, 600.0, 2)
    totals = engine.context.state.totals(("queue", "long"), QUEUED)
    assert (totals.count, totals.cpus, totals.planned_run_us) == (1, 8, micros(600.0))
    assert engine.context.state.totals(("queue", "short"), QUEUED).count == 0


def test_alter_of_running_job_counts_its_new_time_limit() -> None:
    engine = new_engine()
    applied(engine, [event("submit@100", walltime=60.0), event("start@150"), event("alter@160", walltime=600.0)])
    assert engine.context.state.totals(SITE, RUNNING).planned_run_us == micros(600.0)
    applied(engine, story("end@300"))
    assert [run.walltime for run in engine.context.runs] == [600.0]


def test_alter_after_start_keeps_the_wait() -> None:
    engine = new_engine()
    events = [event("submit@100"), event("start@150"), event("alter@160", eligible=140.0), event("end@300")]
    found = outcomes(applied(engine, events))
    assert [(outcome.actual_wait_s, outcome.wait_from) for outcome in found] == [(50.0, "submit")] * 2


def test_alter_of_begin_time_moves_the_begin_of_the_wait() -> None:
    events = [event("submit@100"), event("alter@110", eligible=140.0), event("start@150")]
    [outcome] = outcomes(applied(new_engine(), events))
    assert (outcome.actual_wait_s, outcome.wait_from) == (10.0, "eligible")


def test_capacity_older_than_current_is_rejected() -> None:
    engine = new_engine()
    newer, older = (Capacity(site="s", time=time, cpus=int(time)) for time in (20.0, 10.0))
    assert engine.apply(newer) == []
    [anomaly] = engine.apply(older)
    assert isinstance(anomaly, Anomaly) and (anomaly.reason, anomaly.rejected) == ("stale_capacity", True)
    assert engine.context.capacity == newer


def test_departed_job_submitted_again_is_a_duplicate() -> None:
    engine = new_engine()
    applied(engine, [*story("submit@100 start@150 end@300"), *other_jobs(300)])
    assert [anomaly.reason for anomaly in anomalies(engine.apply(event("submit@100")))] == ["duplicate_submit"]


def test_end_without_start_is_dropped_with_its_job() -> None:
    engine = new_engine()
    applied(engine, story("submit@100 end@300"))
    assert live(engine) == {0: ENDED}
    applied(engine, other_jobs(100, 300.0 + MAX_ENDED_S))
    assert live(engine) == {}
    assert_sound(engine)


def test_methods_receive_each_departure_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = new_engine()
    forgotten: list[tuple[str, int]] = []
    monkeypatch.setattr(engine.methods.waits["median"], "forget", forgotten.append)
    applied(engine, story("submit@100 cancel@150"))
    applied(engine, [msgspec.structs.replace(each, job="2") for each in story("submit@100 requeue@150")])
    applied(engine, [msgspec.structs.replace(each, job="3") for each in story("submit@100 end@150")])
    applied(engine, [msgspec.structs.replace(each, job="4") for each in story("submit@100 start@120 end@150")])
    assert forgotten == [("1", 0), ("2", 0)]
    applied(engine, other_jobs(100, 150.0 + MAX_ENDED_S))
    assert forgotten == [("1", 0), ("2", 0), ("3", 0)]
